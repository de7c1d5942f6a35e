# SPDX-License-Identifier: Apache-2.0
"""Taichi and its forks: kernel arguments are NumPy arrays, zero-copy only when row-major.

It refuses most other layouts, but a column-major array it copies in and copies back as a whole,
which would undo what other processes wrote meanwhile. And it writes through `writeable=False`.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from tidl._errors import ArgumentTypeError, InvalidArgumentError, LayoutError
from tidl._strides import compact_axes
from tidl.adapters._common import require_dtype, writable
from tidl.adapters.numpy import to_numpy

if TYPE_CHECKING:
    import numpy.typing

    from tidl._tensor import Tensor

MAX_NDIM = 12

_DTYPES = frozenset(
    {
        "bool",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float16",
        "float32",
        "float64",
    }
)


def to_taichi(
    tensor: Tensor, axes: tuple[int, ...] | None, readonly_ok: bool
) -> numpy.typing.NDArray[Any]:
    """The tensor's memory as a row-major NumPy array, its axes in the order asked for."""
    tensor = writable(tensor, "Taichi", readonly_ok)
    require_dtype(tensor, "Taichi", _DTYPES)
    return row_major(to_numpy(tensor), axes)


def row_major(
    array: numpy.typing.NDArray[Any], axes: tuple[int, ...] | None
) -> numpy.typing.NDArray[Any]:
    """A view of the array with its axes in the order asked for, if that is row-major."""
    if array.ndim > MAX_NDIM:
        raise LayoutError(
            f"Taichi has at most {MAX_NDIM} dimensions and the tensor has {array.ndim}; reshape it"
        )
    result = array if axes is None else array.transpose(_permutation(axes, array.ndim))
    if not result.flags.c_contiguous:
        raise LayoutError(_advice(array))
    return result


def _permutation(axes: Any, ndim: int) -> tuple[int, ...]:
    try:
        order = tuple(operator.index(axis) for axis in axes)
    except TypeError as error:
        raise ArgumentTypeError(f"axes is a sequence of integers, not {axes!r}") from error
    if sorted(order) != list(range(ndim)):
        raise InvalidArgumentError(f"axes must name each of the {ndim} axes once, not {order}")
    return order


def _advice(array: numpy.typing.NDArray[Any]) -> str:
    strides = tuple(step // array.itemsize for step in array.strides)
    axes = compact_axes(array.shape, strides)
    if axes is None:
        return (
            f"Taichi takes row-major memory only, and strides {strides} for shape {array.shape} "
            "leave gaps, repeat or reverse elements: pass it by tidl.taichi.strided(), or take the "
            "whole tensor and index it in the kernel"
        )
    return (
        "Taichi takes row-major memory only, and this tensor's axes lie in memory in the order "
        f"{axes}: pass axes={axes} and use the kernel's indices in that order"
    )
