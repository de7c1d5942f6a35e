# SPDX-License-Identifier: Apache-2.0
"""Where the elements of a field lie: the walk from its places up to the root of their tree.

Each dense level above a place is a row-major array of cells over the axes it was made with. An axis
that several levels divide has one stride only if the outer level continues where the inner one
ends; blocks of rows and columns (dense in dense over two axes) do not. Nothing here is of Taichi's
own DLPack code, which in the forks is wrong for some of these layouts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tidl._errors import InvalidArgumentError, LayoutError


@dataclass(frozen=True)
class Place:
    """The elements of one scalar in a tree."""

    tree: int
    #: of element 0, from the start of the root
    offset_bytes: int
    shape: tuple[int, ...]
    strides_bytes: tuple[int, ...]


@dataclass
class _Axis:
    """One axis on the way up. `next_bytes` is where an outer level has to continue."""

    stride_bytes: int = 0
    next_bytes: int | None = None


def layout_of(field: Any) -> Place:
    """The layout of a scalar, vector or matrix field, the axes of its elements last.

    Raises:
        LayoutError: it is sparse or bit-packed, or the elements of an axis are not evenly spaced.
        InvalidArgumentError: it is not placed.
    """
    places = [_walk(member) for member in field._get_field_members()]
    first = places[0]
    rows = Place(first.tree, first.offset_bytes, *_in_order_of_use(field, first))
    counts = _element_shape(field)
    if not counts:
        return rows
    steps = _even_steps(places, counts)
    return Place(rows.tree, rows.offset_bytes, rows.shape + counts, rows.strides_bytes + steps)


def tree_of(field: Any) -> int | None:
    """The number of the tree that the field is placed in, None if it is not."""
    place = field._get_field_members()[0].ptr.snode()
    return None if place is None else int(place.get_snode_tree_id())


def root_bytes_of(field: Any) -> int:
    """The size of the whole tree that a placed field lies in."""
    snode = field._get_field_members()[0].ptr.snode()
    while _kind(snode) != "root":
        snode = snode.parent
    return int(snode.cell_size_bytes)


def _walk(member: Any) -> Place:
    """Climbs from one place to its root."""
    place = member.ptr.snode()
    if place is None:
        raise InvalidArgumentError("the field is not placed: give it a shape, or place it")
    offset_bytes = place.offset_bytes_in_parent_cell
    axes: dict[int, _Axis] = {axis: _Axis() for axis in _extents(place)}
    level = place.parent
    while _kind(level) != "root":
        if _kind(level) != "dense":
            raise LayoutError(
                f"the field lies in a {_kind(level)} SNode, and only dense ones have strides: copy "
                "it with to_numpy(), or place it in dense SNodes"
            )
        _add_level(axes, level)
        offset_bytes += level.offset_bytes_in_parent_cell
        level = level.parent
    return Place(
        place.get_snode_tree_id(),
        offset_bytes,
        tuple(_extents(place).values()),
        tuple(axes[axis].stride_bytes for axis in _extents(place)),
    )


def _add_level(axes: dict[int, _Axis], level: Any) -> None:
    outer = _extents(level.parent) if _kind(level.parent) != "root" else {}
    cells = {axis: extent // outer.get(axis, 1) for axis, extent in _extents(level).items()}
    stride_bytes = level.cell_size_bytes
    for axis, count in reversed(cells.items()):
        if count > 1:
            _continue_axis(axes[axis], stride_bytes, count)
        stride_bytes *= count


def _continue_axis(axis: _Axis, stride_bytes: int, count: int) -> None:
    if axis.next_bytes is None:
        axis.stride_bytes = stride_bytes
    elif axis.next_bytes != stride_bytes:
        raise LayoutError(
            "the field is laid out in blocks, which no strides describe: copy it with to_numpy(), "
            "or give each axis to one dense SNode"
        )
    axis.next_bytes = stride_bytes * count


def _extents(snode: Any) -> dict[int, int]:
    """Elements by axis, of all levels down to this one; axes ascend."""
    axes = snode.get_physical_index_position()[: snode.num_active_indices()]
    return {axis: snode.get_shape_along_axis(index) for index, axis in enumerate(axes)}


def _kind(snode: Any) -> str:
    name: str = snode.type.name
    return name


def _in_order_of_use(field: Any, place: Place) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and strides as the field is indexed: quadrants keeps `order=` beside the tree."""
    return in_order_of_use(field, place.shape, place.strides_bytes)


def in_order_of_use(
    owner: Any, shape: Sequence[int], strides: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Undoes the permutation that quadrants notes on fields and ndarrays with an order."""
    order = getattr(owner, "_qd_layout", None)
    if order is None:
        return tuple(shape), tuple(strides)
    physical = [order.index(axis) for axis in range(len(order))]
    rest = range(len(order), len(shape))
    return (
        tuple(shape[k] for k in (*physical, *rest)),
        tuple(strides[k] for k in (*physical, *rest)),
    )


def _element_shape(field: Any) -> tuple[int, ...]:
    rank = getattr(field, "ndim", 0)  # scalar fields have none of this
    return (field.n, field.m)[:rank] if rank else ()


def _even_steps(places: Sequence[Place], counts: tuple[int, ...]) -> tuple[int, ...]:
    """Bytes from one component to the next, along each axis of the elements."""
    first = places[0]
    columns = counts[1] if len(counts) > 1 else 1
    offsets = [place.offset_bytes - first.offset_bytes for place in places]
    down = offsets[columns] if counts[0] > 1 else 0
    right = offsets[1] if columns > 1 else 0
    even = [row * down + column * right for row in range(counts[0]) for column in range(columns)]
    alike = all(
        (place.tree, place.shape, place.strides_bytes)
        == (first.tree, first.shape, first.strides_bytes)
        for place in places
    )
    if not alike or offsets != even:
        raise LayoutError(
            "the components of the field's elements are not evenly spaced in one tree: export them "
            "one by one, as get_scalar_field(i)"
        )
    return (down, right)[: len(counts)]
