# SPDX-License-Identifier: Apache-2.0
"""Taichi's own memory, shared where it lies, in one process with two connections.

Runs in the workers of `taichi_families`.
"""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest
from python_brokers import eventually, memfd_inode
from taichi_attached import Footprint, numbered
from taichi_layouts import LAYOUTS, start
from taichi_lifetimes import refused

import tidl
import tidl.taichi
from tidl.taichi import _snodes


def shared(client: tidl.Client, obj: Any, name: str, **options: Any) -> Any:
    """Shares it, and gives the memory as others get it."""
    publication = tidl.taichi.share(obj, name, client=client, **options)
    assert (publication.path, publication.copied) == ("in-place", False)
    with tidl.connect() as other:
        return other.get(name, access="write").to_numpy()


def tree_of(ti: Any, dtype: Any, *shape: int) -> tuple[Any, Any]:
    """A field in a tree of its own, and the tree."""
    field = ti.field(dtype)
    builder = ti.FieldsBuilder()
    builder.dense(ti.axes(*range(len(shape))), shape).place(field)
    return field, builder.finalize()


def incrementing(ti: Any, field: Any) -> Any:
    def increment():
        for index in ti.grouped(field):
            field[index] += 1

    return ti.kernel(increment)


# ---- both sides see writes ----


def case_layouts(ti: Any, name: str) -> None:
    """Of every layout that can be exported: content stays, and writes go both ways."""
    for layout_name, layout in LAYOUTS.items():
        start(ti)
        obj = layout.make(ti)
        before = np.asarray(tidl.taichi.to_dlpack(obj))
        before[...] = numbered(before)
        with tidl.connect() as client:
            theirs = shared(client, obj, f"{name}/{layout_name}")
            assert np.array_equal(theirs, numbered(before)), layout_name
            theirs[...] = numbered(theirs) + 3
            assert np.array_equal(before, numbered(before) + 3), layout_name
            assert np.array_equal(obj.to_numpy().reshape(theirs.shape), theirs), layout_name
            obj.fill(7)
            assert (theirs == 7).all(), layout_name
            assert memfd_inode(before.ctypes.data) == memfd_inode(theirs.ctypes.data) != 0


def case_dtypes(ti: Any, name: str) -> None:
    start(ti)
    with tidl.connect() as client:
        for word in ("f16", "f32", "f64", "i8", "i32", "i64", "u8", "u32"):
            for make in (ti.field, ti.ndarray):
                obj = make(getattr(ti, word), (3000,))
                obj.fill(3)
                theirs = shared(client, obj, f"{name}/{word}", replace=True)
                obj.fill(5)
                assert theirs.sum(dtype="f8") == 15000


def case_kernels_from_before_and_after(ti: Any, name: str) -> None:
    start(ti)
    field, _ = tree_of(ti, ti.i32, 8, 4)
    before = incrementing(ti, field)
    before()
    with tidl.connect() as client:
        theirs = shared(client, field, name)
        before()
        incrementing(ti, field)()
        assert (theirs == 3).all()
        theirs[...] = 10
        before()
        assert (field.to_numpy() == 11).all()


def case_gradients(ti: Any, name: str) -> None:
    start(ti)
    x = ti.field(ti.f32, (4,), needs_grad=True)
    loss = ti.field(ti.f32, (), needs_grad=True)

    def square():
        for i in x:
            loss[None] += x[i] ** 2

    kernel = ti.kernel(square)
    with tidl.connect() as client:
        theirs, gradient = shared(client, x, f"{name}/x"), shared(client, x.grad, f"{name}/grad")
        theirs[:] = 3
        with ti.ad.Tape(loss):
            kernel()
        assert gradient.tolist() == [6] * 4


def writes_lost(ti: Any, name: str, rounds: int, **terms: Any) -> int:
    """A thread launches kernels while the memory is moved there and back. Ends at the first loss
    where there may be one."""
    start(ti)
    field, _ = tree_of(ti, ti.i32, 1 << 15)
    view = np.asarray(tidl.taichi.to_dlpack(field))
    kernel = incrementing(ti, field)
    kernel()
    launches, is_over = 1, threading.Event()

    def launch():
        nonlocal launches
        while not is_over.is_set():
            kernel()
            launches += 1

    thread = threading.Thread(target=launch)
    thread.start()
    try:
        with tidl.connect() as client:
            for _ in range(rounds):
                tidl.taichi.share(field, name, client=client, **terms)
                client.unshare(name)
                # What has missed writes stays behind; one that is under way is no more than one.
                if terms and view.max() - view.min() > 1:
                    break
    finally:
        is_over.set()
        thread.join()
    assert launches > 1
    return int((field.to_numpy() != launches).sum())


def case_no_write_is_lost(ti: Any, name: str) -> None:
    # The forks allocate as Taichi does.
    assert writes_lost(ti, name, 1000 if ti.__name__ == "taichi" else 100) == 0


# ---- recognised ----


def case_shared_once(ti: Any, name: str) -> None:
    """The field again, another one of its tree, and arrays over it: nothing is moved twice."""
    start(ti)
    x, y = ti.field(ti.f32, (100, 30)), ti.field(ti.i32, (200,))
    early = np.asarray(tidl.taichi.to_dlpack(x))
    with tidl.connect() as client:
        first = tidl.taichi.share(x, f"{name}/x", client=client)
        assert first.moved_bytes >= 100 * 30 * 4 + 200 * 4
        others = {
            "again": lambda: tidl.taichi.share(x, f"{name}/again", client=client),
            "y": lambda: tidl.taichi.share(y, f"{name}/y", client=client),
            "published": lambda: client.publish(f"{name}/published", x),
            "view": lambda: client.publish(f"{name}/view", early[1:, ::2]),
        }
        for publish in others.values():
            publication = publish()
            assert (publication.copied, publication.moved_bytes) == (False, 0)
        inodes = set()
        with tidl.connect() as other:
            x[1, 2] = 5
            assert other.get(f"{name}/view").to_numpy()[0, 1] == 5
            for word in others:
                array = other.get(f"{name}/{word}").to_numpy()
                inodes.add(memfd_inode(array.ctypes.data))
        assert inodes == {memfd_inode(early.ctypes.data)}


def case_publish_without_copy(ti: Any, name: str) -> None:
    """`publish(copy=False)` does it, too: of fields, exports and arrays over them."""
    start(ti)
    with tidl.connect() as client:
        makers = {
            "field": lambda field: field,
            "export": tidl.taichi.to_dlpack,
            "array": lambda field: np.asarray(tidl.taichi.to_dlpack(field))[3:],
        }
        for word, make in makers.items():
            field, _ = tree_of(ti, ti.f32, 50, 30)
            publication = client.publish(f"{name}/{word}", make(field), copy=False)
            assert publication.path == "in-place"
            field.fill(4)
            assert (client.get(f"{name}/{word}").to_numpy() == 4).all()
        struct = ti.Struct.field({"a": ti.f32}, shape=(5,))
        with refused(tidl.ArgumentTypeError, "one by one"):
            client.publish(f"{name}/struct", struct, copy=False)


def case_attached_fields_are_what_they_are(ti: Any, name: str) -> None:
    start(ti)
    with tidl.connect() as client:
        view = client.zeros((8, 4)).to_numpy()
        client.publish(name, view)
        field = tidl.taichi.attach_field(client.get(name, access="write"), framework=ti)
        again = tidl.taichi.share(field, f"{name}/again", client=client)
        assert (again.copied, again.moved_bytes) == (False, 0)
        field[1, 1] = 5
        assert client.get(f"{name}/again").to_numpy()[1, 1] == 5


# ---- neighbours ----


def case_neighbours_are_told(ti: Any, name: str) -> None:
    start(ti)
    alone, _ = tree_of(ti, ti.f32, 100)
    x, _ = ti.field(ti.f32, (5, 3)), ti.field(ti.u8, (1000,))
    ndarray = ti.ndarray(ti.f32, (5,))
    with tidl.connect() as client:
        for word, obj in {"alone": alone, "ndarray": ndarray}.items():
            publication = tidl.taichi.share(obj, f"{name}/{word}", client=client, mode=0o644)
            assert publication.neighbour_bytes == 0
        publication = tidl.taichi.share(x, f"{name}/x", client=client)
        assert 1000 <= publication.neighbour_bytes < 1100
        with refused(tidl.AccessError, "other fields lie in the same tree"):
            tidl.taichi.share(x, f"{name}/wide", client=client, mode=0o644)
        tidl.taichi.share(x, f"{name}/wide", client=client, mode=0o644, expose=True)
        assert client.inspect(f"{name}/wide").mode == 0o644


# ---- access ----


def case_live(ti: Any, name: str) -> None:
    """Taichi goes on writing, and nobody else can."""
    start(ti)
    field, _ = tree_of(ti, ti.f32, 100)
    with tidl.connect() as client, tidl.connect() as other:
        tidl.taichi.share(field, name, client=client, access="live")
        theirs = other.get(name)
        with refused(tidl.AccessError, ""):
            other.get(name, access="write")
        field.fill(6)
        assert (theirs.to_numpy() == 6).all()


def case_immutable_is_refused(ti: Any, name: str) -> None:
    start(ti)
    field, _ = tree_of(ti, ti.f32, 100)
    with tidl.connect() as client:
        with refused(tidl.AccessError, "without asking"):
            tidl.taichi.share(field, name, client=client, access="immutable")
        field.fill(6)
        assert client.list(f"{name}*") == []


def case_other_refusals(ti: Any, name: str) -> None:
    start(ti)
    with tidl.connect() as client:
        with refused(tidl.ArgumentTypeError, "no ndarray and no field of Taichi"):
            tidl.taichi.share(np.zeros(3), name, client=client)
        sparse = ti.field(ti.f32)
        builder = ti.FieldsBuilder()
        builder.pointer(ti.i, 4).dense(ti.i, 4).place(sparse)
        builder.finalize()
        with refused(tidl.LayoutError, "pointer"):
            tidl.taichi.share(sparse, name, client=client)
        field, _ = tree_of(ti, ti.f32, 100)
        field.fill(2)
        client.publish(name, np.zeros(3))
        with refused(tidl.ExistsError, "published already"):
            tidl.taichi.share(field, name, client=client)
        assert not memfd_inode(np.asarray(tidl.taichi.to_dlpack(field)).ctypes.data)
        field[1] += 1
        assert field.to_numpy().sum() == 201


# ---- ends ----


def case_unshared(ti: Any, name: str) -> None:
    start(ti)
    for number, obj in enumerate((tree_of(ti, ti.f32, 3000)[0], ti.ndarray(ti.f32, (3000,)))):
        with tidl.connect() as client:
            theirs = shared(client, obj, f"{name}/{number}")
            obj.fill(4)
            client.unshare(f"{name}/{number}")
            obj.fill(5)
            assert (theirs == 4).all()
            theirs[:] = 6
            assert (obj.to_numpy() == 5).all()
            assert not memfd_inode(np.asarray(tidl.taichi.to_dlpack(obj)).ctypes.data)
            theirs = shared(client, obj, f"{name}/{number}")
            assert (theirs == 5).all()
        # The connection is closed: private again, too.
        obj.fill(8)
        assert (theirs == 5).all()


def case_ends_of_taichi(ti: Any, name: str) -> None:
    """Destroyed, reset, initialised again: others keep what there was, and old addresses are left
    alone, whatever comes to lie there."""
    start(ti)
    with tidl.connect() as client:
        for word in ("destroy", "reset", "init"):
            field, tree = tree_of(ti, ti.i32, 1 << 16)
            field.fill(3)
            theirs = shared(client, field, f"{name}/{word}")
            mine = client.get(f"{name}/{word}", access="write").to_numpy()
            end = {"destroy": tree.destroy, "reset": ti.reset, "init": lambda: start(ti)}[word]
            end()
            if word == "reset":
                start(ti)
            del field, tree
            fresh = [tree_of(ti, ti.i32, 1 << 16)[0] for _ in range(3)]
            for other in fresh:
                other.fill(9)
            assert (theirs == 3).all()
            mine[:] = 4
            assert (theirs == 4).all()
            # Whatever lies at the old address is not taken for what was shared there.
            for number, other in enumerate(fresh):
                again = client.publish(f"{name}/{word}/{number}", other)
                assert again.copied
                assert (client.get(f"{name}/{word}/{number}").to_numpy() == 9).all()
            client.remove(f"{name}/{word}")
            for other in fresh:
                assert (other.to_numpy() == 9).all()


def case_an_ndarray_is_kept(ti: Any, name: str) -> None:
    """While it is shared, it lives: its memory could not be given back otherwise."""
    start(ti)
    with tidl.connect() as client:
        ndarray = ti.ndarray(ti.f32, (3000,))
        theirs = shared(client, ndarray, name)
        ndarray.fill(3)
        del ndarray
        gc.collect()
        fresh = ti.ndarray(ti.f32, (3000,))
        fresh.fill(9)
        assert (theirs == 3).all()
        client.unshare(name)
        assert (theirs == 3).all()
        assert (fresh.to_numpy() == 9).all()


def case_a_thousand_rounds(ti: Any, name: str) -> None:
    start(ti)
    ndarray = ti.ndarray(ti.i32, (64, 1024))
    ndarray.fill(1)
    with tidl.connect() as client:
        view = client.zeros((1,)).to_numpy()
        before = None
        for number in range(1000):
            publication = tidl.taichi.share(ndarray, name, client=client)
            assert publication.moved_bytes == 64 * 1024 * 4
            client.unshare(name)
            if number == 99:
                before = Footprint(view)
        assert before is not None
        after = Footprint(view)
        assert after.descriptors <= before.descriptors
        assert after.resident_kib - before.resident_kib < 900 * 256 / 20
        assert client.list(f"{name}*") == []
        assert (ndarray.to_numpy() == 1).all()


def case_rounds_of_trees(ti: Any, name: str) -> None:
    """Shared, destroyed, made anew: what was shared goes when nobody has it any more."""
    start(ti)
    with tidl.connect() as client:
        view = client.zeros((1,)).to_numpy()
        before = None
        for number in range(60):
            field, tree = tree_of(ti, ti.i32, 1 << 18)
            tidl.taichi.share(field, name, client=client)
            del field
            tree.destroy()
            client.remove(name)
            if number == 19:
                before = Footprint(view)
        assert before is not None
        after = Footprint(view)
        assert after.descriptors <= before.descriptors
        assert after.resident_kib - before.resident_kib < 40 * 1024 / 4
        assert eventually(lambda: client.list(f"{name}*") == [])


def case_where_the_tree_is_laid_out_otherwise(ti: Any, name: str) -> None:
    start(ti)
    field, _ = tree_of(ti, ti.f32, 100)
    actual = _snodes.layout_of(field)
    shifted = _snodes.Place(
        actual.tree, actual.offset_bytes + 64, actual.shape, actual.strides_bytes
    )
    with tidl.connect() as client, pytest.MonkeyPatch.context() as patch:
        patch.setattr(_snodes, "layout_of", lambda _field: shifted)
        with refused(tidl.InvalidArgumentError, "otherwise than is known"):
            tidl.taichi.share(field, name, client=client)
