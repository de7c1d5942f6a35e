# SPDX-License-Identifier: Apache-2.0
"""Rules of DLPack that need no more than the producers and consumers of fake_dlpack.py.

Those of which the tests of the interface itself leave something open: see docs/dlpack.md.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable
from typing import Any

import fake_dlpack as dl
import numpy as np
import pytest
from python_brokers import is_let_go
from python_peer import Peer

import tidl

PAGE = os.sysconf("SC_PAGE_SIZE")


# ---- producers ----


@pytest.mark.dlpack_rule("P3")
def test_p3_structures_lie_as_the_standard_says() -> None:
    """Of the fakes, that is; proto/tensor/dlpack_abi.c has the same numbers for the compiler."""
    sizes = {dl.Device: 8, dl.DataType: 4, dl.Tensor: 48, dl.Legacy: 64, dl.Version: 8}
    sizes[dl.Versioned] = 80
    assert {kind: ctypes.sizeof(kind) for kind in sizes} == sizes
    offsets = {
        dl.Tensor: {"data": 0, "device": 8, "ndim": 16, "dtype": 20, "shape": 24, "strides": 32},
        dl.Legacy: {"dl_tensor": 0, "manager_ctx": 48, "deleter": 56},
        dl.Versioned: {"version": 0, "manager_ctx": 8, "deleter": 16, "flags": 24, "dl_tensor": 32},
    }
    for kind, fields in offsets.items():
        assert {field: getattr(kind, field).offset for field in fields} == fields


@pytest.mark.dlpack_rule("P5")
@pytest.mark.parametrize("copy", [None, True])
def test_p5_old_consumers_find_a_shape_at_rank_0(client: tidl.Client, copy: bool | None) -> None:
    x = client.full((), 3, dtype="int32")
    old = dl.Consumer(x.__dlpack__(copy=copy))
    assert old.tensor.shape
    assert old.tensor.strides
    for words in ({}, {"max_version": (1, 0)}):
        consumer = dl.Consumer(x.__dlpack__(copy=copy, **words))
        assert (consumer.shape, consumer.strides) == ((), ())
        assert ctypes.c_int32.from_address(consumer.tensor.data).value == 3


@pytest.mark.dlpack_rule("P10")
@pytest.mark.parametrize("device", [(dl.CUDA, 0), (dl.OPENCL, 0), (dl.CPU, 1)])
@pytest.mark.parametrize("copy", [None, True, False])
def test_p10_nothing_is_copied_to_other_devices(
    client: tidl.Client, device: tuple[int, int], copy: bool | None
) -> None:
    x = client.empty((3,))
    for tensor in (x, tidl.from_dlpack(x)):
        with pytest.raises(tidl.DeviceError, match="host memory") as caught:
            tensor.__dlpack__(dl_device=device, copy=copy, max_version=(1, 0))
        assert isinstance(caught.value, BufferError)
        assert caught.value.code == "DEVICE"


PADDED = 4  # the flag
FP4 = (17, 4, 1)


def padded(count: int, stride: int = 1) -> dl.Producer:
    data = (ctypes.c_uint8 * (count * stride))(*range(count * stride))
    producer = dl.Producer(data, (count,), strides=(stride,), dtype=FP4)
    producer.managed.flags = PADDED
    return producer


@pytest.mark.dlpack_rule("P20", "C8")
@pytest.mark.parametrize("stride", [1, 3])
def test_p20_c8_small_elements_with_a_byte_each(
    client: tidl.Client, name: str, stride: int
) -> None:
    client.publish(name, padded(7, stride).capsule())
    y = client.get(name, access="write")
    assert y.nbytes == 7
    for copy in (None, True):
        consumer = dl.Consumer(y.__dlpack__(max_version=(1, 0), copy=copy))
        assert consumer.flags & PADDED
        assert consumer.dtype == FP4
        found = (ctypes.c_uint8 * 7).from_address(consumer.tensor.data)
        assert list(found) == list(range(0, 7 * stride, stride))
    # An old capsule would be read as packed.
    for copy in (None, True):
        with pytest.raises(tidl.DtypeError, match="byte each"):
            y.__dlpack__(copy=copy)


@pytest.mark.dlpack_rule("P20")
def test_p20_copies_of_views_keep_small_elements_apart(client: tidl.Client, name: str) -> None:
    client.publish(name, padded(6).capsule())
    y = client.get(name, access="write")
    producer = dl.Producer(None, (3,), strides=(2,), dtype=FP4)
    producer.managed.flags = PADDED
    producer.managed.dl_tensor.data = dl.Consumer(y.__dlpack__(max_version=(1, 0))).tensor.data
    assert not client.publish(f"{name}/view", producer.capsule()).copied
    copied = dl.Consumer(client.get(f"{name}/view").__dlpack__(max_version=(1, 0), copy=True))
    assert copied.flags == PADDED | dl.IS_COPIED
    assert list((ctypes.c_uint8 * 3).from_address(copied.tensor.data)) == [0, 2, 4]


# ---- consumers ----


@pytest.mark.dlpack_rule("C4")
@pytest.mark.parametrize("is_versioned", [True, False])
def test_c4_used_capsules_lose_their_destructor(
    client: tidl.Client, name: str, is_versioned: bool
) -> None:
    destroyed = []
    destructor = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(destroyed.append)
    producer = dl.Producer((ctypes.c_float * 2)(), (2,), is_versioned=is_versioned)
    capsule = producer.capsule(destructor=destructor)
    client.publish(name, capsule)
    assert dl.capsule_name(capsule).startswith(b"used_")
    del capsule
    assert (producer.deleted, destroyed) == (1, [])
    # One that is not taken keeps it.
    capsule = producer.capsule(b"other", destructor)
    with pytest.raises(tidl.InvalidArgumentError):
        client.publish(f"{name}/b", capsule)
    address = id(capsule)
    del capsule
    assert destroyed == [address]


def at_the_end_of_a_page(size: int) -> tuple[mmap.mmap, int]:
    """An address with `size` readable bytes behind it, then nothing that can be read."""
    pages = mmap.mmap(-1, 2 * PAGE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    assert libc.mprotect(address + PAGE, PAGE, 0) == 0
    return pages, address + PAGE - size


# Data types with the bytes that 6 elements need.
SIZES = {
    "lanes": ((dl.FLOAT, 32, 4), 96),
    "packed fp4": ((17, 4, 1), 3),
    "packed pairs of fp4": ((17, 4, 2), 6),
    "packed fp6": ((15, 6, 1), 5),
    "fp8": ((10, 8, 1), 6),
    "bool": ((dl.BOOL, 8, 1), 6),
    "complex128": ((dl.COMPLEX, 128, 1), 96),
}


@pytest.mark.dlpack_rule("C8")
@pytest.mark.parametrize(("dtype", "size"), SIZES.values(), ids=SIZES)
def test_c8_bits_decide_how_much_is_read(
    client: tidl.Client, name: str, dtype: tuple[int, int, int], size: int
) -> None:
    pages, address = at_the_end_of_a_page(size)
    content = bytes(range(1, size + 1))
    ctypes.memmove(address, content, size)
    for strides in (None, (3, 1)):
        producer = dl.Producer(None, (2, 3), strides=strides, dtype=dtype)
        producer.managed.dl_tensor.data = address
        client.publish(name, producer.capsule(), replace=True)
        y = client.get(name)
        assert y.nbytes == size
        consumer = dl.Consumer(y.__dlpack__(max_version=(1, 0)))
        assert ctypes.string_at(consumer.tensor.data, size) == content
    assert pages


@pytest.mark.dlpack_rule("C8")
def test_c8_memory_that_is_not_there_is_an_error(client: tidl.Client, name: str) -> None:
    pages, address = at_the_end_of_a_page(8)
    producer = dl.Producer(None, (3,))
    producer.managed.dl_tensor.data = address
    with pytest.raises(tidl.LayoutError, match="cannot be read"):
        client.publish(name, producer.capsule())
    assert producer.deleted == 1
    assert pages


@pytest.mark.dlpack_rule("C10")
def test_c10_a_copy_is_asked_for_on_the_host(client: tidl.Client, name: str) -> None:
    """By copy=True only, and of the framework: it knows the way from its device."""
    producer = dl.Producer((ctypes.c_float * 2)(1, 2), (2,))
    exporter = dl.Exporter(lambda **_: producer.capsule(), lambda: (dl.CUDA, 0))
    for copy in (None, False):
        with pytest.raises(tidl.UnsupportedTensorError, match="copy=True") as caught:
            client.publish(name, exporter, copy=copy)
        assert isinstance(caught.value, BufferError)
        assert isinstance(caught.value, NotImplementedError)
        assert caught.value.code == "UNSUPPORTED"
    assert exporter.calls == []
    publication = client.publish(name, exporter, copy=True)
    assert exporter.calls == [{"max_version": (1, 3), "dl_device": (1, 0), "copy": True}]
    assert (publication.copied, publication.reason) == (True, "requested")
    assert client.get(name).to_numpy().tolist() == [1, 2]
    assert producer.deleted == 1


@pytest.mark.dlpack_rule("C10")
@pytest.mark.parametrize("error", [TypeError("no such word"), BufferError("not today")])
def test_c10_producers_that_cannot_copy_to_the_host(
    client: tidl.Client, name: str, error: Exception
) -> None:
    def export(**_: object) -> Any:
        raise error

    exporter = dl.Exporter(export, lambda: (dl.CUDA, 0))
    with pytest.raises(tidl.DeviceError, match=str(error)) as caught:
        client.publish(name, exporter, copy=True)
    assert caught.value.__cause__ is error
    assert len(exporter.calls) == 1


@pytest.mark.dlpack_rule("C10")
def test_c10_answers_that_stayed_on_the_device(client: tidl.Client, name: str) -> None:
    producer = dl.Producer((ctypes.c_float * 2)(), (2,), device=(dl.CUDA, 0))
    with pytest.raises(tidl.DeviceError):
        client.publish(
            name, dl.Exporter(lambda **_: producer.capsule(), lambda: (dl.CUDA, 0)), copy=True
        )
    assert producer.deleted == 1


@pytest.mark.dlpack_rule("C13")
def test_c13_attached_memory_is_recognised_though_read_only(client: tidl.Client, name: str) -> None:
    client.publish(f"{name}/a", np.arange(4))
    y = client.get(f"{name}/a")
    capsule = y.__dlpack__(max_version=(1, 0))
    assert dl.Consumer(capsule).flags & dl.READ_ONLY
    publication = client.publish(f"{name}/b", capsule)
    assert (publication.copied, publication.path) == (False, "attached")


@pytest.mark.dlpack_rule("C18")
@pytest.mark.parametrize("step", [1, 2])
def test_c18_who_waits_finds_whole_data(
    client: tidl.Client, peer: Peer, name: str, step: int
) -> None:
    """Compact memory and strided take different ways."""
    data = np.ones(step << 19)[::step]
    for number in range(5):
        wanted = f"{name}/{number}"
        peer.start(f"int(client.get({wanted!r}, timeout=60).to_numpy().sum())", is_expression=True)
        client.publish(wanted, data)
        assert peer.finish() == data.size


@pytest.mark.dlpack_rule("C19")
@pytest.mark.parametrize("make", [lambda y: y, lambda y: y.__dlpack__(max_version=(1, 0))])
def test_c19_own_exports_take_no_second_lease(
    client: tidl.Client, name: str, make: Callable[[tidl.Tensor], Any]
) -> None:
    client.publish(f"{name}/a", np.arange(4))
    y = client.get(f"{name}/a", access="write")
    assert not client.publish(f"{name}/b", make(y)).copied
    assert len(client.inspect(f"{name}/a").holders) == 1
    assert client.inspect(f"{name}/b").holders == ()
    y.release()
    assert is_let_go(client, f"{name}/a")


# ---- across processes ----


@pytest.mark.dlpack_rule("X6")
def test_x6_memory_that_is_held_is_not_used_again(client: tidl.Client, name: str) -> None:
    first = client.publish(name, np.zeros(1000))
    held = client.get(name)
    for number in range(1, 50):
        client.publish(name, np.full(1000, number), replace=True)
        client.empty((1000,)).release()
    client.remove(name)
    assert not held.to_numpy().any()
    assert held.generation == first.generation
    client.publish(name, np.ones(1000))
    with pytest.raises(tidl.GenerationGoneError):
        client.get(name, generation=first.generation)
