# SPDX-License-Identifier: Apache-2.0
"""Anybody's tensors as kernel arguments. Runs in the workers of `taichi_families`.

No `from __future__ import annotations` here: Taichi reads the annotations of kernels as objects.
"""

import ctypes
import functools
import gc
import mmap
import sys
from typing import Any

import numpy as np
import pytest
from fake_dlpack import (
    BFLOAT,
    COMPLEX,
    CUDA,
    CUDA_HOST,
    FLOAT,
    OPENCL,
    READ_ONLY,
    Exporter,
    Producer,
    capsule_name,
)

import tidl
import tidl.taichi


@functools.cache
def kernels(ti: Any) -> dict[str, Any]:
    """Kernels by name. Compiled anew after each `init()`, so there is one only."""
    ti.init(arch=ti.cpu, log_level=ti.ERROR, offline_cache=False)
    flat_index = tidl.taichi.flat_index_for(ti)

    def number(x: ti.types.ndarray(dtype=ti.f32, ndim=2)):
        for i, j in x:
            x[i, j] = 10 * i + j

    def number_strided(
        flat: ti.types.ndarray(dtype=ti.f32, ndim=1),
        offset: ti.i32,
        strides: ti.types.vector(2, ti.i32),
        shape: ti.types.vector(2, ti.i32),
    ):
        for i, j in ti.ndrange(shape[0], shape[1]):
            flat[flat_index(offset, strides, ti.Vector([i, j]))] = 10 * i + j

    def increment(x: ti.types.ndarray(ndim=1)):
        for i in x:
            x[i] += 1

    def set_alone(x: ti.types.ndarray(dtype=ti.f32, ndim=0)):
        x[None] = 7

    made = (number, number_strided, increment, set_alone)
    return {kernel.__name__: ti.kernel(kernel) for kernel in made}


def numbered(rows: int, columns: int) -> Any:
    return np.add.outer(10 * np.arange(rows), np.arange(columns)).astype(np.float32)


def number_whole(ti: Any, obj: Any, **options: Any) -> None:
    kernels(ti)["number"](tidl.taichi.from_dlpack(obj, **options))


def number_strided(ti: Any, obj: Any) -> None:
    x = tidl.taichi.strided(obj)
    kernels(ti)["number_strided"](x.flat, x.offset, x.strides, x.shape)


# ---- row-major memory of every framework ----


def case_numpy(ti: Any) -> None:
    a = np.zeros((3, 4), np.float32)
    number_whole(ti, a)
    assert np.array_equal(a, numbered(3, 4))


def case_rows_of_a_larger_array(ti: Any) -> None:
    a = np.zeros((5, 4), np.float32)
    number_whole(ti, a[1:4])
    assert np.array_equal(a[1:4], numbered(3, 4))
    assert not a[0].any()
    assert not a[4].any()


def case_no_axes(ti: Any) -> None:
    a = np.zeros((), np.float32)
    kernels(ti)["set_alone"](tidl.taichi.from_dlpack(a))
    assert a == 7


def case_no_elements(ti: Any) -> None:
    assert tidl.taichi.from_dlpack(np.zeros((0, 4), np.float32)).shape == (0, 4)
    assert tidl.taichi.strided(np.zeros((0, 4), np.float32)).flat.shape == (0,)


def case_dtypes(ti: Any) -> None:
    kernels(ti)
    for dtype in ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]:
        a = np.full(5, 3, dtype)
        kernels(ti)["increment"](tidl.taichi.from_dlpack(a))
        assert a.tolist() == [4] * 5, dtype
    assert tidl.taichi.from_dlpack(np.ones(2, bool)).dtype == np.bool_


def case_torch(ti: Any) -> None:
    torch = pytest.importorskip("torch")
    t = torch.zeros(3, 4)
    number_whole(ti, t)
    assert np.array_equal(t.numpy(), numbered(3, 4))
    number_whole(ti, torch.utils.dlpack.to_dlpack(t.zero_()))
    assert np.array_equal(t.numpy(), numbered(3, 4))


def case_paddle(ti: Any) -> None:
    paddle = pytest.importorskip("paddle")
    t = paddle.zeros([3, 4])
    number_whole(ti, t)
    assert np.array_equal(t.numpy(), numbered(3, 4))
    number_whole(ti, paddle.utils.dlpack.to_dlpack(t))


def case_paddle_with_strides(ti: Any) -> None:
    paddle = pytest.importorskip("paddle")
    t = paddle.zeros([4, 6]).transpose([1, 0])
    number_whole(ti, t, axes=(1, 0))
    assert np.array_equal(t.numpy(), numbered(4, 6).T)
    number_strided(ti, t)
    assert np.array_equal(t.numpy(), numbered(6, 4))


def case_jax_is_constant(ti: Any) -> None:
    jax = pytest.importorskip("jax")
    x = jax.numpy.zeros((3, 4))
    for obj in (x, tidl.from_dlpack(x)):
        refused(tidl.ReadOnlyError, "READ_ONLY", "readonly_ok=True", obj)
    assert tidl.taichi.from_dlpack(x, readonly_ok=True).shape == (3, 4)


def case_own_memory_of_taichi(ti: Any) -> None:
    kernels(ti)
    field = ti.field(ti.f32, (3, 4), order="ji")
    number_whole(ti, field, axes=(1, 0))
    assert np.array_equal(field.to_numpy(), numbered(4, 3).T)
    ndarray = ti.ndarray(ti.f32, (3, 4))
    number_whole(ti, ndarray)
    assert np.array_equal(ndarray.to_numpy(), numbered(3, 4))


def case_capsules_of_both_kinds(ti: Any) -> None:
    for is_versioned in (False, True):
        memory = (ctypes.c_float * 12)()
        producer = Producer(memory, (3, 4), is_versioned=is_versioned)
        producer.managed.dl_tensor.data -= 64
        producer.managed.dl_tensor.byte_offset = 64
        capsule = producer.capsule()
        argument = tidl.taichi.from_dlpack(capsule)
        assert capsule_name(capsule).startswith(b"used_dltensor")
        assert argument.flags.writeable
        kernels(ti)["number"](argument)
        assert list(memory) == numbered(3, 4).ravel().tolist()
        assert producer.deleted == 0
        del argument
        gc.collect()
        assert producer.deleted == 1


def case_older_producers(ti: Any) -> None:
    def export(**keywords: Any) -> Any:
        if keywords:
            raise TypeError("unexpected keyword")
        return producer.capsule()

    producer = Producer((ctypes.c_float * 12)(), (3, 4), is_versioned=False)
    number_whole(ti, Exporter(export, lambda: (1, None)))
    assert producer.deleted == 1


def case_pinned_memory_is_host_memory(ti: Any) -> None:
    producer = Producer((ctypes.c_float * 12)(), (3, 4), device=(CUDA_HOST, 0))
    number_whole(ti, Exporter(lambda **_: producer.capsule(), lambda: (CUDA_HOST, 0)))
    assert list(producer.data or ()) == numbered(3, 4).ravel().tolist()


# ---- other layouts ----


def case_permuted_by_axes(ti: Any) -> None:
    a = np.zeros((4, 3), np.float32).T
    with pytest.raises(tidl.LayoutError, match=r"pass axes=\(1, 0\)") as caught:
        tidl.taichi.from_dlpack(a)
    assert caught.value.code == "LAYOUT"
    number_whole(ti, a, axes=(1, 0))
    assert np.array_equal(a, numbered(4, 3).T)


def case_wrong_axes(ti: Any) -> None:
    with pytest.raises(tidl.LayoutError, match=r"pass axes=\(1, 0\)"):
        tidl.taichi.from_dlpack(np.zeros((4, 3), np.float32).T, axes=(0, 1))
    with pytest.raises(tidl.InvalidArgumentError, match="each of the 2 axes once"):
        tidl.taichi.from_dlpack(np.zeros((4, 3), np.float32), axes=(0, 0))


def case_gaps_by_strides(ti: Any) -> None:
    base = np.full((6, 10), -1, np.float32)
    views = {
        "gaps": base[1:4, 2:9:3],
        "reversed": base[::-1, ::-2],
        "permuted": base.T[2:5],
        "mixed": base[4:1:-1, 1::4].T,
        "row-major": base,
    }
    for name, view in views.items():
        base[:] = -1
        with_gaps = None if name == "row-major" else pytest.raises(tidl.LayoutError)
        if with_gaps:
            with with_gaps:
                tidl.taichi.from_dlpack(view)
        number_strided(ti, view)
        assert np.array_equal(view, numbered(*view.shape)), name
        assert (base == -1).sum() == base.size - view.size, name


def case_repeated_elements_by_strides(ti: Any) -> None:
    row = np.zeros(4, np.float32)
    view = np.lib.stride_tricks.as_strided(row, (3, 4), (0, 4))
    x = tidl.taichi.strided(view)
    assert (x.flat.size, x.strides.tolist(), x.offset) == (4, [0, 1], 0)
    number_strided(ti, view)
    assert (row % 10 == np.arange(4)).all()


def case_strides_of_torch(ti: Any) -> None:
    torch = pytest.importorskip("torch")
    t = torch.zeros(6, 8)[::2, 1::3]
    number_strided(ti, t)
    assert np.array_equal(t.numpy(), numbered(3, 3))


def case_span_beyond_32_bits(ti: Any) -> None:
    memory = np.frombuffer(mmap.mmap(-1, 2**31 + 4096), np.uint8)  # never touched
    assert tidl.taichi.strided(memory[: 2**31 - 1]).flat.size == 2**31 - 1
    with pytest.raises(tidl.LayoutError, match="in parts"):
        tidl.taichi.strided(memory[: 2**31 : 2**31 - 1])


def case_flat_index_of_the_package(ti: Any) -> None:
    assert tidl.taichi.flat_index_for(ti) is tidl.taichi.flat_index_for(ti.__name__)
    if ti.__name__ == "taichi":
        assert tidl.taichi.flat_index is tidl.taichi.flat_index_for(ti)
    with pytest.raises(tidl.InvalidArgumentError, match="none of taichi, quadrants, gstaichi"):
        tidl.taichi.flat_index_for(np)


# ---- refusals ----


def refused(error: type[tidl.Error], code: str, text: str, obj: Any) -> None:
    for accept in (tidl.taichi.from_dlpack, tidl.taichi.strided):
        with pytest.raises(error, match=text) as caught:
            accept(obj)
        assert caught.value.code == code


def case_read_only(ti: Any) -> None:
    a = np.zeros((3, 4), np.float32)
    a.flags.writeable = False
    refused(tidl.ReadOnlyError, "READ_ONLY", "readonly_ok=True", a)
    assert tidl.taichi.from_dlpack(a, readonly_ok=True).ctypes.data == a.ctypes.data


def case_read_only_capsule(ti: Any) -> None:
    producer = Producer((ctypes.c_float * 4)(), (4,))
    producer.managed.flags = READ_ONLY
    capsule = producer.capsule()
    refused(tidl.ReadOnlyError, "READ_ONLY", "read-only", capsule)
    assert capsule_name(capsule) == b"dltensor_versioned"  # still the caller's


def case_cuda(ti: Any) -> None:
    def never(**_keywords: Any) -> Any:
        raise AssertionError("asked for its memory")

    refused(tidl.UnsupportedError, "UNSUPPORTED", "CUDA", Exporter(never, lambda: (CUDA, 0)))
    capsule = Producer((ctypes.c_float * 4)(), (4,), device=(CUDA, 0)).capsule()
    refused(tidl.UnsupportedError, "UNSUPPORTED", "CUDA", capsule)
    assert capsule_name(capsule) == b"dltensor_versioned"


def case_other_devices(ti: Any) -> None:
    capsule = Producer((ctypes.c_float * 4)(), (4,), device=(OPENCL, 0)).capsule()
    refused(tidl.DeviceError, "DEVICE", "device type 4", capsule)


def case_dtypes_that_taichi_lacks(ti: Any) -> None:
    for dtype, text in [
        ((BFLOAT, 16, 1), "bfloat16"),
        ((COMPLEX, 64, 1), "complex64"),
        ((FLOAT, 32, 4), "float32x4"),
        ((FLOAT, 128, 1), "float128"),
        ((10, 8, 1), "dtype code 10"),
    ]:
        producer = Producer((ctypes.c_char * 64)(), (4,), dtype=dtype)
        refused(tidl.DtypeError, "DTYPE", text, producer.capsule())


def case_too_many_axes(ti: Any) -> None:
    with pytest.raises(tidl.LayoutError, match="at most 12"):
        tidl.taichi.from_dlpack(np.zeros((1,) * 13, np.float32))


def case_used_capsule(ti: Any) -> None:
    capsule = np.zeros(3, np.float32).__dlpack__()
    tidl.taichi.from_dlpack(capsule)
    refused(tidl.InvalidArgumentError, "INVALID_ARGUMENT", "used already", capsule)


def case_foreign_capsule(ti: Any) -> None:
    capsule = Producer((ctypes.c_float * 4)(), (4,)).capsule(b"other")
    refused(tidl.InvalidArgumentError, "INVALID_ARGUMENT", '"other"', capsule)


def case_newer_dlpack(ti: Any) -> None:
    producer = Producer((ctypes.c_float * 4)(), (4,))
    producer.managed.version.major = 2
    refused(tidl.UnsupportedError, "UNSUPPORTED", "DLPack 2", producer.capsule())


def case_no_tensor(ti: Any) -> None:
    for obj in (3, "text", [1.0, 2.0], object()):
        refused(tidl.ArgumentTypeError, "INVALID_ARGUMENT", "pass an object with __dlpack__", obj)
    no_capsule = Exporter(lambda **_: 3)
    refused(tidl.InvalidArgumentError, "INVALID_ARGUMENT", "did not return a capsule", no_capsule)


def case_arrays_that_are_no_numbers(ti: Any) -> None:
    for array in (np.array([None]), np.zeros(3, ">f4"), np.array(["text"])):
        with pytest.raises(BufferError):
            tidl.taichi.from_dlpack(array)


def case_torch_tensors_that_cannot(ti: Any) -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(BufferError, match="grad"):
        tidl.taichi.from_dlpack(torch.zeros(3, requires_grad=True))
    refused(
        tidl.LayoutError, "LAYOUT", "resolve_neg", torch.zeros(3, dtype=torch.cfloat).conj().imag
    )


def case_torch_is_not_needed(ti: Any) -> None:
    if sys.modules.get("torch", ti) is ti:  # neither imported nor blocked
        number_whole(ti, np.zeros((3, 4), np.float32))
        assert "torch" not in sys.modules
