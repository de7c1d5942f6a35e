# SPDX-License-Identifier: Apache-2.0
"""What the adapters share: late imports and the rules for read-only memory."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tidl._errors import LayoutError, MissingFrameworkError, ReadOnlyError

if TYPE_CHECKING:
    from tidl._tensor import Tensor


def load(module: str, title: str) -> Any:
    """Imports a framework.

    Raises:
        MissingFrameworkError: it is not installed, or does not start here.
    """
    try:
        return importlib.import_module(module)
    except (ImportError, OSError) as error:
        raise MissingFrameworkError(
            f"{title} cannot be imported ({error}); install it in this environment"
        ) from error


def require_writable(tensor: Tensor, title: str, readonly_ok: bool) -> None:
    """Refuses to hand read-only memory to a framework that would crash on its first write."""
    if tensor.readonly and not readonly_ok:
        raise ReadOnlyError(
            f"the tensor was attached for reading and {title} does not know read-only memory: get "
            'it with access="write" or access="copy_on_write", or pass readonly_ok=True and never '
            "write to it"
        )


def require_no_negative_strides(tensor: Tensor, title: str) -> None:
    """Refuses reversed axes to a framework that cannot have them. Extents below 2 do not count."""
    pairs = zip(tensor.shape, tensor.strides, strict=True)
    if tensor.nbytes and any(extent > 1 and stride < 0 for extent, stride in pairs):
        raise LayoutError(
            f"{title} has no negative strides, and this tensor's are {tensor.strides}: take it as "
            "to_numpy(), or publish it without reversed axes"
        )
