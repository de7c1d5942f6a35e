# SPDX-License-Identifier: Apache-2.0
"""NumPy: any strides, up to 64 dimensions, honours read-only memory; no bfloat16, no float8.

The array is made from the buffer and not by `numpy.from_dlpack`, which before NumPy 2.1 makes
everything read-only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidl._errors import DtypeError
from tidl.adapters._common import load

if TYPE_CHECKING:
    import numpy.typing

    from tidl._tensor import Tensor


def to_numpy(tensor: Tensor) -> numpy.typing.NDArray[Any]:
    """The tensor's memory as a NumPy array."""
    module = load("numpy", "NumPy")
    try:
        view = memoryview(tensor)
    except DtypeError as error:
        raise DtypeError(f"NumPy has no {tensor.dtype}; use to_torch() or to_paddle()") from error
    array: numpy.typing.NDArray[Any] = module.asarray(view)
    return array
