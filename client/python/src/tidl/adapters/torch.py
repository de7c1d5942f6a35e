# SPDX-License-Identifier: Apache-2.0
"""torch: most data types, no negative strides, ignores DLPack's read-only flag."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidl._errors import DtypeError
from tidl.adapters._common import load, require_no_negative_strides, writable

if TYPE_CHECKING:
    import torch

    from tidl._tensor import Tensor


def to_torch(tensor: Tensor, readonly_ok: bool) -> torch.Tensor:
    """The tensor's memory as a torch tensor."""
    module = load("torch", "torch")
    tensor = writable(tensor, "torch", readonly_ok)
    require_no_negative_strides(tensor, "torch")
    dtype = getattr(module, tensor.dtype, None)
    if not isinstance(dtype, module.dtype):
        raise DtypeError(f"torch {module.__version__} has no {tensor.dtype}; publish another dtype")
    if not tensor.nbytes and module.__version__.startswith("1."):
        # No memory to share, and a lease that torch 1.13, which forgets such deleters, would keep.
        empty: torch.Tensor = module.empty(tensor.shape, dtype=dtype)
        return empty
    # Before 2.9 torch asks for the old capsule, which read-only memory has only when vouched for.
    result: torch.Tensor = module.from_dlpack(tensor.unflagged() if tensor.readonly else tensor)
    return result
