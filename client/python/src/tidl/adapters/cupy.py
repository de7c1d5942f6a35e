# SPDX-License-Identifier: Apache-2.0
"""CuPy: memory of a GPU only, so nothing that is in host memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Never

from tidl._errors import DeviceError

if TYPE_CHECKING:
    from tidl._tensor import Tensor


def to_cupy(tensor: Tensor) -> Never:
    """Says why there is no CuPy array over host memory."""
    raise DeviceError(
        f"CuPy needs a GPU, and this tensor is on the {tensor.device}: copy it to one with "
        "cupy.asarray(tensor.to_numpy())"
    )
