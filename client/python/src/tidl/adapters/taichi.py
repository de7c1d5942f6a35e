# SPDX-License-Identifier: Apache-2.0
"""Taichi and its forks: kernel arguments are NumPy arrays, zero-copy only when row-major.

It refuses most other layouts, but a column-major array it copies in and copies back as a whole,
which would undo what other processes wrote meanwhile. And it writes through `writeable=False`.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from tidl._errors import ArgumentTypeError, DtypeError, InvalidArgumentError, LayoutError
from tidl.adapters._common import require_writable
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
    require_writable(tensor, "Taichi", readonly_ok)
    if tensor.dtype not in _DTYPES:
        raise DtypeError(f"Taichi has no {tensor.dtype}; publish another dtype")
    if len(tensor.shape) > MAX_NDIM:
        raise LayoutError(
            f"Taichi has at most {MAX_NDIM} dimensions and the tensor has {len(tensor.shape)}; "
            "publish it reshaped"
        )
    array = to_numpy(tensor)
    if axes is not None:
        array = array.transpose(_permutation(axes, array.ndim))
    if not array.flags.c_contiguous:
        raise LayoutError(_advice(tensor))
    return array


def _permutation(axes: Any, ndim: int) -> tuple[int, ...]:
    try:
        order = tuple(operator.index(axis) for axis in axes)
    except TypeError as error:
        raise ArgumentTypeError(f"axes is a sequence of integers, not {axes!r}") from error
    if sorted(order) != list(range(ndim)):
        raise InvalidArgumentError(f"axes must name each of the {ndim} axes once, not {order}")
    return order


def _advice(tensor: Tensor) -> str:
    axes = tensor.compact_axes
    if axes is None:
        return (
            f"Taichi takes row-major memory only, and strides {tensor.strides} for shape "
            f"{tensor.shape} leave gaps, repeat or reverse elements: publish the whole tensor and "
            "index it in the kernel"
        )
    return (
        "Taichi takes row-major memory only, and this tensor's axes lie in memory in the order "
        f"{axes}: pass axes={axes} and use the kernel's indices in that order"
    )
