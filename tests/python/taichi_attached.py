# SPDX-License-Identifier: Apache-2.0
"""Fields over attached tensors, in one process. Runs in the workers of `taichi_families`."""

from __future__ import annotations

import functools
import gc
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from python_brokers import eventually, is_let_go, memfd_inode
from taichi_layouts import start
from taichi_lifetimes import refused

import tidl
import tidl.taichi
from tidl.taichi import _kernels

View = Callable[[tidl.Client], Any]


def empty(*shape: int, dtype: str = "float32") -> View:
    return lambda client: client.empty(shape, dtype=dtype).to_numpy()


# Memory as some framework may have it, and how many of its axes make the elements.
LAYOUTS: dict[str, tuple[View, int]] = {
    "row-major": (empty(8, 4), 0),
    "scalar": (empty(), 0),
    "column-major": (lambda client: empty(4, 8)(client).T, 0),
    "permuted": (lambda client: empty(2, 3, 4, 5)(client).transpose(2, 0, 3, 1), 0),
    "row-padded": (lambda client: empty(8, 6)(client)[:, :4], 0),
    "element-padded": (lambda client: empty(8, 6)(client)[::2, ::3], 0),
    "column-major and padded": (lambda client: empty(6, 8)(client)[1:5, ::2].T, 0),
    "extents of one": (empty(3, 1, 4), 0),
    "on a later page": (lambda client: empty(2000, 3)(client)[1500:], 0),
    "over many pages": (empty(300, 1000), 0),
    "vectors": (empty(50, 7, 3), 1),
    "vectors apart": (lambda client: empty(3, 50, 7)(client).transpose(1, 2, 0), 1),
    "padded vectors": (lambda client: empty(50, 4)(client)[:, :3], 1),
    "matrices": (empty(5, 2, 3), 2),
    "matrices apart": (lambda client: empty(2, 3, 5)(client).transpose(2, 0, 1), 2),
    "planes with gaps": (lambda client: empty(2, 3, 9)(client)[:, :, :5].transpose(2, 0, 1), 2),
    "vector": (empty(3), 1),
}

DTYPES = {
    **{f"float{bits}": f"f{bits}" for bits in (16, 32, 64)},
    **{f"int{bits}": f"i{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"u{bits}" for bits in (8, 16, 32, 64)},
}


@contextmanager
def attached(ti: Any, view: Any, name: str, **options: Any) -> Iterator[tuple[tidl.Client, Any]]:
    """A field over published memory, got by a connection of its own."""
    with tidl.connect() as client:
        tensor = client.get(name, access="write")
        field = tidl.taichi.attach_field(tensor, framework=ti, **options)
        tensor.release()
        assert field.shape == view.shape[: view.ndim - options.get("element_ndim", 0)]
        yield client, field


def numbered(view: Any) -> Any:
    return np.arange(view.size).reshape(view.shape).astype(view.dtype)


def case_layouts(ti: Any, name: str) -> None:
    """Element by element, from both sides."""
    start(ti)
    for number, (make, element_ndim) in enumerate(LAYOUTS.values()):
        with tidl.connect() as owner:
            view = make(owner)
            owner.publish(f"{name}/{number}", view)
            with attached(ti, view, f"{name}/{number}", element_ndim=element_ndim) as (_, field):
                view[...] = numbered(view)
                assert np.array_equal(field.to_numpy(), view)
                field.fill(-1)
                assert (view == -1).all()
                field.from_numpy(numbered(view))
                assert np.array_equal(numbered(view), view)


def case_dtypes(ti: Any, name: str) -> None:
    start(ti)
    for dtype, word in DTYPES.items():
        with tidl.connect() as owner:
            view = owner.full((5, 3), 2, dtype=dtype).to_numpy()
            owner.publish(f"{name}/{dtype}", view)
            with attached(ti, view, f"{name}/{dtype}") as (_, field):
                assert field.dtype == getattr(ti, word)
                field[4, 2] = 7
                assert view[4, 2] == 7
                assert view.sum() == 35


def case_booleans(ti: Any, name: str) -> None:
    start(ti)
    with tidl.connect() as owner:
        view = owner.zeros((5,), dtype="bool").to_numpy()
        owner.publish(name, view)
        with attached(ti, view, name) as (_, field):
            field[3] = 1
            assert view.tolist() == [False, False, False, True, False]


def case_loops(ti: Any, name: str) -> None:
    """The loop of a kernel, compiled after; and elements between the rows stay what they are."""
    start(ti)
    with tidl.connect() as owner:
        whole = owner.full((8, 6), 9).to_numpy()
        owner.publish(name, whole[:, :4])
        with attached(ti, whole[:, :4], name) as (_, field):

            def number():
                for i, j in field:
                    field[i, j] += 10 * i + j

            ti.kernel(number)()
            assert np.array_equal(whole[:, :4] - 9, np.add.outer(np.arange(8) * 10, np.arange(4)))
            assert (whole[:, 4:] == 9).all()


def case_index_offset(ti: Any, name: str) -> None:
    start(ti)
    with tidl.connect() as owner:
        view = owner.zeros((4, 5)).to_numpy()
        owner.publish(name, view)
        with attached(ti, view, name, offset=(-1, 3)) as (_, field):
            field[-1, 3] = 5
            field[2, 7] = 6
            assert (view[0, 0], view[3, 4], view.sum()) == (5, 6, 11)
        row = owner.zeros((5,)).to_numpy()
        owner.publish(f"{name}/row", row)
        with attached(ti, row, f"{name}/row", offset=2) as (_, field):
            field[6] = 7
            assert row.tolist() == [0, 0, 0, 0, 7]


def case_gradients(ti: Any, name: str) -> None:
    start(ti)
    with tidl.connect() as owner:
        view = owner.full((4,), 3).to_numpy()
        owner.publish(name, view)
        with attached(ti, view, name, needs_grad=True) as (_, x):
            loss = ti.field(ti.f32, (), needs_grad=True)

            def square():
                for i in x:
                    loss[None] += x[i] ** 2

            kernel = ti.kernel(square)
            with ti.ad.Tape(loss):
                kernel()
            assert x.grad.to_numpy().tolist() == [6] * 4
            assert view.tolist() == [3] * 4


def case_several_over_one(ti: Any, name: str) -> None:
    start(ti)
    with tidl.connect() as owner:
        view = owner.zeros((6,)).to_numpy()
        owner.publish(name, view)
        with attached(ti, view, name) as (client, first):
            second = tidl.taichi.attach_field(client.get(name, access="write"), framework=ti)
            first[1] = 1
            second[2] = 2
            assert first[2] == 2
            assert view.tolist() == [0, 1, 2, 0, 0, 0]
            tidl.taichi.detach_field(first)
            second[3] = 3
            assert view[3] == 3


def case_own_tensors_too(ti: Any, name: str) -> None:
    """Of one's own, unpublished; and live, if it was attached before."""
    start(ti)
    with tidl.connect() as client:
        tensor = client.zeros((4,))
        field = tidl.taichi.attach_field(tensor, framework=ti)
        client.publish(name, tensor, access="live")
        field[1] = 5
        assert client.get(name).to_numpy().tolist() == [0, 5, 0, 0]
        with refused(tidl.AccessError, "before it is published"):
            tidl.taichi.attach_field(tensor, framework=ti)


# ---- publishing it again ----


def case_recognised(ti: Any, name: str) -> None:
    start(ti)
    with tidl.connect() as owner:
        view = owner.zeros((4, 5)).to_numpy()
        owner.publish(name, view)
        with attached(ti, view, name) as (client, field):
            again = client.publish(f"{name}/again", field)
            assert (again.copied, again.path) == (False, "attached")
            part = np.from_dlpack(tidl.taichi.to_dlpack(field))[1:]
            assert not client.publish(f"{name}/part", part, copy=False).copied
            field[1, 0] = 3
            assert client.get(f"{name}/again").to_numpy()[1, 0] == 3
            assert client.get(f"{name}/part").to_numpy()[0, 0] == 3


def case_exports_outlive_the_field(ti: Any, name: str) -> None:
    start(ti)
    with tidl.connect() as owner:
        view = owner.full((4,), 2).to_numpy()
        owner.publish(name, view)
        with attached(ti, view, name) as (_, field):
            export = tidl.taichi.to_dlpack(field)
            array = np.from_dlpack(export)
            tidl.taichi.detach_field(field)
            ti.reset()
            assert array.tolist() == [2] * 4
            np.from_dlpack(export)[0] = 5
            assert view[0] == 5


# ---- reading ----


def case_reading(ti: Any, name: str) -> None:
    start(ti)
    with tidl.connect() as owner:
        view = owner.full((4,), 2).to_numpy()
        owner.publish(name, view)
        with tidl.connect() as client:
            with refused(tidl.ReadOnlyError, "does not know read-only"):
                tidl.taichi.attach_field(client.get(name), framework=ti)
            tensor = client.get(name)
            field = tidl.taichi.attach_field(tensor, framework=ti, readonly_ok=True)
            assert field[2] == 2
            view[2] = 3
            assert field[2] == 3
            assert not np.asarray(tidl.taichi.to_dlpack(field)).flags.writeable


def case_immutable_is_copied_on_write(ti: Any, name: str) -> None:
    start(ti)
    with tidl.connect() as owner:
        owner.publish(name, np.full(4, 2, np.float32), access="immutable")
        with tidl.connect() as client:
            tensor = client.get(name)
            field = tidl.taichi.attach_field(tensor, framework=ti)
            field[2] = 5
            assert field.to_numpy().tolist() == [2, 2, 5, 2]
            assert tensor.to_numpy().tolist() == [2] * 4
            # What is published of it is what the field has.
            assert np.asarray(tidl.taichi.to_dlpack(field)).tolist() == [2, 2, 5, 2]
            assert client.publish(f"{name}/mine", field).copied
            assert client.get(f"{name}/mine").to_numpy().tolist() == [2, 2, 5, 2]


# ---- how long ----


def case_the_lease_ends_with_the_field(ti: Any, name: str) -> None:
    start(ti)
    with tidl.connect() as owner:
        owner.publish(name, np.zeros(4, np.float32))
        ends: list[Callable[[Any], None]] = [
            tidl.taichi.detach_field,
            lambda _field: ti.reset(),
            lambda _field: start(ti),
        ]
        for end in ends:
            start(ti)
            with tidl.connect() as client:
                tensor = client.get(name, access="write")
                field = tidl.taichi.attach_field(tensor, framework=ti)
                tensor.release()
                client.dispatch()
                assert len(owner.inspect(name).holders) == 1
                end(field)
                del field
                gc.collect()
                assert is_let_go(client, name)


def case_what_nobody_refers_to_stays(ti: Any, name: str) -> None:
    """Kernels have captured it."""
    start(ti)
    with tidl.connect() as owner:
        view = owner.zeros((4,)).to_numpy()
        owner.publish(name, view)
        with tidl.connect() as client:
            kernel = incrementing(ti, client.get(name, access="write"))
            kernel()
            gc.collect()
            kernel()
            assert view.tolist() == [2] * 4
            client.dispatch()
            assert len(owner.inspect(name).holders) == 2


def incrementing(ti: Any, tensor: tidl.Tensor) -> Any:
    x = tidl.taichi.attach_field(tensor, framework=ti)

    def increment():
        for i in x:
            x[i] += 1

    return ti.kernel(increment)


def case_after_the_connection(ti: Any, name: str) -> None:
    start(ti)
    with tidl.connect() as owner:
        view = owner.zeros((4,)).to_numpy()
        owner.publish(name, view)
        with tidl.connect() as client:
            field = tidl.taichi.attach_field(client.get(name, access="write"), framework=ti)
        field[1] = 2
        assert view[1] == 2
        tidl.taichi.detach_field(field)


def case_detached(ti: Any, name: str) -> None:
    start(ti)
    with tidl.connect() as owner:
        view = owner.zeros((4,)).to_numpy()
        owner.publish(name, view)
        with attached(ti, view, name) as (_, field):
            tidl.taichi.detach_field(field)
            for other in (field, ti.field(ti.f32, (4,)), np.zeros(3)):
                with refused(tidl.InvalidArgumentError, "no field of attach_field"):
                    tidl.taichi.detach_field(other)
        ti.reset()
        with refused(tidl.InvalidArgumentError, "no field of attach_field"):
            tidl.taichi.detach_field(field)


def case_other_trees_go_on(ti: Any, name: str) -> None:
    start(ti)
    mine = ti.field(ti.f32, (4,))

    def increment():
        for i in mine:
            mine[i] += 1

    kernel = ti.kernel(increment)
    kernel()
    with tidl.connect() as owner:
        view = owner.zeros((4,)).to_numpy()
        owner.publish(name, view)
        with attached(ti, view, name) as (_, field):
            kernel()
            field.fill(5)
            tidl.taichi.detach_field(field)
            kernel()
    later = ti.field(ti.f32, (4,))
    later.fill(7)
    assert mine.to_numpy().tolist() == [3] * 4
    assert view.tolist() == [5] * 4


def case_many_rounds(ti: Any, name: str) -> None:
    """Many times, and neither memory, descriptors, maps nor leases pile up.

    Kernels are compiled in the first 40 rounds, and come from Taichi's cache in the others.
    """
    with (
        tidl.connect() as owner,
        tidl.connect() as client,
        tempfile.TemporaryDirectory() as folder,
    ):
        begin = functools.partial(start, ti, offline_cache=True, offline_cache_file_path=folder)
        begin()
        view = owner.zeros((64, 1024)).to_numpy()
        owner.publish(name, view)
        before = None
        for number in range(200):
            tensor = client.get(name, access="write")
            field = tidl.taichi.attach_field(tensor, framework=ti)
            field[3, 5] += 1
            tidl.taichi.detach_field(field)
            tensor.release()
            if number % 40 == 39:
                begin()
            if number == 49:
                before = Footprint(view)
        assert view[3, 5] == 200
        assert before is not None
        after = Footprint(view)
        assert after.maps_of_it == before.maps_of_it == 1
        assert after.descriptors <= before.descriptors
        # Taichi itself keeps something of each kernel: less than the field's pages by far.
        assert after.resident_kib - before.resident_kib < 150 * 256 / 4
        client.dispatch()
        assert eventually(lambda: len(owner.inspect(name).holders) == 1)


class Footprint:
    """What this process has of memory and descriptors."""

    def __init__(self, view: Any) -> None:
        inode = memfd_inode(view.ctypes.data)
        with open("/proc/self/maps") as maps:
            self.maps_of_it = sum(f" {inode} " in line for line in maps)
        self.descriptors = len(os.listdir("/proc/self/fd"))
        with open("/proc/self/status") as status:
            fields = dict(line.split(":", 1) for line in status)
        self.resident_kib = int(fields["VmRSS"].split()[0])


# ---- refusals ----


def case_strides_that_no_field_has(ti: Any, name: str) -> None:
    start(ti)
    make = np.lib.stride_tricks.as_strided
    with tidl.connect() as client:
        whole = client.zeros((4, 6)).to_numpy()
        views = {
            "runs back": whole[::-1],
            "repeats": np.broadcast_to(whole[0, :1], (4,)),
            "overlap": make(whole, (3, 4), (4, 4)),
        }
        for text, view in views.items():
            client.publish(f"{name}/{text}", view)
            with refused(tidl.LayoutError, text):
                tidl.taichi.attach_field(client.get(f"{name}/{text}"), framework=ti)
        client.publish(f"{name}/middle", whole.reshape(4, 2, 3).transpose(0, 2, 1))
        for element_ndim, text in [(1, "among those"), (2, "not evenly spaced")]:
            with refused(tidl.LayoutError, text):
                tidl.taichi.attach_field(
                    client.get(f"{name}/middle"), framework=ti, element_ndim=element_ndim
                )
        client.publish(f"{name}/deep", client.zeros((1,) * 13))
        with refused(tidl.LayoutError, "12 dimensions"):
            tidl.taichi.attach_field(client.get(f"{name}/deep"), framework=ti)


def case_other_refusals(ti: Any, name: str) -> None:
    start(ti)
    attach = tidl.taichi.attach_field
    with tidl.connect() as client:
        tensor = client.zeros((4, 3))
        for element_ndim in (-1, 3, "x"):
            with refused(tidl.InvalidArgumentError, "element_ndim is 0, 1 or 2"):
                attach(tensor, element_ndim=element_ndim, framework=ti)
        for offset in ((1,), (1, 2, 3), "ab", (1.0, 2)):
            with refused(tidl.InvalidArgumentError, "one integer for each of the 2 axes"):
                attach(tensor, offset=offset, framework=ti)
        with refused(tidl.InvalidArgumentError, "no elements"):
            attach(client.zeros((4, 0)), framework=ti)
        with refused(tidl.DtypeError, "no bfloat16"):
            attach(client.zeros((4,), dtype="bfloat16"), framework=ti)
        with refused(tidl.DtypeError, "floating point"):
            attach(client.zeros((4,), dtype="int32"), framework=ti, needs_grad=True)
        with refused(tidl.ArgumentTypeError, "ndarray is no tensor of tidl"):
            attach(np.zeros(3), framework=ti)
        with refused(tidl.InvalidArgumentError, "none of taichi"):
            attach(tensor, framework="numpy")
        tensor.release()
        with refused(tidl.ReleasedError, "released"):
            attach(tensor, framework=ti)
        # None of this has left a field that waits to be placed.
        ti.field(ti.f32, (3,)).fill(1)
        ti.reset()
        with refused(tidl.InvalidArgumentError, "init"):
            attach(client.zeros((4,)), framework=ti)


def case_a_layout_that_comes_out_otherwise(ti: Any, name: str) -> None:
    """Should a version of Taichi lay fields out differently, nothing is mapped."""
    start(ti)
    with tidl.connect() as client, pytest.MonkeyPatch.context() as patch:
        tensor = client.zeros((4, 3))
        actual = _kernels.address_of
        patch.setattr(_kernels, "address_of", lambda *words: actual(*words) + 64)
        with refused(tidl.LayoutError, "lays a field"):
            tidl.taichi.attach_field(tensor, framework=ti)
        patch.undo()
        field = tidl.taichi.attach_field(tensor, framework=ti)
        field[1, 1] = 1
        assert tensor.to_numpy()[1, 1] == 1
