# SPDX-License-Identifier: Apache-2.0
"""Tensors of any strides for Taichi's kernels: all the memory in a row, and where elements lie."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidl._errors import LayoutError
from tidl.adapters._common import load
from tidl.taichi._import import open_array

if TYPE_CHECKING:
    import numpy.typing

# Kernels compute with 32 bits.
MAX_SPAN = 2**31 - 1


@dataclass(frozen=True, eq=False)
class Strided:
    """A tensor as kernel arguments: its element i is `flat[flat_index(offset, strides, i)]`.

    Made by `strided()`. `shape` and `strides` are arrays of int32, for `ti.types.vector(n, ti.i32)`
    as the type of the kernel's argument.
    """

    #: one-dimensional array from the tensor's first element in memory to its last; what lies
    #: between its elements is in it too
    flat: numpy.typing.NDArray[Any]
    #: extents
    shape: numpy.typing.NDArray[numpy.int32]
    #: steps in elements; 0 where an element is repeated, negative where an axis is reversed
    strides: numpy.typing.NDArray[numpy.int32]
    #: index in `flat` of element (0, 0, ...); not 0 only if an axis is reversed
    offset: int


def strided(obj: Any, *, readonly_ok: bool = False) -> Strided:
    """Any tensor in host memory, with any strides, as arguments for a kernel. Nothing is copied.

        x = tidl.taichi.strided(tensor)
        paint(x.flat, x.offset, x.strides, x.shape)

    Where axes repeat elements (stride 0), several indices write to one place.

    Args:
        obj: as for `from_dlpack()`.
        readonly_ok: as for `from_dlpack()`.

    Raises:
        LayoutError: its memory spans more than 2**31 - 1 elements.
        Error: as `from_dlpack()`, of which only the rules about layouts do not apply.
    """
    array = open_array(obj, readonly_ok)
    flat, offset = _flatten(load("numpy.lib.stride_tricks", "NumPy"), array)
    if flat.size > MAX_SPAN:
        raise LayoutError(
            f"the tensor spans {flat.size} elements and Taichi's kernels index {MAX_SPAN}: pass it "
            "in parts"
        )
    vector = functools.partial(load("numpy", "NumPy").array, dtype="int32")
    return Strided(flat, vector(array.shape), vector(_steps(array)), offset)


def _steps(array: Any) -> tuple[int, ...]:
    return tuple(step // array.itemsize for step in array.strides)


def _flatten(tricks: Any, array: Any) -> tuple[Any, int]:
    """The memory from the lowest element to the highest, and where in it element 0 is."""
    if array.size == 0:
        return tricks.as_strided(array, (0,), (array.itemsize,)), 0
    steps = _steps(array)
    ways = [(extent - 1) * step for extent, step in zip(array.shape, steps, strict=True)]
    offset = -sum(way for way in ways if way < 0)
    span = offset + sum(way for way in ways if way > 0) + 1
    ascending = array[tuple(slice(None, None, -1 if step < 0 else 1) for step in steps)]
    return tricks.as_strided(ascending, (span,), (array.itemsize,)), offset
