# SPDX-License-Identifier: Apache-2.0
"""What only kernels can do, compiled by each package once.

No `from __future__ import annotations` here: Taichi reads the annotations of kernels as objects.
"""

import functools
from typing import Any

from tidl.adapters._common import load
from tidl.taichi._family import name_of, runtime_of


def address_of(family: str, field: Any) -> int:
    """Address of the element of a placed field that its indices without `offset=` begin with."""
    runtime = runtime_of(family)
    forget_launches(family)
    kept, runtime.grad_replaced = runtime.grad_replaced, True  # gradient tapes leave it out
    try:
        address: int = _address_kernel(family)(field)
    finally:
        runtime.grad_replaced = kept
    return address


def forget_launches(family: str) -> None:
    """Drops what the forks keep of launches.

    When a tree is destroyed they compile kernels anew and still launch the old ones, which ends in
    a failed assertion of theirs, or worse.
    """
    for kernel in runtime_of(family).kernels:
        known = getattr(kernel, "launch_context_buffer_cache", None)
        if known is not None:
            kernel.launch_context_buffer_cache = type(known)()


def flat_index_for(framework: Any) -> Any:
    """`flat_index` for kernels of Taichi or of one of its forks.

    In a kernel, `flat_index(offset, strides, index)` is the place in `Strided.flat` of the element
    at `index`, a vector.

    Args:
        framework: the imported package (`quadrants`), or its name.

    Raises:
        MissingFrameworkError: it is not installed.
        InvalidArgumentError: it is neither Taichi nor a fork of it.
    """
    return _flat_index(name_of(framework))


@functools.cache
def _flat_index(family: str) -> Any:
    package = load(family, family)

    def flat_index(offset, strides, index):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202
        return offset + strides.dot(index)

    return package.func(flat_index)


@functools.cache
def _address_kernel(family: str) -> Any:
    package = load(family, family)

    def address(field: package.template()) -> package.u64:  # type: ignore[valid-type, name-defined]
        return package.get_addr(field, [0 for _ in package.static(range(len(field.shape)))])

    return package.kernel(address)
