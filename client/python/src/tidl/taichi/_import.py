# SPDX-License-Identifier: Apache-2.0
"""Anybody's tensor as an argument for Taichi's kernels: a NumPy array over the same memory.

NumPy and nothing else, since what Taichi does with other objects depends on which frameworks are
installed: with torch importable it takes a Paddle tensor for one of torch's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidl import _capsule, _core, _sources
from tidl._dlpack import ForeignTensor
from tidl._errors import DeviceError, DtypeError, ReadOnlyError, UnsupportedError
from tidl.adapters import taichi as _adapter
from tidl.adapters._common import load

if TYPE_CHECKING:
    import numpy.typing
    from typing_extensions import CapsuleType

_CUDA_HOST, _ROCM_HOST = 3, 11
_HOST = (1, _CUDA_HOST, _ROCM_HOST)
_CUDA = (2, 13)

# Their arrays are values, and their capsules of the old kind cannot say so.
_IMMUTABLE = ("jax", "jaxlib", "tensorflow")

_CODES = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool"}
_DTYPES = frozenset(
    {
        *((code, bits, 1) for code in (0, 1) for bits in (8, 16, 32, 64)),
        *((2, bits, 1) for bits in (16, 32, 64)),
        (6, 8, 1),
    }
)


def from_dlpack(
    obj: Any, *, axes: tuple[int, ...] | None = None, readonly_ok: bool = False
) -> numpy.typing.NDArray[Any]:
    """Any tensor in host memory, as an argument for a kernel's `ti.types.ndarray()`.

    Nothing is copied: what the kernel writes is seen by everybody. Taichi takes row-major memory
    only; a permuted tensor is handed over with its axes in the order of memory, which the caller
    says, as the kernel's indices follow that order. For other strides: `strided()`.

    Args:
        obj: an object with `__dlpack__` (of any framework, or a `tidl.Tensor`), a DLPack capsule
            of either kind (which is used up, even if its layout is refused), or an ndarray or
            field of Taichi.
        axes: order in which the kernel sees the axes; None: as they are.
        readonly_ok: accept memory that may not be written. (A `tidl.Tensor` that is immutable is
            mapped copy-on-write without it.) Taichi does not know what that is: a
            kernel that writes to it changes what others take for constant, or crashes.

    Raises:
        LayoutError: not row-major (the message has the axes, if any do), or over 12 dimensions.
        ReadOnlyError: it is read-only and `readonly_ok` was not given.
        DtypeError: Taichi has no such data type.
        UnsupportedError: it is in memory of a CUDA device. DeviceError: of another device.
        InvalidArgumentError: the capsule was used already. ArgumentTypeError: no tensor.
        MissingFrameworkError: NumPy is not installed.
    """
    return _adapter.row_major(open_array(obj, readonly_ok), axes)


def open_array(obj: Any, readonly_ok: bool) -> numpy.typing.NDArray[Any]:
    """A NumPy array over the tensor's memory, with whatever strides it has, checked for Taichi."""
    module = load("numpy", "NumPy")
    if isinstance(obj, _core.Tensor) and obj.published_as == "immutable" and not readonly_ok:
        obj = obj._copy_on_write()
    source = ForeignTensor(_sources.publishable(obj))
    _require_host(source.__dlpack_device__()[0])
    capsule = source.__dlpack__(max_version=(1, 3) if _knows_versions(module) else None)
    _require_dtype(_capsule.dtype(capsule))
    if not readonly_ok and (_is_immutable(obj) or _capsule.is_readonly(capsule)):
        raise ReadOnlyError(
            "the tensor is read-only and Taichi does not know read-only memory: pass a writable "
            "one, or readonly_ok=True and never write to it"
        )
    array: numpy.typing.NDArray[Any] = module.from_dlpack(_Once(capsule))
    if not array.flags.writeable:  # whoever comes here has decided about that
        array = module.asarray(_Writable(array))
    return array


class _Once:
    """A capsule as an object, since NumPy takes nothing else."""

    def __init__(self, capsule: CapsuleType) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_keywords: Any) -> CapsuleType:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


class _Writable:
    """Says of memory what NumPy cannot know of old capsules: that it may be written."""

    def __init__(self, array: numpy.typing.NDArray[Any]) -> None:
        self._array = array

    @property
    def __array_interface__(self) -> dict[str, Any]:
        interface = dict(self._array.__array_interface__)
        return {**interface, "data": (interface["data"][0], False)}


def _is_immutable(obj: Any) -> bool:
    kind = type(obj._obj if isinstance(obj, ForeignTensor) else obj)
    return any(base.__module__.partition(".")[0] in _IMMUTABLE for base in kind.__mro__)


def _knows_versions(module: Any) -> bool:
    major, minor = module.__version__.split(".")[:2]
    return (int(major), int(minor)) >= (2, 1)


def _require_host(device_type: int) -> None:
    if device_type in _HOST:
        return
    if device_type in _CUDA:
        raise UnsupportedError(
            "memory of a CUDA device cannot be handed to Taichi by this version; copy the tensor "
            "to the host first"
        )
    raise DeviceError(
        f"memory of DLPack device type {int(device_type)} is not the host's; copy the tensor to "
        "the host first"
    )


def _require_dtype(dtype: tuple[int, int, int]) -> None:
    if dtype not in _DTYPES:
        code, bits, lanes = dtype
        name = f"{_CODES.get(code, f'dtype code {code}, ')}{bits}" + f"x{lanes}" * (lanes != 1)
        raise DtypeError(f"Taichi has no {name}; convert the tensor first")
