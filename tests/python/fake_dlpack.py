# SPDX-License-Identifier: Apache-2.0
"""DLPack by hand: looks into capsules as a C consumer does, and makes them, wrong ones too."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

CPU, CUDA, CUDA_HOST, OPENCL = 1, 2, 3, 4
INT, UINT, FLOAT, OPAQUE, BFLOAT, COMPLEX, BOOL = 0, 1, 2, 3, 4, 5, 6
READ_ONLY, IS_COPIED = 1, 2


class Device(ctypes.Structure):
    _fields_ = (("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32))


class DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", Device),
        ("ndim", ctypes.c_int32),
        ("dtype", DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class Legacy(ctypes.Structure):
    _fields_ = (
        ("dl_tensor", Tensor),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


class Version(ctypes.Structure):
    _fields_ = (("major", ctypes.c_uint32), ("minor", ctypes.c_uint32))


class Versioned(ctypes.Structure):
    _fields_ = (
        ("version", Version),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("dl_tensor", Tensor),
    )


DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
KINDS: dict[bytes, type[Any]] = {b"dltensor": Legacy, b"dltensor_versioned": Versioned}

_api = ctypes.PyDLL(None)  # not pythonapi: its functions are shared, and frameworks type them anew
_get_name = _api.PyCapsule_GetName
_get_name.restype = ctypes.c_char_p
_get_name.argtypes = [ctypes.py_object]
_get_pointer = _api.PyCapsule_GetPointer
_get_pointer.restype = ctypes.c_void_p
_get_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_set_name = _api.PyCapsule_SetName
_set_name.argtypes = [ctypes.py_object, ctypes.c_char_p]
_new = _api.PyCapsule_New
_new.restype = ctypes.py_object
_new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]

# Capsules keep the address of their name.
_used_names = {name: ctypes.c_char_p(b"used_" + name) for name in KINDS}
_names = {name: ctypes.c_char_p(name) for name in (*KINDS, b"other")}
_names |= {b"used_" + name: used for name, used in _used_names.items()}


def capsule_name(capsule: object) -> bytes:
    name: bytes = _get_name(capsule)
    return name


def new_capsule(pointer: int, name: bytes, destructor: object = None) -> Any:
    """A capsule with one of the names above."""
    return _new(pointer, _names[name], ctypes.cast(destructor, ctypes.c_void_p))  # type: ignore[arg-type]


class Consumer:
    """Looks into a capsule, and takes it over on `consume()`."""

    def __init__(self, capsule: object) -> None:
        self.capsule = capsule
        self.name = capsule_name(capsule)
        self.pointer: int = _get_pointer(capsule, self.name)
        self.managed = ctypes.cast(self.pointer, ctypes.POINTER(KINDS[self.name])).contents
        self.tensor: Tensor = self.managed.dl_tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape[i] for i in range(self.tensor.ndim))

    @property
    def strides(self) -> tuple[int, ...]:
        return tuple(self.tensor.strides[i] for i in range(self.tensor.ndim))

    @property
    def dtype(self) -> tuple[int, int, int]:
        return (self.tensor.dtype.code, self.tensor.dtype.bits, self.tensor.dtype.lanes)

    @property
    def flags(self) -> int:
        flags: int = self.managed.flags
        return flags

    def consume(self) -> None:
        """Renames the capsule: from now on the deleter is this consumer's business."""
        _set_name(self.capsule, _used_names[self.name])

    def delete(self) -> None:
        """Calls the deleter, without the GIL."""
        DELETER(self.managed.deleter)(self.pointer)


class Producer:
    """A capsule of our own making, over memory that this object keeps.

    `deleted` counts calls of the deleter. Anything may be changed in `managed` before `capsule()`.
    """

    def __init__(
        self,
        data: ctypes.Array[Any] | None,
        shape: Sequence[int],
        *,
        dtype: tuple[int, int, int] = (FLOAT, 32, 1),
        strides: Sequence[int] | None = None,
        is_versioned: bool = True,
        device: tuple[int, int] = (CPU, 0),
    ) -> None:
        self.deleted = 0
        self.data = data
        self.is_versioned = is_versioned
        self._shape = (ctypes.c_int64 * max(len(shape), 1))(*shape)
        self._strides = (ctypes.c_int64 * max(len(shape), 1))(*(strides or ()))
        self._deleter = DELETER(self._count)
        self.managed = Versioned() if is_versioned else Legacy()
        if isinstance(self.managed, Versioned):
            self.managed.version = Version(1, 1)
        self.managed.deleter = ctypes.cast(self._deleter, ctypes.c_void_p)
        self.managed.manager_ctx = 1
        tensor = self.managed.dl_tensor
        tensor.data = ctypes.addressof(data) if data is not None else None
        tensor.device = Device(*device)
        tensor.ndim = len(shape)
        tensor.dtype = DataType(*dtype)
        tensor.shape = self._shape
        if strides is not None:
            tensor.strides = self._strides

    def _count(self, _pointer: int) -> None:
        self.deleted += 1

    def capsule(self, name: bytes | None = None, destructor: object = None) -> Any:
        """A capsule, by default without a destructor; `name` overrides the right one."""
        name = name or (b"dltensor_versioned" if self.is_versioned else b"dltensor")
        return new_capsule(ctypes.addressof(self.managed), name, destructor)


class Exporter:
    """An object whose `__dlpack__` does what a test says. Remembers what it was called with."""

    def __init__(
        self, export: Callable[..., Any], device: Callable[[], Any] = lambda: (CPU, 0)
    ) -> None:
        self._export = export
        self._device = device
        self.calls: list[dict[str, Any]] = []

    def __dlpack__(self, **keywords: Any) -> Any:
        self.calls.append(keywords)
        return self._export(**keywords)

    def __dlpack_device__(self) -> Any:
        return self._device()
