# SPDX-License-Identifier: Apache-2.0
"""TensorFlow: row-major memory aligned to 64 bytes; its tensors are not written to; no float8.

It takes unaligned memory without a word, and aborts the process at the first operation on it. So
that is refused before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidl.adapters._common import load, require_aligned, require_dtype, require_row_major

if TYPE_CHECKING:
    import tensorflow

    from tidl._tensor import Tensor

ALIGNMENT = 64

_DTYPES = frozenset(
    {
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
    }
)


def to_tensorflow(tensor: Tensor) -> tensorflow.Tensor:
    """The tensor's memory as an eager TensorFlow tensor."""
    module = load("tensorflow", "TensorFlow")
    require_dtype(tensor, "TensorFlow", _DTYPES)
    require_row_major(tensor, "TensorFlow")
    require_aligned(tensor, "TensorFlow", ALIGNMENT, "its operations would abort the process")
    # It takes old capsules only, which cannot say that memory is read-only.
    capsule = tensor.unflagged().__dlpack__()
    result: tensorflow.Tensor = module.experimental.dlpack.from_dlpack(capsule)
    return result
