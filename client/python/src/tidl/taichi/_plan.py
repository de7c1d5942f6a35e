# SPDX-License-Identifier: Apache-2.0
"""Which SNodes make a field's elements lie where a tensor's do. The reverse of `_snodes`.

Axes become dense SNodes, from the one with the largest stride to that with the smallest. Where a
stride is larger than what it steps over, the rest of the cell is padding: a field that nobody uses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidl._errors import LayoutError

MAX_AXES = 12


@dataclass(frozen=True)
class Level:
    """One dense SNode. Sizes in elements of the tensor."""

    axes: tuple[int, ...]
    counts: tuple[int, ...]
    #: behind what a cell holds
    pad: int


@dataclass(frozen=True)
class Plan:
    """A tree. Sizes in elements of the tensor."""

    #: outermost first
    levels: tuple[Level, ...]
    #: numbers in an element: of a vector, of a matrix; 1 for scalars
    components: int
    #: from the elements' first numbers to all their second ones; None: numbers lie side by side
    plane_pad: int | None


def plan(shape: Sequence[int], strides: Sequence[int], element_ndim: int) -> Plan:
    """The tree for a tensor's shape and strides in elements.

    Args:
        shape: extents.
        strides: steps in elements.
        element_ndim: how many of the last axes are those of vectors (1) or matrices (2).

    Raises:
        LayoutError: there is none.
    """
    split = len(shape) - element_ndim
    _refuse_strides(shape, strides)
    if split > MAX_AXES:
        raise LayoutError(
            f"Taichi has at most {MAX_AXES} dimensions and the field would have {split}; reshape "
            "the tensor"
        )
    components, step = _components(shape[split:], strides[split:])
    is_apart = components > 1 and step > 1
    levels, span = _levels(shape[:split], strides[:split], 1 if is_apart else components)
    if not is_apart:
        return Plan(levels, components, None)
    if step < span:
        raise LayoutError(
            f"numbers of one element lie {step} elements apart, among those of other elements: "
            "attach it without element_ndim, as a field of scalars"
        )
    return Plan(levels, components, step - span)


def _refuse_strides(shape: Sequence[int], strides: Sequence[int]) -> None:
    for extent, stride in zip(shape, strides, strict=True):
        if extent > 1 and stride <= 0:
            raise LayoutError(
                f"an axis of the tensor {'repeats its elements' if stride == 0 else 'runs back'} "
                f"(stride {stride}), and no field does: attach the memory under it, or hand it to "
                "kernels by tidl.taichi.strided()"
            )


def _components(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, int]:
    """How many numbers an element has, and the step from one to the next."""
    count, step, expected = 1, 1, None
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent == 1:
            continue
        if expected is None:
            step = stride
        elif stride != expected:
            raise LayoutError(
                "the numbers of the elements are not evenly spaced, row by row: attach it without "
                "element_ndim, as a field of scalars"
            )
        count *= extent
        expected = stride * extent
    return count, step


def _levels(
    shape: Sequence[int], strides: Sequence[int], held: int
) -> tuple[tuple[Level, ...], int]:
    """The dense SNodes over cells of `held` elements, and how many elements they span."""
    order = sorted(range(len(shape)), key=lambda axis: (shape[axis] > 1) * strides[axis])
    levels: list[Level] = []
    for axis in order:
        count = shape[axis]
        stride = strides[axis] if count > 1 else held
        if stride < held:
            raise LayoutError(
                f"axis {axis} of the tensor steps {stride} elements, into what the axes below it "
                "hold: elements would overlap, which no field's do"
            )
        _add_axis(levels, axis, count, stride - held)
        held = stride * count
    return tuple(reversed(levels)), held


def _add_axis(levels: list[Level], axis: int, count: int, pad: int) -> None:
    """One SNode more around the others, or one axis more in the outermost."""
    # Within one SNode axes ascend and rows lie close. Taichi runs over one SNode faster than over
    # several.
    if levels and pad == 0 and axis < levels[-1].axes[0]:
        inner = levels.pop()
        levels.append(Level((axis, *inner.axes), (count, *inner.counts), inner.pad))
    else:
        levels.append(Level((axis,), (count,), pad))
