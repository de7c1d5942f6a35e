# SPDX-License-Identifier: Apache-2.0
"""NumPy's memory handlers (NEP 49) as C code sees them, by ctypes, which gives up the GIL."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any

import numpy as np

CORE: Any = getattr(np, "_core", None) or np.core
HEADERS = Path(np.get_include()) / "numpy"

ALLOCATE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
ZEROED = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
RESIZE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
RELEASE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)

_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
_pointer.restype = ctypes.c_void_p


class Handler(ctypes.Structure):
    """`PyDataMem_Handler`, version 1."""

    _fields_ = (
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("context", ctypes.c_void_p),
        ("allocate", ALLOCATE),
        ("zeroed", ZEROED),
        ("resize", RESIZE),
        ("release", RELEASE),
    )
    capsule: object


def place_of(function: str) -> int:
    """Where NumPy's own header says that a function is in its table."""
    text = (HEADERS / "__multiarray_api.h").read_text()
    found = re.search(rf"#define {function}\b[^\[]*PyArray_API\[(\d+)\]", text)
    assert found, function
    return int(found[1])


def table() -> Any:
    address = _pointer(CORE._multiarray_umath._ARRAY_API, None)
    return ctypes.cast(address, ctypes.POINTER(ctypes.c_void_p))


def current() -> Handler:
    """The handler of this context; its capsule is kept."""
    get = ctypes.PYFUNCTYPE(ctypes.py_object)(table()[place_of("PyDataMem_GetHandler")])
    capsule = get()
    handler = Handler.from_address(_pointer(capsule, b"mem_handler"))
    handler.capsule = capsule
    return handler


def name_of(array: Any = None) -> str | None:
    """The name of an array's handler; of none: of the context's."""
    ask = CORE.multiarray.get_handler_name
    name: str | None = ask() if array is None else ask(array)
    return name
