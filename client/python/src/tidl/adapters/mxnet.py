# SPDX-License-Identifier: Apache-2.0
"""MXNet: row-major memory, few data types, ignores DLPack's read-only flag.

It refuses strides that it does not like even where there is one element only, hence none are
handed over. And it names bool in a way of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidl import _capsule
from tidl._errors import LayoutError
from tidl.adapters._common import load, require_dtype, require_row_major, writable

if TYPE_CHECKING:
    import mxnet

    from tidl._tensor import Tensor

_DTYPES = frozenset(
    {
        "bool",
        "uint8",
        "int8",
        "int32",
        "int64",
        "float16",
        "bfloat16",
        "float32",
        "float64",
    }
)


def to_mxnet(tensor: Tensor, readonly_ok: bool) -> mxnet.nd.NDArray:
    """The tensor's memory as an MXNet NDArray."""
    module = load("mxnet", "MXNet", "install mxnet 1.9.1 with NumPy 1.23 in this environment")
    tensor = writable(tensor, "MXNet", readonly_ok)
    require_dtype(tensor, "MXNet", _DTYPES)
    require_row_major(tensor, "MXNet")
    _require_known_shape(module, tensor)
    capsule = tensor.unflagged().__dlpack__()
    _capsule.drop_strides(capsule)
    if tensor.dtype == "bool":
        _capsule.retype(capsule, _capsule.MXNET_BOOL)
    result: mxnet.nd.NDArray = module.nd.from_dlpack(capsule)
    return result


def _require_known_shape(module: Any, tensor: Tensor) -> None:
    if (not tensor.shape or 0 in tensor.shape) and not module.util.is_np_shape():
        raise LayoutError(
            f"MXNet takes the shape {tensor.shape} for an unknown one: call "
            "mxnet.util.set_np_shape(True) first, or publish it with one element or more"
        )
