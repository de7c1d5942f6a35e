# SPDX-License-Identifier: Apache-2.0
"""Arithmetic of shapes and strides in elements, whoever they came from."""

from __future__ import annotations

from collections.abc import Sequence


def compact_axes(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...] | None:
    """The axes in the order in which they lie in memory, slowest first.

    Returns:
        None if no order makes the tensor row-major: it has gaps, negative or zero strides.
    """
    axes = sorted(range(len(shape)), key=lambda axis: (-strides[axis], axis))
    expected = 1
    for axis in reversed(axes):
        if shape[axis] > 1 and strides[axis] != expected:
            return None
        expected *= shape[axis]
    return tuple(axes)
