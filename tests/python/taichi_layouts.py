# SPDX-License-Identifier: Apache-2.0
"""Fields of every layout, checked element by element through Taichi's own indexing.

Runs in the workers of `taichi_families`. Strides are in elements and speak of what Taichi does, not
of what the package computes: they were read off addresses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import tidl
import tidl.taichi


@dataclass(frozen=True)
class Layout:
    """A way to make a field, and where its elements must lie."""

    make: Callable[[Any], Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str = "float32"
    origin: tuple[int, ...] = ()


def in_dense(ti: Any, place: Callable[[Any, Any], Any], *fields: Any) -> Any:
    """Places fields in a tree of their own. Returns the first."""
    builder = ti.FieldsBuilder()
    place(builder, *fields)
    builder.finalize()
    return fields[0]


def rows_then_columns(ti: Any) -> Any:
    return in_dense(ti, lambda b, x: b.dense(ti.i, 5).dense(ti.j, 3).place(x), ti.field(ti.f32))


def columns_then_rows(ti: Any) -> Any:
    return in_dense(ti, lambda b, x: b.dense(ti.j, 3).dense(ti.i, 5).place(x), ti.field(ti.f32))


def two_in_one(ti: Any) -> tuple[Any, Any]:
    narrow, wide = ti.field(ti.f32), ti.field(ti.f64)
    in_dense(ti, lambda b, x, y: b.dense(ti.ij, (5, 3)).place(x, y), narrow, wide)
    return narrow, wide


def divided_axis(ti: Any) -> Any:
    return in_dense(ti, lambda b, x: b.dense(ti.i, 2).dense(ti.i, 4).place(x), ti.field(ti.f32))


def only_j(ti: Any) -> Any:
    return in_dense(ti, lambda b, x: b.dense(ti.j, 6).place(x), ti.field(ti.i32))


def padded_rows(ti: Any) -> Any:
    def place(builder: Any, field: Any, pad: Any) -> None:
        row = builder.dense(ti.i, 5)
        row.dense(ti.j, 3).place(field)
        row.place(pad)

    return in_dense(ti, place, ti.field(ti.f32), ti.field(ti.f32))


def beside_sparse(ti: Any) -> Any:
    def place(builder: Any, field: Any, sparse: Any) -> None:
        builder.pointer(ti.i, 4).dense(ti.i, 4).place(sparse)
        builder.dense(ti.ij, (5, 3)).place(field)

    return in_dense(ti, place, ti.field(ti.f32), ti.field(ti.f32))


def lazy_gradient(ti: Any) -> Any:
    def place(builder: Any, field: Any) -> None:
        builder.dense(ti.ij, (5, 3)).place(field)
        builder.lazy_grad()

    return in_dense(ti, place, ti.field(ti.f32, needs_grad=True))


def single_rows(ti: Any) -> Any:
    return in_dense(
        ti, lambda b, x: b.dense(ti.ij, (1, 3)).dense(ti.ij, (5, 1)).place(x), ti.field(ti.f32)
    )


def second_of_implicit_root(ti: Any) -> Any:
    ti.field(ti.u8, (7,))
    return ti.field(ti.f32, (5, 3))


def struct_member(ti: Any) -> Any:
    return ti.Struct.field({"a": ti.f32, "b": ti.f64}, shape=(5,)).b


def vector_in_struct(ti: Any) -> Any:
    vector = ti.types.vector(3, ti.f32)
    return ti.Struct.field({"a": ti.f64, "b": vector}, shape=(5,)).b


VECTOR, MATRIX = (5, 3, 3), (4, 2, 3)
LAYOUTS = {
    "rows_by_columns": Layout(lambda ti: ti.field(ti.f32, (5, 3)), (5, 3), (3, 1)),
    "order_ji": Layout(lambda ti: ti.field(ti.f32, (5, 3), order="ji"), (5, 3), (1, 5)),
    "order_kji": Layout(
        lambda ti: ti.field(ti.u8, (2, 3, 4), order="kji"), (2, 3, 4), (1, 2, 6), "uint8"
    ),
    "order_jki": Layout(
        lambda ti: ti.field(ti.i64, (2, 3, 4), order="jki"), (2, 3, 4), (1, 8, 2), "int64"
    ),
    "rows_then_columns": Layout(rows_then_columns, (5, 3), (3, 1)),
    "columns_then_rows": Layout(columns_then_rows, (5, 3), (1, 5)),
    "no_axes": Layout(lambda ti: ti.field(ti.i64, ()), (), (), "int64"),
    "one_element": Layout(lambda ti: ti.field(ti.f32, (1, 1)), (1, 1), (0, 0)),
    "first_of_two_in_one": Layout(lambda ti: two_in_one(ti)[0], (5, 3), (12, 4)),
    "second_of_two_in_one": Layout(lambda ti: two_in_one(ti)[1], (5, 3), (6, 2), "float64"),
    "divided_axis": Layout(divided_axis, (8,), (1,)),
    "only_j": Layout(only_j, (6,), (1,), "int32"),
    "blocks_in_a_row": Layout(single_rows, (5, 3), (1, 5)),
    "padded_rows": Layout(padded_rows, (5, 3), (4, 1)),
    "beside_sparse": Layout(beside_sparse, (5, 3), (3, 1)),
    "second_of_implicit_root": Layout(second_of_implicit_root, (5, 3), (3, 1)),
    "offset": Layout(
        lambda ti: ti.field(ti.f32, (5, 3), offset=(-2, 7)), (5, 3), (3, 1), origin=(-2, 7)
    ),
    "needs_grad": Layout(lambda ti: ti.field(ti.f32, (5, 3), needs_grad=True), (5, 3), (3, 1)),
    "gradient": Layout(lambda ti: ti.field(ti.f32, (5, 3), needs_grad=True).grad, (5, 3), (3, 1)),
    "lazy_grad": Layout(lazy_gradient, (5, 3), (6, 2)),
    "vector": Layout(lambda ti: ti.Vector.field(3, ti.f32, (5, 3)), VECTOR, (9, 3, 1)),
    "vector_soa": Layout(
        lambda ti: ti.Vector.field(3, ti.f32, (5, 3), layout=ti.Layout.SOA), VECTOR, (3, 1, 15)
    ),
    "vector_order_ji": Layout(
        lambda ti: ti.Vector.field(3, ti.f32, (5, 3), order="ji"), VECTOR, (3, 15, 1)
    ),
    "vector_offset": Layout(
        lambda ti: ti.Vector.field(2, ti.f64, (4,), offset=(3,)),
        (4, 2),
        (2, 1),
        "float64",
        origin=(3,),
    ),
    "vector_alone": Layout(lambda ti: ti.Vector.field(3, ti.f32, ()), (3,), (1,)),
    "matrix": Layout(lambda ti: ti.Matrix.field(2, 3, ti.f32, (4,)), MATRIX, (6, 3, 1)),
    "matrix_soa": Layout(
        lambda ti: ti.Matrix.field(2, 3, ti.f32, (4,), layout=ti.Layout.SOA), MATRIX, (1, 12, 4)
    ),
    "matrix_of_one_column": Layout(
        lambda ti: ti.Matrix.field(3, 1, ti.f32, (4,)), (4, 3, 1), (3, 1, 0)
    ),
    "struct_member": Layout(struct_member, (5,), (2,), "float64"),
    "vector_in_struct": Layout(vector_in_struct, (5, 3), (6, 1)),
    "half": Layout(lambda ti: ti.field(ti.f16, (5, 3)), (5, 3), (3, 1), "float16"),
    "ndarray": Layout(lambda ti: ti.ndarray(ti.f32, (5, 3)), (5, 3), (3, 1)),
    "ndarray_vector": Layout(
        lambda ti: ti.Vector.ndarray(3, ti.f64, (5, 3)), VECTOR, (9, 3, 1), "float64"
    ),
    "ndarray_matrix": Layout(
        lambda ti: ti.Matrix.ndarray(2, 3, ti.i16, (4,)), MATRIX, (6, 3, 1), "int16"
    ),
    "ndarray_alone": Layout(lambda ti: ti.ndarray(ti.f32, (1,)), (1,), (1,)),
}


def start(ti: Any, **options: Any) -> None:
    options = {"offline_cache": False} | options
    ti.init(arch=ti.cpu, log_level=ti.ERROR, **options)


def write(ti: Any, field: Any, index: tuple[int, ...], values: Any) -> None:
    """One element by Taichi's indexing."""
    make = {0: lambda value: value.item(), 1: ti.Vector, 2: ti.Matrix}[values.ndim]
    field[index or None] = make(values.tolist() if values.ndim else values)


def read(field: Any, index: tuple[int, ...]) -> Any:
    element = field[index or None]
    return element.to_numpy() if hasattr(element, "to_numpy") else np.array(element)


def check(ti: Any, name: str) -> None:
    """Both sides write every element, and the other reads it."""
    layout = LAYOUTS[name]
    start(ti)
    field = layout.make(ti)
    export = tidl.taichi.to_dlpack(field)
    assert (export.shape, export.dtype) == (layout.shape, layout.dtype)
    steps = zip(layout.shape, export.strides, layout.strides, strict=True)
    assert all(extent < 2 or step == expected for extent, step, expected in steps), export
    array, imported = np.asarray(export), np.from_dlpack(export)
    assert imported.__array_interface__["data"][0] == array.__array_interface__["data"][0]
    assert imported.shape == array.shape
    assert np.squeeze(imported).strides == np.squeeze(array).strides  # of extents over 1
    axes = len(layout.shape) - len(field.shape)
    indices = list(np.ndindex(layout.shape[: len(layout.shape) - axes]))
    origin = layout.origin or (0,) * len(indices[0])
    # Whole numbers that also float16 and uint8 have.
    numbers = np.arange(array.size, dtype=layout.dtype).reshape(array.shape) + 1
    for index in indices:
        place = tuple(np.add(index, origin).tolist())
        write(ti, field, place, numbers[index])
    assert np.array_equal(array, numbers)
    numbers = numbers[..., ::-1] + 50 if numbers.ndim else numbers + 50
    array[...] = numbers
    for index in indices:
        place = tuple(np.add(index, origin).tolist())
        assert np.array_equal(read(field, place), numbers[index]), index


def check_neighbours(ti: Any) -> None:
    """Writing one member of a tree leaves the others as they are."""
    start(ti)
    narrow, wide = two_in_one(ti)
    np.asarray(tidl.taichi.to_dlpack(wide))[...] = 7
    assert not narrow.to_numpy().any()
    np.asarray(tidl.taichi.to_dlpack(narrow))[...] = 9
    assert (wide.to_numpy() == 7).all()


# ---- layouts without strides ----


def blocks(ti: Any) -> Any:
    return in_dense(
        ti,
        lambda b, x: b.dense(ti.ij, (2, 2)).dense(ti.ij, (4, 2)).place(x),
        ti.field(ti.f32),
    )


def alternating_axes(ti: Any) -> Any:
    return in_dense(
        ti,
        lambda b, x: b.dense(ti.i, 2).dense(ti.j, 3).dense(ti.i, 4).place(x),
        ti.field(ti.f32),
    )


def bitmasked(ti: Any) -> Any:
    return in_dense(ti, lambda b, x: b.bitmasked(ti.ij, (4, 4)).place(x), ti.field(ti.f32))


def pointer(ti: Any) -> Any:
    return in_dense(ti, lambda b, x: b.pointer(ti.i, 4).dense(ti.i, 4).place(x), ti.field(ti.f32))


def dynamic(ti: Any) -> Any:
    return in_dense(ti, lambda b, x: b.dynamic(ti.i, 16).place(x), ti.field(ti.i32))


def bits(ti: Any) -> Any:
    narrow = ti.types.quant.int(5, True)
    pack = ti.BitpackedFields(max_num_bits=32)
    field = ti.field(narrow)
    pack.place(field)
    return in_dense(ti, lambda b, _x: b.dense(ti.i, 4).place(pack), field)


def scattered_components(ti: Any) -> Any:
    field = ti.Vector.field(2, ti.f32)
    for k in range(2):
        in_dense(ti, lambda b, x: b.dense(ti.i, 4).place(x), field.get_scalar_field(k))
    return field


def uneven_components(ti: Any) -> Any:
    field = ti.Vector.field(3, ti.f32)
    builder = ti.FieldsBuilder()
    for k, extent in enumerate((4, 4, 4)):
        builder.dense(ti.i, extent).place(field.get_scalar_field(k))
        if k == 0:
            builder.dense(ti.i, 5).place(ti.field(ti.f32))
    builder.finalize()
    return field


REFUSED = {
    "blocks": (blocks, "blocks"),
    "alternating_axes": (alternating_axes, "blocks"),
    "bitmasked": (bitmasked, "bitmasked"),
    "pointer": (pointer, "pointer"),
    "dynamic": (dynamic, "dynamic"),
    "bits": (bits, "bit_struct"),
    "scattered_components": (scattered_components, "one by one"),
    "uneven_components": (uneven_components, "one by one"),
}


def check_refused(ti: Any, name: str) -> None:
    make, text = REFUSED[name]
    start(ti)
    with pytest.raises(tidl.LayoutError, match=text) as caught:
        tidl.taichi.to_dlpack(make(ti))
    assert caught.value.code == "LAYOUT"
