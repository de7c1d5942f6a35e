# SPDX-License-Identifier: Apache-2.0
"""Data types by name, whatever framework they were written in, and scalars as bytes."""

from __future__ import annotations

import numbers
import operator
import struct
import sys
from collections.abc import Mapping
from typing import SupportsComplex, SupportsFloat, SupportsIndex, cast

from tidl import _core
from tidl._arguments import shown
from tidl._errors import ArgumentTypeError, DtypeError, InvalidArgumentError, UnsupportedError

_LONG = f"int{8 * struct.calcsize('l')}"
_POINTER = f"int{8 * struct.calcsize('P')}"

# NumPy's other words: what numpy.dtype() reads them as, native byte order left out.
_NUMPY: Mapping[str, str] = {
    **{f"i{size}": f"int{8 * size}" for size in (1, 2, 4, 8)},
    **{f"u{size}": f"uint{8 * size}" for size in (1, 2, 4, 8)},
    **{f"f{size}": f"float{8 * size}" for size in (2, 4, 8)},
    **{f"c{size}": f"complex{8 * size}" for size in (8, 16)},
    **dict.fromkeys(("b1", "?", "bool_"), "bool"),
    **dict.fromkeys(("b", "byte"), "int8"),
    **dict.fromkeys(("B", "ubyte"), "uint8"),
    **dict.fromkeys(("h", "short"), "int16"),
    **dict.fromkeys(("H", "ushort"), "uint16"),
    **dict.fromkeys(("i", "intc"), "int32"),
    **dict.fromkeys(("I", "uintc"), "uint32"),
    **dict.fromkeys(("l", "long"), _LONG),
    **dict.fromkeys(("L", "ulong"), f"u{_LONG}"),
    **dict.fromkeys(("q", "longlong"), "int64"),
    **dict.fromkeys(("Q", "ulonglong"), "uint64"),
    **dict.fromkeys(("p", "n", "int", "int_", "intp"), _POINTER),
    **dict.fromkeys(("P", "N", "uint", "uintp"), f"u{_POINTER}"),
    **dict.fromkeys(("e", "half"), "float16"),
    **dict.fromkeys(("f", "single"), "float32"),
    **dict.fromkeys(("d", "double", "float"), "float64"),
    **dict.fromkeys(("F", "csingle"), "complex64"),
    **dict.fromkeys(("D", "cdouble", "complex"), "complex128"),
}

# What Taichi and its forks call their data types; only their objects are read so.
_TAICHI_MODULES = ("taichi", "quadrants", "gstaichi")
_TAICHI: Mapping[str, str] = {
    "u1": "bool",
    **{f"i{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"u{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
    **{f"f{bits}": f"float{bits}" for bits in (16, 32, 64)},
}

# Byte orders that are not this machine's.
_FOREIGN_ORDERS = (">", "!") if sys.byteorder == "little" else ("<",)

_FLOAT_FORMATS = {16: "=e", 32: "=f", 64: "=d"}
_CODE_INT, _CODE_UINT, _CODE_FLOAT, _CODE_BFLOAT, _CODE_COMPLEX, _CODE_BOOL = 0, 1, 2, 4, 5, 6


def dtype_name(dtype: object) -> str:
    """The canonical name of a data type.

    Args:
        dtype: a string as NumPy reads it, a name that NumPy lacks ("bfloat16"), or a data type of
            NumPy, torch, Paddle, Taichi or Python.

    Raises:
        DtypeError: nothing that can be shared has this name.
    """
    if isinstance(dtype, str):
        name = _name_of_text(str(dtype))
    elif isinstance(dtype, type):
        name = _NUMPY.get(dtype.__name__, dtype.__name__)
    else:
        name = _name_of_object(dtype)
    if not name.isascii() or "\0" in name:
        raise DtypeError(f"{shown(dtype)} is no data type")
    _core.dtype_parse(name)
    return name


def _name_of_text(text: str) -> str:
    """Of a string. The byte order counts only where there is more than one byte, as in NumPy."""
    if "." in text:  # str() of a framework's data type, such as "torch.float32"
        return text.rpartition(".")[2]
    if text[:1] not in ("<", ">", "=", "|", "!"):
        return _NUMPY.get(text, text)
    name = _NUMPY.get(text[1:], text)
    if text[0] in _FOREIGN_ORDERS and name not in ("bool", "int8", "uint8"):
        raise DtypeError(f"{shown(text)} is not in native byte order; use {shown(text[1:])}")
    return name


def _name_of_object(dtype: object) -> str:
    """Of a framework's data type."""
    if getattr(dtype, "byteorder", "=") not in ("=", "|", sys.byteorder[0]):
        raise DtypeError(
            f"{shown(dtype)} is not in native byte order; convert it with newbyteorder('=')"
        )
    text = str(getattr(dtype, "name", None) or dtype)
    name = text.rpartition(".")[2].lower()
    if type(dtype).__module__.partition(".")[0] in _TAICHI_MODULES:
        return _TAICHI.get(name, name)
    return name


def encode_scalar(name: str, value: object) -> bytes:
    """One element of a data type as it lies in memory.

    Args:
        name: canonical name of the data type.
        value: a number, in the type's range.

    Raises:
        InvalidArgumentError: the number is out of range.
        ArgumentTypeError: it is no number, or a complex one for a real type.
        UnsupportedError: the type has no scalar in Python (the 8-bit floats and smaller).
    """
    code, bits, lanes = _core.dtype_parse(name)
    try:
        element = _encode_lane(name, code, bits, value)
    except (OverflowError, struct.error) as error:
        raise InvalidArgumentError(f"{shown(value)} does not fit into {name}") from error
    except (TypeError, ValueError, RuntimeError) as error:
        if isinstance(error, NotImplementedError):
            raise
        raise ArgumentTypeError(f"{shown(value)} is no number for {name}") from error
    return element * lanes


def _encode_lane(name: str, code: int, bits: int, value: object) -> bytes:
    if code == _CODE_BOOL:
        return _bit(value).to_bytes(1, sys.byteorder)
    if code in (_CODE_INT, _CODE_UINT) and bits % 8 == 0:
        return _integer(value).to_bytes(bits // 8, sys.byteorder, signed=code == _CODE_INT)
    if code == _CODE_FLOAT and bits in _FLOAT_FORMATS:
        return struct.pack(_FLOAT_FORMATS[bits], _real(value))
    if code == _CODE_BFLOAT and bits == 16:
        return _encode_bfloat16(_real(value))
    if code == _CODE_COMPLEX and bits in (64, 128):
        number = _complex(value)
        return b"".join(
            struct.pack(_FLOAT_FORMATS[bits // 2], part) for part in (number.real, number.imag)
        )
    raise UnsupportedError(f"full() cannot write {name}; use zeros() and fill it in a framework")


def _integer(value: object) -> int:
    """An integer, or a float without a fraction."""
    try:
        return operator.index(cast(SupportsIndex, value))
    except TypeError:
        number = _real(value)
    if not number.is_integer():  # nor are NaN and infinity
        raise OverflowError
    return int(number)


def _bit(value: object) -> int:
    number = _integer(value)
    if number not in (0, 1):
        raise OverflowError
    return number


def _real(value: object) -> float:
    if isinstance(value, str | bytes | bytearray):
        raise TypeError
    if isinstance(value, numbers.Complex) and not isinstance(value, numbers.Real):
        raise TypeError  # NumPy's would drop the imaginary part with no more than a warning
    return float(cast(SupportsFloat, value))


def _complex(value: object) -> complex:
    if isinstance(value, str | bytes | bytearray):
        raise TypeError
    return complex(cast(SupportsComplex, value))


def _encode_bfloat16(value: float) -> bytes:
    """The upper half of a float32, rounded to nearest, ties to even; a NaN stays one."""
    (word,) = struct.unpack("=I", struct.pack("=f", value))
    if value != value:
        return struct.pack("=H", (word >> 16) | 0x40)
    upper = (word + 0x7FFF + ((word >> 16) & 1)) >> 16
    if upper & 0x7FFF == 0x7F80 and abs(value) != float("inf"):
        raise OverflowError  # rounded up to infinity
    return struct.pack("=H", upper)
