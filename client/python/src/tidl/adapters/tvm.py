# SPDX-License-Identifier: Apache-2.0
"""TVM: no complex types, never sees DLPack's read-only flag.

Its tensors are those of `tvm_ffi`, which takes any strides and alignment. Once `tvm` is imported
they are `tvm.runtime.Tensor` instead, whose own methods and compiled functions want row-major
memory aligned to 64 bytes.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tidl._errors import DtypeError
from tidl.adapters._common import load, require_aligned, require_row_major, writable

if TYPE_CHECKING:
    import tvm_ffi

    from tidl._tensor import Tensor

ALIGNMENT = 64


def to_tvm(tensor: Tensor, readonly_ok: bool) -> tvm_ffi.Tensor:
    """The tensor's memory as a TVM tensor."""
    module = load("tvm_ffi", "TVM (apache-tvm-ffi)")
    tensor = writable(tensor, "TVM", readonly_ok)
    if tensor.dtype.startswith("complex"):
        raise DtypeError(f"TVM has no {tensor.dtype}; publish another dtype")
    if "tvm" in sys.modules:
        require_row_major(tensor, "TVM")
        require_aligned(tensor, "TVM", ALIGNMENT, "its functions would refuse it")
    # It asks for an old capsule, which cannot say that memory is read-only.
    result: tvm_ffi.Tensor = module.from_dlpack(tensor.unflagged())
    return result
