# SPDX-License-Identifier: Apache-2.0
"""Data types by name, whatever framework they were written in, and scalars as bytes."""

from __future__ import annotations

import struct
import sys
from typing import SupportsComplex, SupportsFloat, SupportsIndex, cast

from tidl import _core
from tidl._errors import ArgumentTypeError, DtypeError, InvalidArgumentError, UnsupportedError

# What Taichi and Python call their types.
_ALIASES = {
    "bool_": "bool",
    "u1": "bool",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
    "f16": "float16",
    "f32": "float32",
    "f64": "float64",
    "int": "int64",
    "float": "float64",
    "complex": "complex128",
}

_FLOAT_FORMATS = {16: "e", 32: "f", 64: "d"}
_CODE_INT, _CODE_UINT, _CODE_FLOAT, _CODE_BFLOAT, _CODE_COMPLEX, _CODE_BOOL = 0, 1, 2, 4, 5, 6


def dtype_name(dtype: object) -> str:
    """The canonical name of a data type.

    Args:
        dtype: a name ("float32"), or a data type of NumPy, torch, Paddle, Taichi or Python.

    Raises:
        DtypeError: nothing that can be shared has this name.
    """
    if isinstance(dtype, str):
        text = dtype
    elif isinstance(dtype, type):
        text = dtype.__name__
    elif getattr(dtype, "byteorder", "=") not in ("=", "|", sys.byteorder[0]):
        raise DtypeError(
            f"{dtype!r} is not in native byte order; convert it with newbyteorder('=')"
        )
    else:
        text = str(getattr(dtype, "name", None) or dtype)
    name = text.rpartition(".")[2].lower()
    name = _ALIASES.get(name, name)
    _core.dtype_parse(name)
    return name


def encode_scalar(name: str, value: object) -> bytes:
    """One element of a data type as it lies in memory.

    Args:
        name: canonical name of the data type.
        value: a number, in the type's range.

    Raises:
        InvalidArgumentError: the number is out of range, or no number.
        UnsupportedError: the type has no scalar in Python (the 8-bit floats and smaller).
    """
    code, bits, lanes = _core.dtype_parse(name)
    try:
        element = _encode_lane(name, code, bits, value)
    except (OverflowError, struct.error) as error:
        raise InvalidArgumentError(f"{value!r} does not fit into {name}") from error
    except (TypeError, ValueError) as error:
        raise ArgumentTypeError(f"{value!r} is no number for {name}") from error
    return element * lanes


def _encode_lane(name: str, code: int, bits: int, value: object) -> bytes:
    if code == _CODE_BOOL:
        return b"\1" if value else b"\0"
    if code in (_CODE_INT, _CODE_UINT):
        integer = cast(SupportsIndex, value).__index__()
        return integer.to_bytes(bits // 8, sys.byteorder, signed=code == _CODE_INT)
    if code == _CODE_FLOAT and bits in _FLOAT_FORMATS:
        return struct.pack(_FLOAT_FORMATS[bits], float(cast(SupportsFloat, value)))
    if code == _CODE_BFLOAT and bits == 16:
        return _encode_bfloat16(float(cast(SupportsFloat, value)))
    if code == _CODE_COMPLEX and bits in (64, 128):
        number = complex(cast(SupportsComplex, value))
        return struct.pack(2 * _FLOAT_FORMATS[bits // 2], number.real, number.imag)
    raise UnsupportedError(f"full() cannot write {name}; use zeros() and fill it in a framework")


def _encode_bfloat16(value: float) -> bytes:
    """The upper half of a float32, rounded to nearest, ties to even; a NaN stays one."""
    (word,) = struct.unpack("=I", struct.pack("=f", value))
    if value != value:
        return struct.pack("=H", (word >> 16) | 0x40)
    return struct.pack("=H", (word + 0x7FFF + ((word >> 16) & 1)) >> 16)
