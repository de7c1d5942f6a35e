# SPDX-License-Identifier: Apache-2.0
"""What can be published: objects that the extension cannot judge by DLPack alone."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from tidl._errors import LayoutError, UnsupportedError


def publishable(obj: Any) -> Any:
    """The object to hand to the extension for `obj`, or an error that says why there is none.

    Raises:
        UnsupportedError: a mapping: bundles are not built yet.
        LayoutError: a torch tensor whose negation is still pending.
    """
    if isinstance(obj, Mapping):
        raise UnsupportedError(
            "publishing a mapping as a bundle is not built yet; publish its tensors one by one"
        )
    torch_tensor = getattr(sys.modules.get("torch"), "Tensor", ())
    if isinstance(obj, torch_tensor) and obj.is_neg():
        # torch exports such views with the wrong sign, without an error.
        raise LayoutError("the torch tensor has its negation pending; call .resolve_neg() first")
    kind = type(obj)
    if not hasattr(kind, "__dlpack__") and hasattr(kind, "__array_interface__"):
        return _through_numpy(obj)
    return obj


def _through_numpy(obj: Any) -> Any:
    """Objects with nothing but NumPy's interface: NumPy reads it, where there is NumPy."""
    try:
        import numpy
    except ImportError:
        return obj
    return numpy.asarray(obj)
