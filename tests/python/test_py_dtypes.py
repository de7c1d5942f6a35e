# SPDX-License-Identifier: Apache-2.0
"""Data types as callers may write them, and numbers as they come to lie in memory."""

from __future__ import annotations

import fractions
import math
import sys
from typing import Any

import numpy as np
import pytest

import tidl

SHARED = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
SHARED += ["float16", "float32", "float64", "complex64", "complex128"]

WORDS = sorted(
    {
        *np.sctypeDict,
        *np.typecodes["All"],
        *(np.dtype(name).str for name in SHARED),
        *(np.dtype(name).str[1:] for name in SHARED),
        *(order + np.dtype(name).str[1:] for order in "<=|" for name in SHARED),
        *(order + character for order in "<=|" for character in "bBhHiIqQefdFD?"),
    },
    key=str,
)


@pytest.mark.parametrize("word", [word for word in WORDS if isinstance(word, str) and word != "a"])
def test_strings_mean_what_numpy_means(client: tidl.Client, word: str) -> None:
    try:
        expected = np.dtype(word)
    except TypeError:
        pytest.skip("NumPy knows no such type")
    if expected.name in SHARED:
        assert client.empty(1, dtype=word).dtype == expected.name
        assert client.empty(1, dtype=expected).dtype == expected.name
        assert client.empty(1, dtype=expected.type).dtype == expected.name
        return
    with pytest.raises(tidl.DtypeError):
        client.empty(1, dtype=word)


def test_quadruple_precision_is_not_taichis_half(client: tidl.Client) -> None:
    with pytest.raises(tidl.DtypeError):
        client.empty(1, dtype="f16")


@pytest.mark.skipif(sys.byteorder != "little", reason="about the other byte order")
@pytest.mark.parametrize("word", [">i2", ">f4", ">c8", ">d", ">q"])
def test_other_byte_orders_are_refused(client: tidl.Client, word: str) -> None:
    with pytest.raises(tidl.DtypeError, match="native byte order"):
        client.empty(1, dtype=word)


def test_single_bytes_have_no_order(client: tidl.Client) -> None:
    assert [client.empty(1, dtype=word).dtype for word in (">u1", ">i1", ">?")] == [
        "uint8",
        "int8",
        "bool",
    ]


@pytest.mark.parametrize("word", ["i16", "i32", "u16", "u64", "f32", "f64", "Float32", "f4x"])
def test_what_numpy_does_not_know_is_refused(client: tidl.Client, word: str) -> None:
    with pytest.raises(TypeError):
        np.dtype(word)
    with pytest.raises(tidl.DtypeError):
        client.empty(1, dtype=word)


@pytest.mark.parametrize("word", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_names_that_numpy_lacks(client: tidl.Client, word: str) -> None:
    assert client.empty(1, dtype=word).dtype == word


@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [
        ("int32", 3.0, 3),
        ("int32", np.float64(-7), -7),
        ("int64", fractions.Fraction(4, 2), 2),
        ("uint64", 2**64 - 1, 2**64 - 1),
        ("int8", np.array(5), 5),
        ("bool", np.True_, True),
        ("bool", 0, False),
        ("float32", 3, 3.0),
        ("float32", 3.4028235e38, np.finfo("float32").max),
        ("float32", math.inf, math.inf),
        ("float16", -math.inf, -math.inf),
        ("float64", np.float32(0.5), 0.5),
        ("complex64", 1 + 2j, 1 + 2j),
        ("complex128", np.complex64(1j), 1j),
        ("complex64", 3, 3),
    ],
)
def test_numbers_that_fit(client: tidl.Client, dtype: str, value: Any, expected: Any) -> None:
    assert client.full(2, value, dtype=dtype).to_numpy().tolist() == [expected] * 2


def test_nan_fits_into_floats(client: tidl.Client) -> None:
    assert np.isnan(client.full(2, math.nan, dtype="float32").to_numpy()).all()
