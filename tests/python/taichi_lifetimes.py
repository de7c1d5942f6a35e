# SPDX-License-Identifier: Apache-2.0
"""How long exported memory lives, and what is refused. Runs in the workers of `taichi_families`."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from fake_dlpack import Consumer
from taichi_layouts import start

import tidl
import tidl.taichi
from tidl.taichi import _family


@contextmanager
def refused(error: type[tidl.Error], text: str) -> Iterator[None]:
    with pytest.raises(error, match=text) as caught:
        yield
    assert caught.value.code == error.code


# ---- what an export is ----


def case_export_describes_itself(ti: Any) -> None:
    start(ti)
    export = tidl.taichi.to_dlpack(ti.field(ti.f32, (5, 3), order="ji"))
    assert repr(export) == (
        f"<tidl.taichi.Export of {ti.__name__}: shape (5, 3), strides (1, 5), float32>"
    )
    assert export.__dlpack_device__() == (1, 0)
    assert np.asarray(export).ctypes.data == np.from_dlpack(export).ctypes.data


def case_capsules_of_both_kinds(ti: Any) -> None:
    start(ti)
    field = ti.field(ti.f32, (5, 3), order="ji")
    export = tidl.taichi.to_dlpack(field)
    for request, name in [({}, b"dltensor"), ({"max_version": (1, 3)}, b"dltensor_versioned")]:
        consumer = Consumer(export.__dlpack__(**request))
        assert (consumer.name, consumer.shape, consumer.strides) == (name, (5, 3), (1, 5))
        assert consumer.dtype == (2, 32, 1)
    assert Consumer(export.__dlpack__(max_version=(1, 3))).flags == 0  # not read-only
    assert Consumer(export.__dlpack__(stream=None)).name == b"dltensor"
    with pytest.raises(ValueError, match="no streams"):
        export.__dlpack__(stream=2)
    with pytest.raises(BufferError):
        export.__dlpack__(max_version=(1, 3), dl_device=(2, 0))
    copied = np.from_dlpack(export, copy=True)
    copied[0, 0] = 5
    assert field[0, 0] == 0


def case_torch_and_paddle_take_it(ti: Any) -> None:
    torch = pytest.importorskip("torch")
    paddle = pytest.importorskip("paddle")
    start(ti)
    field = ti.Vector.field(3, ti.f32, (5,), layout=ti.Layout.SOA)
    export = tidl.taichi.to_dlpack(field)
    torch.from_dlpack(export)[2, 1] = 7
    assert field[2][1] == 7
    torch.utils.dlpack.from_dlpack(export.__dlpack__())[2, 1] = 8
    assert field[2][1] == 8
    assert paddle.utils.dlpack.from_dlpack(export)[2, 1].item() == 8


def case_kernels_see_writes_and_are_seen(ti: Any) -> None:
    start(ti)
    field = ti.field(ti.f32, (5, 3))
    array = np.asarray(tidl.taichi.to_dlpack(field))
    field.fill(2)
    assert (array == 2).all()
    array += 1
    assert field.to_numpy().sum() == 45


def case_before_the_first_kernel(ti: Any) -> None:
    start(ti)
    field = ti.field(ti.f32, (5, 3))
    array = np.asarray(tidl.taichi.to_dlpack(field))  # lays it out
    later = ti.field(ti.f32, (5, 3))
    field[4, 2], later[4, 2] = 3, 4
    assert (array[4, 2], np.asarray(tidl.taichi.to_dlpack(later))[4, 2]) == (3, 4)


def case_debug_mode(ti: Any) -> None:
    start(ti, debug=True)
    field = ti.field(ti.f32, (5, 3), offset=(1, 1))
    np.asarray(tidl.taichi.to_dlpack(field))[0, 0] = 5
    assert field[1, 1] == 5


def case_gradient_tapes_leave_exports_out(ti: Any) -> None:
    start(ti)
    x = ti.field(ti.f32, (4,), needs_grad=True)
    loss = ti.field(ti.f32, (), needs_grad=True)

    def square():
        for i in x:
            loss[None] += x[i] ** 2

    kernel = ti.kernel(square)
    x.fill(3)
    with ti.ad.Tape(loss):
        tidl.taichi.to_dlpack(x)
        kernel()
        tidl.taichi.to_dlpack(x)
    assert np.asarray(tidl.taichi.to_dlpack(x.grad)).tolist() == [6] * 4


def case_forward_mode_leaves_exports_out(ti: Any) -> None:
    start(ti)
    x = ti.field(ti.f32, (4,), needs_dual=True)
    loss = ti.field(ti.f32, (), needs_dual=True)

    def square():
        for i in x:
            loss[None] += x[i] ** 2

    kernel = ti.kernel(square)
    x.fill(3)
    with ti.ad.FwdMode(loss=loss, param=x, seed=[1, 0, 0, 0]):
        tidl.taichi.to_dlpack(x)
        kernel()
    assert loss.dual[None] == 6


# ---- lifetimes ----


def case_an_ndarray_lives_as_long_as_its_exports(ti: Any) -> None:
    start(ti)
    gc.disable()  # nothing may hang in a cycle
    try:
        ndarray = ti.ndarray(ti.f32, (1000,))
        gone = weakref.ref(ndarray)
        export = tidl.taichi.to_dlpack(ndarray)
        ndarray.fill(3)
        del ndarray
        array = np.asarray(export)
        capsule = export.__dlpack__()
        del export
        assert array.sum() == 3000
        array[:] = 4
        del array
        assert gone() is not None
        del capsule
        assert gone() is None
    finally:
        gc.enable()


def case_many_exports_leave_nothing(ti: Any) -> None:
    start(ti)
    field = ti.field(ti.f32, (5, 3))
    before = [weakref.ref(np.asarray(tidl.taichi.to_dlpack(field))) for _ in range(100)]
    assert not any(array() is not None for array in before)
    ndarrays = [ti.ndarray(ti.f32, (4,)) for _ in range(100)]
    gone = [weakref.ref(ndarray) for ndarray in ndarrays]
    exports = [tidl.taichi.to_dlpack(ndarray) for ndarray in ndarrays]
    del ndarrays
    exports.clear()
    assert not any(ndarray() is not None for ndarray in gone)


def case_reset_ends_exports(ti: Any) -> None:
    start(ti)
    exports = [
        tidl.taichi.to_dlpack(ti.field(ti.f32, (5, 3))),
        tidl.taichi.to_dlpack(ti.ndarray(ti.f32, (5, 3))),
    ]
    for end in (ti.reset, lambda: start(ti)):
        end()
        for export in exports:
            for use in (export.__dlpack__, lambda export=export: np.asarray(export)):
                with refused(tidl.ReleasedError, "initialised again"):
                    use()
            assert export.shape == (5, 3)  # what was known stays known


def case_objects_of_before_a_reset_go_without_harm(ti: Any) -> None:
    start(ti)
    ndarray = ti.ndarray(ti.f32, (5,))
    export = tidl.taichi.to_dlpack(ndarray)
    start(ti)
    fresh = ti.ndarray(ti.f32, (5,))
    del ndarray, export
    gc.collect()
    np.asarray(tidl.taichi.to_dlpack(fresh))[:] = 3
    assert fresh.to_numpy().sum() == 15


def case_other_trees_outlive_a_destroyed_one(ti: Any) -> None:
    start(ti)
    trees, arrays = [], []
    for _ in range(3):
        field = ti.field(ti.f32)
        builder = ti.FieldsBuilder()
        builder.dense(ti.i, 8).place(field)
        trees.append(builder.finalize())
        arrays.append(np.asarray(tidl.taichi.to_dlpack(field)))
    del arrays[1]
    trees[1].destroy()
    for array in arrays:
        array[:] = 2
    assert sum(array.sum() for array in arrays) == 32


# ---- refusals ----


def case_reset_ends_ndarrays(ti: Any) -> None:
    start(ti)
    ndarray = ti.ndarray(ti.f32, (5,))
    ti.reset()
    # The forks note it in the ndarray. Taichi's own could be of the next init() and goes unnoticed.
    error = tidl.ReleasedError if ndarray.arr is None else tidl.InvalidArgumentError
    with refused(error, "reset|not initialised"):
        tidl.taichi.to_dlpack(ndarray)


def case_not_initialised(ti: Any) -> None:
    start(ti)
    field = ti.field(ti.f32, (5,))
    ti.reset()
    with refused(tidl.InvalidArgumentError, rf"call {ti.__name__}\.init\(\) first"):
        tidl.taichi.to_dlpack(field)


def case_unplaced_field(ti: Any) -> None:
    start(ti)
    with refused(tidl.InvalidArgumentError, "place"):
        tidl.taichi.to_dlpack(ti.field(ti.f32))


def case_unfinalized_builder(ti: Any) -> None:
    start(ti)
    field = ti.field(ti.f32)
    builder = ti.FieldsBuilder()
    builder.dense(ti.i, 8).place(field)
    with refused(tidl.InvalidArgumentError, "finalize"):
        tidl.taichi.to_dlpack(field)
    builder.finalize()
    assert tidl.taichi.to_dlpack(field).shape == (8,)


def case_struct_field(ti: Any) -> None:
    start(ti)
    struct = ti.Struct.field({"a": ti.f32, "b": ti.f64}, shape=(5,))
    with refused(tidl.ArgumentTypeError, "one by one"):
        tidl.taichi.to_dlpack(struct)


def case_other_objects(ti: Any) -> None:
    start(ti)
    with refused(tidl.ArgumentTypeError, "no ndarray and no field"):
        tidl.taichi.to_dlpack(ti.Vector([1, 2]))
    with refused(tidl.ArgumentTypeError, "__dlpack__ themselves"):
        tidl.taichi.to_dlpack(np.zeros(3))


def case_back_ends_of_devices(ti: Any) -> None:
    start(ti)
    tensors = [ti.field(ti.f32, (5,)), ti.ndarray(ti.f32, (5,))]
    for arch, error, text in [
        ("cuda", tidl.UnsupportedError, "CUDA"),
        ("vulkan", tidl.DeviceError, "vulkan back end"),
    ]:
        with patch.object(_family, "_arch_name", lambda _family, arch=arch: arch):
            for tensor in tensors:
                with refused(error, text):
                    tidl.taichi.to_dlpack(tensor)


# ---- quadrants' own words ----


def case_tensors_with_an_order(ti: Any) -> None:
    if not hasattr(ti, "Tensor"):
        pytest.skip(f"{ti.__name__} has no Tensor")
    start(ti)
    for backend in (ti.Backend.FIELD, ti.Backend.NDARRAY):
        tensor = ti.tensor(ti.f32, (2, 3, 4), backend=backend, layout=(1, 2, 0))
        export = tidl.taichi.to_dlpack(tensor)
        assert (export.shape, export.strides) == ((2, 3, 4), (1, 8, 2))
        array = np.asarray(export)
        for number, index in enumerate(np.ndindex(2, 3, 4)):
            tensor[index] = number
        assert np.array_equal(array, np.arange(24).reshape(2, 3, 4))


# ---- publishing ----


def case_publishing_copies_once(ti: Any, name: str) -> None:
    start(ti)
    with tidl.connect() as client:
        tensors = {
            "ndarray": ti.Vector.ndarray(3, ti.f32, (5,)),
            "field": ti.field(ti.f32, (5, 3), order="ji"),
            "soa": ti.Vector.field(3, ti.f32, (5,), layout=ti.Layout.SOA),
        }
        for kind, tensor in tensors.items():
            np.asarray(tidl.taichi.to_dlpack(tensor))[...] = np.arange(15).reshape(5, 3)
            publication = client.publish(f"{name}/{kind}", tensor)
            assert publication.copied
            assert publication.reason == "foreign"
            got = client.get(f"{name}/{kind}").to_numpy()
            assert np.array_equal(got, np.arange(15).reshape(5, 3)), kind
        assert not client.publish(f"{name}/alias", tensors["field"], copy=False).copied
        with refused(tidl.ArgumentTypeError, "one by one"):
            struct = ti.Struct.field({"a": ti.f32}, shape=(5,))
            client.publish(f"{name}/struct", struct)


def case_shared_memory_is_recognised(ti: Any, name: str) -> None:
    start(ti)
    with tidl.connect() as client:
        argument = tidl.taichi.from_dlpack(client.empty((5, 3)))
        assert not client.publish(name, argument).copied
        with refused(tidl.ReadOnlyError, "read-only"):
            tidl.taichi.from_dlpack(client.get(name))
        shared = tidl.taichi.from_dlpack(client.get(name, access="write"))
        shared[:] = 3
        assert argument.sum() == 45
