# SPDX-License-Identifier: Apache-2.0
"""The tensors that the matrix exchanges: every data type, and one of them in every layout."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tidl._dtypes import encode_scalar

DTYPES = (
    "bool",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
    "complex128",
    "float8_e4m3fn",
    "float8_e5m2",
)

# Finite numbers in both, counted from here; and their ones.
_FLOAT8_FIRST = 0x28
_FLOAT8_ONE = {"float8_e4m3fn": 0x38, "float8_e5m2": 0x3C}


@dataclass(frozen=True)
class Case:
    """A view of a row-major tensor, and what the page calls it."""

    label: str
    text: str
    dtype: str = "float32"
    shape: tuple[int, ...] = (3, 4)
    view: str = "whole"


LAYOUTS = (
    Case("0 dims", "a single element", shape=()),
    Case("1 dim", "shape (12,)", shape=(12,)),
    Case("5 dims", "shape (2, 1, 3, 1, 2)", shape=(2, 1, 3, 1, 2)),
    Case("10 dims", "ten dimensions", shape=(2, 1) * 5),
    Case("empty", "shape (0, 3)", shape=(0, 3)),
    Case("permuted", "whole.transpose(2, 0, 1)", shape=(2, 3, 4), view="whole.transpose(2, 0, 1)"),
    Case("pitched", "whole[:, :3]: rows with a gap after each", view="whole[:, :3]"),
    Case("column", "whole[:, :1]: an extent of 1 in a strided tensor", view="whole[:, :1]"),
    Case("stepped", "whole[:, ::2]", view="whole[:, ::2]"),
    Case("reversed", "whole[::-1]: a negative stride", view="whole[::-1]"),
    Case("repeated", "a row, three times: stride 0", view="np.broadcast_to(whole[0], (3, 4))"),
    Case("aligned tail", "whole[1:], 64 bytes in", shape=(3, 16), view="whole[1:]"),
    Case("unaligned tail", "whole[1:], 16 bytes in", view="whole[1:]"),
)

CASES = (*(Case(dtype, f"row-major {dtype}", dtype=dtype) for dtype in DTYPES), *LAYOUTS)


def itemsize(dtype: str) -> int:
    return len(element(dtype, 0))


def element(dtype: str, number: int) -> bytes:
    """The element that a tensor begins with at this place: small, finite, and told apart."""
    if dtype in _FLOAT8_ONE:
        return bytes([_FLOAT8_FIRST + number % 16])
    return encode_scalar(dtype, number % 2 if dtype == "bool" else number + 1)


def one(dtype: str) -> bytes:
    if dtype in _FLOAT8_ONE:
        return bytes([_FLOAT8_ONE[dtype]])
    return encode_scalar(dtype, 1)


def view_of(case: Case, memory: np.ndarray) -> np.ndarray:
    """The case's view of its tensor's bytes, elements as opaque bytes."""
    size = math.prod(case.shape)
    whole = memory[: size * itemsize(case.dtype)]
    whole = whole.view(f"V{itemsize(case.dtype)}").reshape(case.shape)
    view: np.ndarray = eval(case.view, {"np": np, "whole": whole})
    return view


def content(case: Case) -> bytes:
    """Every byte of the case's row-major tensor."""
    return b"".join(element(case.dtype, number) for number in range(math.prod(case.shape)))


def expected(case: Case) -> bytes:
    """What a framework must read, in row-major order."""
    return view_of(case, np.frombuffer(content(case), np.uint8)).tobytes()
