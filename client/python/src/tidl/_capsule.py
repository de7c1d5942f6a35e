# SPDX-License-Identifier: Apache-2.0
"""Unused DLPack capsules: what they hold, and corrections for frameworks with ways of their own."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from tidl._errors import InvalidArgumentError, UnsupportedTensorError

if TYPE_CHECKING:
    from typing_extensions import CapsuleType

_OLD, _VERSIONED = b"dltensor", b"dltensor_versioned"
_MAJOR = 1
_READ_ONLY = 1  # in the flags

#: DLPack's codes of the two ways to say bool, with their bits.
BOOL = (6, 8)
MXNET_BOOL = (1, 1)

# Not pythonapi, whose functions are shared: MXNet declares their arguments in its own way.
_api = ctypes.PyDLL(None)
_get_name = _api.PyCapsule_GetName
_get_name.restype = ctypes.c_char_p
_get_name.argtypes = [ctypes.py_object]
_get_pointer = _api.PyCapsule_GetPointer
_get_pointer.restype = ctypes.c_void_p
_get_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


class _Tensor(ctypes.Structure):
    """How a DLTensor lies in memory, up to its strides. An old capsule's structure begins so."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
    )


class _Head(ctypes.Structure):
    """What comes before the DLTensor in a versioned capsule's structure."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
    )


def is_capsule(obj: Any) -> bool:
    """Whether it is a capsule of any kind."""
    return type(obj).__name__ == "PyCapsule"


def is_versioned(capsule: CapsuleType) -> bool:
    """Whether it is of the new kind, which can say "read-only".

    Raises:
        InvalidArgumentError: it was used already, or holds no tensor.
    """
    name: bytes | None = _get_name(capsule)
    if name not in (_OLD, _VERSIONED):
        text = (name or b"").decode(errors="replace")
        raise InvalidArgumentError(
            f'the capsule is named "{text}", not "dltensor" or "dltensor_versioned": it was used '
            "already, or holds no tensor"
        )
    return name == _VERSIONED


def device(capsule: CapsuleType) -> tuple[int, int]:
    """DLPack's type and number of the device that its tensor is on.

    Raises:
        InvalidArgumentError: it was used already, or holds no tensor.
        UnsupportedTensorError: it is of a newer DLPack.
    """
    tensor = _inside(capsule)
    return tensor.device_type, tensor.device_id


def dtype(capsule: CapsuleType) -> tuple[int, int, int]:
    """DLPack's code, bits and lanes of its tensor's data type. Raises as `device()`."""
    tensor = _inside(capsule)
    return tensor.code, tensor.bits, tensor.lanes


def is_readonly(capsule: CapsuleType) -> bool:
    """Whether it says that its memory may not be written. Old capsules never do."""
    if not is_versioned(capsule):
        return False
    return bool(_Head.from_address(_get_pointer(capsule, _VERSIONED)).flags & _READ_ONLY)


def drop_strides(capsule: CapsuleType) -> None:
    """Says "row-major" by leaving the strides out."""
    _inside(capsule).strides = None


def retype(capsule: CapsuleType, dtype: tuple[int, int]) -> None:
    """Names the data type in another way."""
    tensor = _inside(capsule)
    tensor.code, tensor.bits = dtype


def _inside(capsule: CapsuleType) -> _Tensor:
    if not is_versioned(capsule):
        return _Tensor.from_address(_get_pointer(capsule, _OLD))
    address: int = _get_pointer(capsule, _VERSIONED)
    major = _Head.from_address(address).major
    if major > _MAJOR:
        raise UnsupportedTensorError(
            f"the tensor is a DLPack {major} structure and this version knows DLPack {_MAJOR}; "
            "update tidl"
        )
    return _Tensor.from_address(address + ctypes.sizeof(_Head))
