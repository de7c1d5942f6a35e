# SPDX-License-Identifier: Apache-2.0
"""A file whose descriptors take as long to close as one likes.

A file system in user space is asked before close() returns, and until it answers the closing thread
cannot even be killed. This one has a single file and answers the test's own process at once, every
other one when it is told to.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import Any

from child import Child

DEVICE = Path("/dev/fuse")
REQUEST = struct.Struct("<IIQQIIII")  # length, opcode, unique, node, uid, gid, pid, extensions
ANSWER = struct.Struct("<IiQ")
INIT_ANSWER = struct.Struct("<4I2H2I36x")  # version 7.31, no read-ahead, no flags, sizes


class Opcode(IntEnum):
    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    OPEN = 14
    RELEASE = 18
    FLUSH = 25
    INIT = 26
    INTERRUPT = 36
    DESTROY = 38
    BATCH_FORGET = 42


ROOT, FILE = 1, 2
MODES = {ROOT: 0o040755, FILE: 0o100666}
BUFFER_BYTES = 1 << 17
MS_NOSUID, MS_NODEV, MNT_DETACH = 2, 4, 2


def attributes(node: int) -> bytes:
    numbers = (node, 0, 0, 0, 0, 0, 0, 0, 0, MODES[node], 1, 0, 0, 0, 512, 0)
    return struct.pack("<6Q10I", *numbers)


class Server:
    """The file system itself, in a process of its own."""

    def __init__(self, device: int, patient_pid: int) -> None:
        self.device = device
        self.patient_pid = patient_pid
        self.held: list[int] = []
        self.is_holding = True

    def answer(self, unique: int, content: bytes = b"", error: int = 0) -> None:
        os.write(self.device, ANSWER.pack(ANSWER.size + len(content), -error, unique) + content)

    def serve(self, pipe: Any) -> None:
        """Tells of each close() that it holds; lets all go on "go"."""
        while True:
            ready, _, _ = select.select([self.device, pipe], [], [])
            if pipe in ready:
                assert pipe.recv() == "go"
                self.is_holding = False
                while self.held:
                    self.answer(self.held.pop())
            if self.device in ready and self.take_request():
                pipe.send("held")

    def take_request(self) -> bool:
        """Returns whether this was a close() that now waits."""
        data = os.read(self.device, BUFFER_BYTES)
        _, opcode, unique, node, _, _, pid, _ = REQUEST.unpack_from(data)
        body = data[REQUEST.size :]
        match opcode:
            case Opcode.INIT:
                self.answer(unique, INIT_ANSWER.pack(7, 31, 0, 0, 0, 0, BUFFER_BYTES // 2, 1))
            case Opcode.LOOKUP if body == b"file\0":
                self.answer(unique, struct.pack("<4Q2I", FILE, 0, 0, 0, 0, 0) + attributes(FILE))
            case Opcode.LOOKUP:
                self.answer(unique, error=errno.ENOENT)
            case Opcode.GETATTR:
                self.answer(unique, struct.pack("<QII", 0, 0, 0) + attributes(node))
            case Opcode.OPEN:
                self.answer(unique, struct.pack("<QII", 0, 0, 0))
            case Opcode.FLUSH if pid != self.patient_pid and self.is_holding:
                self.held.append(unique)
                return True
            case Opcode.FLUSH | Opcode.RELEASE | Opcode.DESTROY:
                self.answer(unique)
            case Opcode.FORGET | Opcode.BATCH_FORGET | Opcode.INTERRUPT:
                pass  # these have no answer
            case _:
                self.answer(unique, error=errno.ENOSYS)
        return False


class HangingFile:
    def __init__(self, path: Path, server: Child) -> None:
        self.path = path
        self._server = server

    def open(self) -> int:
        return os.open(self.path, os.O_RDWR | os.O_CLOEXEC)

    def await_close(self) -> None:
        """Returns once somebody else's close() hangs."""
        assert self._server.receive() == "held"

    def go(self) -> None:
        """Lets everything that hangs, and will be closed, go."""
        self._server.send("go")


def mount(device: int, folder: Path) -> None:
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"hanging", os.fsencode(folder), b"fuse", MS_NOSUID | MS_NODEV, options) != 0:
        raise OSError(ctypes.get_errno(), "mount")


@contextmanager
def hanging_file(folder: Path) -> Iterator[HangingFile]:
    """Raises OSError where this process may not mount it."""
    device = os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC)
    try:
        mount(device, folder)
        server = Server(device, os.getpid())
        try:
            with Child(server.serve, keeps=[device]) as child:
                os.close(device)
                device = -1
                yield HangingFile(folder / "file", child)
        finally:
            ctypes.CDLL(None).umount2(os.fsencode(folder), MNT_DETACH)
    finally:
        if device >= 0:
            os.close(device)
