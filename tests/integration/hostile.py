# SPDX-License-Identifier: Apache-2.0
"""What a reader can try to change memory that it was given for reading.

Each attempt says whether the kernel let it, and none of them may leave a trace or end the process.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import mmap
import os
from collections.abc import Callable

from world import PAGE_BYTES

PROT_READ, PROT_WRITE = mmap.PROT_READ, mmap.PROT_WRITE
MAP_FAILED = ctypes.c_void_p(-1).value
FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE, FALLOC_ZERO_RANGE = 1, 2, 16
MADV_REMOVE = 9
SEALS = {"shrink": 2, "grow": 4, "write": 8, "future_write": 16, "final": 1}

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]


def _check(result: int) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def map_pages(fd: int, size_bytes: int, protection: int, flags: int = mmap.MAP_SHARED) -> int:
    """The address of a new map."""
    address = _libc.mmap(None, size_bytes, protection, flags, fd, 0)
    if address in (None, MAP_FAILED):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(address)


def protect(address: int, size_bytes: int, protection: int) -> None:
    _check(_libc.mprotect(address, size_bytes, protection))


def remove_pages(address: int, size_bytes: int) -> None:
    """Punches a hole by way of a map."""
    _check(_libc.madvise(address, size_bytes, MADV_REMOVE))


def fallocate(fd: int, mode: int, size_bytes: int) -> None:
    _check(_libc.fallocate(fd, mode, 0, size_bytes))


def bytes_at(address: int, size_bytes: int) -> bytes:
    """What a map shows; SIGBUS if the memory behind it is gone."""
    return ctypes.string_at(address, size_bytes)


def _write_map(fd: int) -> None:
    address = map_pages(fd, PAGE_BYTES, PROT_READ | PROT_WRITE)
    ctypes.memset(address, ord("X"), 1)
    _check(_libc.munmap(address, PAGE_BYTES))


def _raise_protection(fd: int) -> None:
    address = map_pages(fd, PAGE_BYTES, PROT_READ)
    protect(address, PAGE_BYTES, PROT_READ | PROT_WRITE)
    ctypes.memset(address, ord("X"), 1)


def on_descriptor(fd: int) -> dict[str, Callable[[], object]]:
    """Attempts on the memory through a descriptor, whatever it was opened for."""
    hole = FALLOC_KEEP_SIZE | FALLOC_PUNCH_HOLE
    attempts: dict[str, Callable[[], object]] = {
        "pwrite": lambda: os.pwrite(fd, b"X", 0),
        "write map": lambda: _write_map(fd),
        "protection": lambda: _raise_protection(fd),
        "shrink": lambda: os.ftruncate(fd, 0),
        "grow": lambda: os.ftruncate(fd, 1 << 20),
        "hole": lambda: fallocate(fd, hole, PAGE_BYTES),
        "zeroes": lambda: fallocate(fd, FALLOC_KEEP_SIZE | FALLOC_ZERO_RANGE, PAGE_BYTES),
    }
    for name, bit in SEALS.items():
        attempts[f"seal {name}"] = lambda bit=bit: fcntl.fcntl(fd, fcntl.F_ADD_SEALS, bit)
    return attempts


def on_map(address: int) -> dict[str, Callable[[], object]]:
    """Attempts on a map for reading."""
    return {
        "mprotect": lambda: protect(address, PAGE_BYTES, PROT_READ | PROT_WRITE),
        "madvise": lambda: remove_pages(address, PAGE_BYTES),
    }


def succeed(attempts: dict[str, Callable[[], object]]) -> set[str]:
    """The attempts that the kernel lets through."""
    done = set()
    for name, attempt in attempts.items():
        try:
            attempt()
        except OSError:
            continue
        done.add(name)
    return done


def reopen(path: str) -> int | None:
    """A descriptor for writing, if it can be had, whatever the mode says."""
    with contextlib.suppress(OSError):
        os.chmod(path, 0o666)
    try:
        return os.open(path, os.O_RDWR)
    except OSError:
        return None
