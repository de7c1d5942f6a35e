# SPDX-License-Identifier: Apache-2.0
"""Taichi's own ndarrays and fields as DLPack objects of this process, over the same memory."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tidl._dtypes import dtype_name
from tidl._errors import ArgumentTypeError, DtypeError, ReleasedError
from tidl.adapters._common import load
from tidl.taichi import _family, _kernels, _snodes
from tidl.taichi._attach import attached_array

if TYPE_CHECKING:
    import numpy.typing
    from typing_extensions import CapsuleType

CPU_DEVICE = (1, 0)


def to_dlpack(obj: Any) -> Export:
    """An ndarray or a field of Taichi, as something that every DLPack consumer takes.

    Nothing is copied: writes are seen on both sides. Elements that are vectors or matrices add
    their axes at the end, as `to_numpy()` has them. A field that is not laid out yet is, as by the
    first kernel. For consumers that want a capsule: `to_dlpack(x).__dlpack__()`.

    The memory is Taichi's. An ndarray lives as long as the export or anything made from it does. A
    field's memory ends with its tree, and all memory with `ti.reset()` or another `ti.init()`:
    what was made from an export must not be used after that. (Exports of `attach_field()`'s fields
    are over the tensor's own memory, and outlive them.)

    Args:
        obj: `ti.ndarray`, `ti.Vector.ndarray`, `ti.Matrix.ndarray`, or a scalar, vector or matrix
            `ti.field` in dense SNodes, in any order of axes; the same of quadrants and gstaichi.

    Raises:
        LayoutError: the field is sparse, bit-packed, or in blocks that strides cannot describe.
        DeviceError: a graphics back end. UnsupportedError: the CUDA back end.
        ReleasedError: the ndarray's memory ended with `ti.reset()`.
        InvalidArgumentError: a field that is not placed, or Taichi is not initialised.
        ArgumentTypeError: something else.
    """
    family = _family.family_of(obj)
    if family is None:
        raise ArgumentTypeError(
            f"{type(obj).__name__} is no ndarray and no field of Taichi; other tensors have "
            "__dlpack__ themselves"
        )
    obj = getattr(obj, "_impl", obj)  # quadrants.Tensor wraps one of both
    if isinstance(obj, _family.part(family, "lang._ndarray").Ndarray):
        return _export_ndarray(family, obj)
    if isinstance(obj, _family.part(family, "lang.struct").StructField):
        raise ArgumentTypeError(
            "a struct field is several tensors: export its members one by one, as field.member"
        )
    if isinstance(obj, _family.part(family, "lang.field").Field):
        return _export_field(family, obj)
    raise ArgumentTypeError(f"{type(obj).__name__} is no ndarray and no field of {family}")


class Export:
    """Memory of Taichi's that DLPack consumers and NumPy take: `torch.from_dlpack(export)`.

    Made by `to_dlpack()`, which says how long the memory lives.
    """

    def __init__(
        self, family: str, array: numpy.typing.NDArray[Any], *, outlives: bool = False
    ) -> None:
        """Use `to_dlpack()`."""
        self._family = family
        self._runtime = weakref.ref(_family.runtime_of(family))
        self._array = array
        self._outlives = outlives  # the memory is not Taichi's

    @property
    def taichi_owner(self) -> Any:
        """The field or ndarray whose memory this is; None if it is none of Taichi's."""
        return None if self._outlives else getattr(self._array.base, "taichi_owner", None)

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents, those of the elements last."""
        return self._array.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """Steps in elements."""
        return tuple(step // self._array.itemsize for step in self._array.strides)

    @property
    def dtype(self) -> str:
        """Name of the data type."""
        return self._array.dtype.name

    def __repr__(self) -> str:
        return (
            f"<tidl.taichi.Export of {self._family}: shape {self.shape}, strides {self.strides}, "
            f"{self.dtype}>"
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU_DEVICE

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> CapsuleType:
        if stream not in (None, -1):
            raise ValueError("host memory has no streams: pass stream=None")
        request = {"max_version": max_version, "dl_device": dl_device, "copy": copy}
        # NumPy makes the capsule. Before 2.1 it knows none of these: a TypeError, as DLPack has it.
        known: dict[str, Any] = {
            name: value for name, value in request.items() if value is not None
        }
        capsule: CapsuleType = self._live().__dlpack__(**known)
        return capsule

    @property
    def __array_interface__(self) -> dict[str, Any]:
        interface: dict[str, Any] = self._live().__array_interface__
        return interface

    def _live(self) -> numpy.typing.NDArray[Any]:
        if self._outlives:
            return self._array
        runtime = _family.current_runtime(self._family)
        if runtime is None or self._runtime() is not runtime:
            raise ReleasedError(
                f"{self._family} was reset or initialised again, which ended this memory: export "
                "anew"
            )
        return self._array


class _Memory:
    """What NumPy arrays are made of, and keep."""

    def __init__(self, owner: Any, interface: dict[str, Any]) -> None:
        self.taichi_owner = owner
        self.__array_interface__ = interface


def _export_ndarray(family: str, ndarray: Any) -> Export:
    if ndarray.arr is None:
        raise ReleasedError(f"{family} was reset, which ended the ndarray's memory")
    runtime = _family.settle(family)
    shape = tuple(ndarray.arr.total_shape())
    address = runtime.prog.get_ndarray_data_ptr_as_int(ndarray.arr)
    dtype = _numpy_dtype(ndarray.dtype)
    shape, strides = _snodes.in_order_of_use(
        ndarray, shape, _row_major_strides(shape, dtype.itemsize)
    )
    return Export(family, _array(ndarray, address, dtype, shape, strides))


def _export_field(family: str, field: Any) -> Export:
    _family.settle(family)
    attached = attached_array(family, field)
    if attached is not None:
        return Export(family, attached, outlives=True)
    layout = _snodes.layout_of(field)
    address = _kernels.address_of(family, field)
    dtype = _numpy_dtype(field.dtype)
    return Export(family, _array(field, address, dtype, layout.shape, layout.strides_bytes))


def _numpy_dtype(dtype: Any) -> numpy.dtype[Any]:
    name = dtype_name(dtype)
    try:
        result: numpy.dtype[Any] = load("numpy", "NumPy").dtype(name)
    except TypeError as error:
        raise DtypeError(f"NumPy, which makes the capsule, has no {name}") from error
    return result


def _row_major_strides(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    strides = []
    for extent in reversed(shape):
        strides.append(itemsize)
        itemsize *= extent
    return tuple(reversed(strides))


def _array(
    owner: Any,
    address: int,
    dtype: numpy.dtype[Any],
    shape: Sequence[int],
    strides_bytes: Sequence[int],
) -> numpy.typing.NDArray[Any]:
    interface = {
        "data": (address, False),
        "shape": tuple(shape),
        "strides": tuple(strides_bytes),
        "typestr": dtype.str,
        "version": 3,
    }
    array: numpy.typing.NDArray[Any] = load("numpy", "NumPy").asarray(_Memory(owner, interface))
    return array
