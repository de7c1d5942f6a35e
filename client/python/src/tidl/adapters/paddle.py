# SPDX-License-Identifier: Apache-2.0
"""Paddle: up to 9 dimensions, no negative strides, ignores DLPack's read-only flag.

Three quirks shape this file. Paddle keeps the deleters of its imports by *address*: a second import
of one address loses the first one's deleter. So each address is imported once at a time, and the
end of an import is seen by its deleter, since views keep the memory after the tensor is gone.
uint16 silently becomes bfloat16. And importing Paddle after TensorFlow crashes the process.
"""

from __future__ import annotations

import sys
import threading
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidl._errors import BusyError, DtypeError, LayoutError, MissingFrameworkError
from tidl.adapters._common import (
    load,
    require_dtype,
    require_no_negative_strides,
    writable,
)

if TYPE_CHECKING:
    import paddle

    from tidl._core import Watch
    from tidl._tensor import Tensor

MAX_NDIM = 9

_DTYPES = frozenset(
    {
        "bool",
        "uint8",
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
    }
)


@dataclass(frozen=True)
class _Import:
    """One tensor that Paddle took, and may still have."""

    layout: tuple[Any, ...]
    result: weakref.ref[Any]
    watch: Watch


_imports: dict[int, _Import] = {}
_lock = threading.Lock()


def to_paddle(tensor: Tensor, readonly_ok: bool) -> paddle.Tensor:
    """The tensor's memory as a Paddle tensor."""
    module = load_paddle()
    tensor = writable(tensor, "Paddle", readonly_ok)
    _require_known(tensor)
    address = tensor._address
    if address is None:  # no elements, no memory: nothing to be confused with
        empty: paddle.Tensor = module.from_dlpack(tensor)
        return empty
    layout = (tensor.shape, tensor.strides, tensor.dtype)
    with _lock:
        result: paddle.Tensor = _known_import(address, layout)
        if result is None:
            result = _import(module, tensor, address, layout)
        return result


def load_paddle() -> Any:
    """Imports Paddle.

    Raises:
        MissingFrameworkError: it is not installed, or what was imported before keeps it from that.
    """
    if "tensorflow" in sys.modules and "paddle" not in sys.modules:
        raise MissingFrameworkError(
            "Paddle crashes the process when it is imported after TensorFlow, which is here "
            "already: import paddle before tensorflow"
        )
    try:
        return load("paddle", "PaddlePaddle")
    except AssertionError as error:
        # quadrants and gstaichi import pip, and before Python 3.12 setuptools, which Paddle
        # imports, refuses to come after that.
        raise MissingFrameworkError(
            f"PaddlePaddle cannot be imported ({error}): import paddle before quadrants or gstaichi"
        ) from error


def _require_known(tensor: Tensor) -> None:
    require_no_negative_strides(tensor, "Paddle")
    if len(tensor.shape) > MAX_NDIM:
        raise LayoutError(
            f"Paddle has at most {MAX_NDIM} dimensions and the tensor has {len(tensor.shape)}; "
            "publish it reshaped"
        )
    if tensor.dtype == "uint16":
        raise DtypeError("Paddle takes uint16 for bfloat16; publish it as int16 or int32")
    require_dtype(tensor, "Paddle", _DTYPES)


def _known_import(address: int, layout: tuple[Any, ...]) -> Any:
    known = _imports.get(address)
    if known is None or not known.watch.alive:
        return None
    result = known.result()
    # Its address changes when it is given other memory, by tidl.paddle.share_() or Tensor.set_();
    # views may keep the old one.
    if result is None or known.layout != layout or result.data_ptr() != address:
        raise BusyError(
            "Paddle already has this memory, as another view; it cannot import one address twice. "
            "Make views of that Paddle tensor, or let go of it and its views first"
        )
    return result


def _import(module: Any, tensor: Tensor, address: int, layout: tuple[Any, ...]) -> Any:
    for stale in [key for key, known in _imports.items() if not known.watch.alive]:
        del _imports[stale]
    capsule, watch = tensor._export_watched()
    result = module.from_dlpack(capsule)
    _imports[address] = _Import(layout, weakref.ref(result), watch)
    return result
