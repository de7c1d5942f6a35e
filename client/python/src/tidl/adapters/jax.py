# SPDX-License-Identifier: Apache-2.0
"""JAX: permuted memory too, aligned to 64 bytes; read-only by nature; 64-bit types on request.

Where it cannot take the memory, JAX makes a copy: without a word when it is not aligned or has a
64-bit type, even with `copy=False` for the latter. So all of it is checked before, and the address
after.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidl._errors import CopyNeededError, DtypeError, LayoutError
from tidl.adapters._common import load, require_aligned, require_dtype

if TYPE_CHECKING:
    import jax

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
        "float8_e3m4",
        "float8_e4m3",
        "float8_e4m3b11fnuz",
        "float8_e4m3fn",
        "float8_e4m3fnuz",
        "float8_e5m2",
        "float8_e5m2fnuz",
        "float8_e8m0fnu",
    }
)

# What JAX silently turns the wide types into.
_NARROWED = {
    "uint64": "uint32",
    "int64": "int32",
    "float64": "float32",
    "complex128": "complex64",
}


def to_jax(tensor: Tensor) -> jax.Array:
    """The tensor's memory as a JAX array."""
    module = load("jax", "JAX")
    require_dtype(tensor, "JAX", _DTYPES)
    _require_width(module, tensor)
    if tensor.nbytes and tensor.compact_axes is None:
        raise LayoutError(
            f"JAX takes memory without gaps only, in any order of axes, and strides "
            f"{tensor.strides} for shape {tensor.shape} leave gaps, repeat or reverse elements: "
            "take the whole tensor and index it in JAX, or copy it as "
            "jax.numpy.array(tensor.to_numpy())"
        )
    require_aligned(tensor, "JAX", ALIGNMENT, "JAX would copy it")
    # JAX asks for an old capsule, which cannot say that memory is read-only, and never writes.
    result: jax.Array = module.dlpack.from_dlpack(tensor.unflagged(), copy=False)
    _require_same_memory(tensor, result)
    return result


def _require_width(module: Any, tensor: Tensor) -> None:
    narrowed = _NARROWED.get(tensor.dtype)
    if narrowed and not module.config.jax_enable_x64:
        raise DtypeError(
            f"JAX would make a copy in {narrowed} of this {tensor.dtype}: call "
            f'jax.config.update("jax_enable_x64", True) first, or publish it as {narrowed}'
        )


def _require_same_memory(tensor: Tensor, result: Any) -> None:
    if tensor._address is not None and result.unsafe_buffer_pointer() != tensor._address:
        raise CopyNeededError(
            "this version of JAX copied the tensor instead of taking its memory; if a copy will "
            "do, say so with jax.numpy.array(tensor.to_numpy())"
        )
