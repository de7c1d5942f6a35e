# SPDX-License-Identifier: Apache-2.0
"""Sharing memory where it lies: whose memory tensors are views of, and who may write it.

libtidl moves blocks of malloc. A view does not begin where its block does, so frameworks are asked
for the storage below it; none is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from tidl import _core
from tidl._arguments import shown
from tidl._errors import ArgumentTypeError

Block = tuple[int, int, int]  # address, bytes, kind

MALLOC = 1
PAGES = 2

_SHAREABLE_MIN_BYTES = 65536


def prefer_shareable(min_bytes: int = _SHAREABLE_MIN_BYTES) -> int:
    """Makes large blocks of memory shareable in place, whoever allocates them in this process.

    By itself malloc gives only the first large blocks pages of their own: with each one that is
    freed it raises the size from which on it does so, up to 32 MiB. This fixes the size. Call it
    before large tensors are made; `GLIBC_TUNABLES=glibc.malloc.mmap_threshold=65536` in the
    environment does the same from the very beginning.

    Args:
        min_bytes: the size, at most 32 MiB.

    Returns:
        The size from which on it works now: more than `min_bytes` when it came too late for that,
        since room that the heap has is used first.

    Raises:
        InvalidArgumentError: a size that malloc does not take.
        UnsupportedError: this process's malloc is not glibc's.
        NoMemoryError: there was too little memory to find that out; try again.
    """
    if isinstance(min_bytes, bool) or not isinstance(min_bytes, int) or min_bytes <= 0:
        raise ArgumentTypeError(f"min_bytes is a positive integer, not {shown(min_bytes)}")
    return _core.prefer_shareable(min_bytes)


def terms(
    obj: Any, copy: bool | None, access: str, is_writable: bool
) -> tuple[str, tuple[Block, ...]]:
    """As what to publish `obj`, and the memory below it: both matter without a copy only."""
    if copy is not False:
        return access, ()
    if access == "shared" and not is_writable and is_constant(obj):
        access = "live"
    return access, blocks_below(obj)


def blocks_below(obj: Any) -> tuple[Block, ...]:
    """The memory that a tensor, or each in a mapping, is a view of, as far as it can be asked."""
    found: dict[int, Block] = {}
    _collect(obj, found)
    return tuple(found.values())


def is_constant(obj: Any) -> bool:
    """Whether its framework takes a tensor, or one in a mapping, for unchangeable."""
    if isinstance(obj, Mapping):
        return any(is_constant(value) for value in obj.values())
    jax = sys.modules.get("jax")
    if jax is not None and isinstance(obj, getattr(jax, "Array", ())):
        return True
    tensorflow = sys.modules.get("tensorflow")
    return tensorflow is not None and isinstance(obj, getattr(tensorflow, "Tensor", ()))


def _collect(obj: Any, found: dict[int, Block]) -> None:
    if isinstance(obj, Mapping):
        for value in obj.values():
            _collect(value, found)
        return
    block = _block_below(obj)
    if block is not None and block[0]:
        found[block[0]] = block


def _block_below(obj: Any) -> Block | None:
    """Frameworks are known as in `_sources`; what is not known is asked for nothing."""
    for base in type(obj).__mro__:
        ask = _ASK.get(base.__module__.partition(".")[0])
        if ask:
            return ask(obj)
    return None


def _torch_storage(obj: Any) -> Block | None:
    torch = sys.modules["torch"]
    if not isinstance(obj, torch.Tensor) or obj.layout != torch.strided or obj.device.type != "cpu":
        return None
    # torch 1 knows storages with a type only; what is asked here is the same of both.
    storage = obj.untyped_storage() if hasattr(obj, "untyped_storage") else obj.storage()
    return storage.data_ptr(), storage.nbytes(), MALLOC


def _numpy_base(obj: Any) -> Block | None:
    numpy = sys.modules["numpy"]
    if not isinstance(obj, numpy.ndarray):
        return None
    while isinstance(obj.base, numpy.ndarray):
        obj = obj.base
    if obj.base is not None:  # memory that somebody else has lent to NumPy
        return _block_below(obj.base)
    return obj.__array_interface__["data"][0], obj.nbytes, MALLOC


def _paddle_allocation(obj: Any) -> Block | None:
    if not isinstance(obj, sys.modules["paddle"].Tensor) or not obj.place.is_cpu_place():
        return None
    offset = getattr(obj, "offset", 0)
    if not isinstance(offset, int):
        return None
    size = getattr(obj, "_holder_size", None)
    bytes_below = size() if callable(size) else obj.size * obj.element_size() + offset
    return obj.data_ptr() - offset, bytes_below, MALLOC


def _taichi_pages(obj: Any) -> Block | None:
    from tidl.taichi._share import memory_of

    memory = memory_of(obj)
    return None if memory is None else (memory.address, memory.size_bytes, PAGES)


def _taichi_export(obj: Any) -> Block | None:
    """Exports of Taichi's memory, and what the arrays made of them keep."""
    owner = getattr(obj, "taichi_owner", None)
    return None if owner is None else _taichi_pages(owner)


_ASK = {
    "torch": _torch_storage,
    "numpy": _numpy_base,
    "paddle": _paddle_allocation,
    "taichi": _taichi_pages,
    "quadrants": _taichi_pages,
    "gstaichi": _taichi_pages,
    "tidl": _taichi_export,
}
