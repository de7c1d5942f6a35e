# SPDX-License-Identifier: Apache-2.0
"""What the adapters share: late imports, and the rules that several frameworks have."""

from __future__ import annotations

import importlib
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from tidl._errors import DtypeError, LayoutError, MissingFrameworkError, ReadOnlyError

if TYPE_CHECKING:
    from tidl._tensor import Tensor


def load(module: str, title: str, hint: str = "install it in this environment") -> Any:
    """Imports a framework.

    Raises:
        MissingFrameworkError: it is not installed, or does not start here.
    """
    try:
        return importlib.import_module(module)
    # AttributeError: an old framework over a NumPy that dropped what it uses.
    except (ImportError, OSError, AttributeError) as error:
        raise MissingFrameworkError(f"{title} cannot be imported ({error}); {hint}") from error


def writable(tensor: Tensor, title: str, readonly_ok: bool) -> Tensor:
    """The tensor for a framework that would crash on its first write to read-only memory.

    What is immutable is mapped copy-on-write for it: nobody could tell the difference before it
    writes, and what it writes stays in this process.

    Raises:
        ReadOnlyError: others may write the memory, so private pages would no longer follow it.
    """
    if not tensor.readonly or readonly_ok:
        return tensor
    if tensor.published_as == "immutable":
        return tensor._copy_on_write()
    raise ReadOnlyError(
        f"the tensor was attached for reading and {title} does not know read-only memory: get "
        'it with access="write" or access="copy_on_write", or pass readonly_ok=True and never '
        "write to it"
    )


def require_dtype(tensor: Tensor, title: str, known: Collection[str]) -> None:
    """Refuses data types that the framework does not have."""
    if tensor.dtype not in known:
        raise DtypeError(f"{title} has no {tensor.dtype}; publish another dtype")


def require_no_negative_strides(tensor: Tensor, title: str) -> None:
    """Refuses reversed axes to a framework that cannot have them. Extents below 2 do not count."""
    pairs = zip(tensor.shape, tensor.strides, strict=True)
    if tensor.nbytes and any(extent > 1 and stride < 0 for extent, stride in pairs):
        raise LayoutError(
            f"{title} has no negative strides, and this tensor's are {tensor.strides}: take it as "
            "to_numpy(), or publish it without reversed axes"
        )


def is_row_major(tensor: Tensor) -> bool:
    """Whether the elements lie one after the other, the last axis fastest."""
    expected = 1
    for extent, stride in zip(reversed(tensor.shape), reversed(tensor.strides), strict=True):
        if extent > 1 and stride != expected:
            return tensor.nbytes == 0
        expected *= extent
    return True


def require_row_major(tensor: Tensor, title: str) -> None:
    """Refuses strides to a framework that has none."""
    if not is_row_major(tensor):
        raise LayoutError(
            f"{title} takes row-major memory only, and this tensor has strides {tensor.strides} "
            f"for shape {tensor.shape}: take the whole tensor and make the view in {title}, or "
            "copy it as numpy.ascontiguousarray(tensor.to_numpy())"
        )


def require_aligned(tensor: Tensor, title: str, alignment: int, otherwise: str) -> None:
    """Refuses memory that begins where the framework's vector instructions may not read."""
    beyond = (tensor._address or 0) % alignment
    if beyond:
        raise LayoutError(
            f"{title} needs memory that begins on a multiple of {alignment} bytes, and this tensor "
            f"begins {beyond} bytes after one ({otherwise}): take the whole tensor and make the "
            f"view in {title}, or copy it as tensor.to_numpy().copy()"
        )
