# SPDX-License-Identifier: Apache-2.0
"""Tensors of producers that are written out here, well-behaved and not.

C... are the rules of DLPack and its Python protocol for consumers.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

import fake_dlpack as dl
import numpy as np
import pytest

import tidl


def floats(count: int) -> ctypes.Array[Any]:
    return (ctypes.c_float * count)(*range(count))


@pytest.fixture
def publish(client: tidl.Client, name: str) -> Callable[..., list[Any]]:
    """Publishes an object and gives back what a reader sees."""

    def publish(obj: Any) -> Any:
        client.publish(name, obj, replace=True)
        return client.get(name).to_numpy().tolist()

    return publish


@pytest.mark.dlpack_rule("C1", "C5", "C12")
@pytest.mark.parametrize("is_versioned", [True, False])
def test_c1_c5_deleter_is_called_once(publish: Callable[..., Any], is_versioned: bool) -> None:
    producer = dl.Producer(floats(4), (4,), strides=(1,), is_versioned=is_versioned)
    exporter = dl.Exporter(lambda **_: producer.capsule())
    assert publish(exporter) == [0, 1, 2, 3]
    assert producer.deleted == 1
    assert exporter.calls == [{"max_version": (1, 3)}]


@pytest.mark.dlpack_rule("C1")
def test_c1_old_producers_are_asked_again(publish: Callable[..., Any]) -> None:
    producer = dl.Producer(floats(2), (2,), is_versioned=False)

    def export(**keywords: object) -> Any:
        if keywords:
            raise TypeError("no keywords, please")
        return producer.capsule()

    exporter = dl.Exporter(export)
    assert publish(exporter) == [0, 1]
    assert exporter.calls == [{"max_version": (1, 3)}, {}]
    assert producer.deleted == 1


REFUSALS = [
    BufferError("not this one"),
    RuntimeError("not this one"),
    NotImplementedError("not this one"),
    ValueError("not this one"),
    AttributeError("not this one"),
    AssertionError("not this one"),
]
NO_ANSWERS = [
    KeyboardInterrupt(),
    SystemExit(3),
    MemoryError(),
    RecursionError("too deep"),
    ZeroDivisionError("own"),
    KeyError("k"),
    tidl.ReleasedError("was released"),
    tidl.UnsupportedError("cannot yet"),
]


def raising(error: BaseException) -> Callable[..., Any]:
    def call(**_: object) -> Any:
        raise error

    return call


def kind_of(error: BaseException) -> str:
    return type(error).__name__


@pytest.mark.dlpack_rule("C14")
@pytest.mark.parametrize("error", REFUSALS, ids=kind_of)
def test_refusals_of_producers_get_a_code(client: tidl.Client, name: str, error: Exception) -> None:
    exporter = dl.Exporter(raising(error))
    with pytest.raises(tidl.Error, match=r"Exporter .*not this one") as caught:
        client.publish(name, exporter)
    assert caught.value.code == "INVALID_ARGUMENT"
    assert isinstance(caught.value, BufferError)
    assert caught.value.__cause__ is error
    assert len(exporter.calls) == 1  # asked once


def test_a_refusal_that_cannot_be_shown(client: tidl.Client, name: str) -> None:
    class Mute(BufferError):
        def __str__(self) -> str:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        client.publish(name, dl.Exporter(raising(Mute())))


@pytest.mark.parametrize("error", NO_ANSWERS, ids=kind_of)
def test_other_errors_of_producers_come_through(
    client: tidl.Client, name: str, error: BaseException
) -> None:
    exporter = dl.Exporter(raising(error))
    with pytest.raises(type(error)) as caught:
        client.publish(name, exporter)
    assert caught.value is error
    assert len(exporter.calls) == 1
    assert name not in [entry.name for entry in client.list()]


@pytest.mark.parametrize("error", NO_ANSWERS, ids=kind_of)
def test_other_errors_of_device_answers_come_through(
    client: tidl.Client, name: str, error: BaseException
) -> None:
    exporter = dl.Exporter(raising(AssertionError("asked in vain")), raising(error))
    with pytest.raises(type(error)) as caught:
        client.publish(name, exporter)
    assert caught.value is error
    assert exporter.calls == []


@pytest.mark.parametrize("error", NO_ANSWERS, ids=kind_of)
def test_other_errors_do_not_make_an_object_a_buffer(
    client: tidl.Client, name: str, error: BaseException
) -> None:
    class Both(np.ndarray[Any, Any]):
        def __dlpack__(self, **_: object) -> Any:
            raise error

    with pytest.raises(type(error)) as caught:
        client.publish(name, np.zeros(3).view(Both))
    assert caught.value is error


def test_a_producer_that_refuses_may_be_a_buffer(publish: Callable[..., Any]) -> None:
    class Both(np.ndarray[Any, Any]):
        def __dlpack__(self, **_: object) -> Any:
            raise BufferError("no DLPack today")

    assert publish(np.arange(3).view(Both)) == [0, 1, 2]


def test_endless_recursion_is_asked_once_for_each_level(client: tidl.Client, name: str) -> None:
    calls = 0

    def export(**_: object) -> Any:
        nonlocal calls
        calls += 1
        client.publish(name, exporter)

    exporter = dl.Exporter(export)
    with pytest.raises(RecursionError):
        client.publish(name, exporter)
    assert calls < sys.getrecursionlimit()


@pytest.mark.dlpack_rule("C10")
@pytest.mark.parametrize(
    "device",
    [
        lambda: (dl.CPU, None),
        raising(RuntimeError("no device")),
        lambda: None,
        lambda: ("cpu", 0),
        lambda: (),
        lambda: (2**70, 0),
    ],
)
def test_odd_device_answers_are_borne(
    publish: Callable[..., Any], device: Callable[[], Any]
) -> None:
    producer = dl.Producer(floats(2), (2,))
    assert publish(dl.Exporter(lambda **_: producer.capsule(), device)) == [0, 1]


@pytest.mark.dlpack_rule("C2")
def test_c2_newer_major_version(client: tidl.Client, name: str) -> None:
    producer = dl.Producer(floats(2), (2,))
    producer.managed.version = dl.Version(2, 0)
    producer.managed.dl_tensor.ndim = -5  # must not be looked at
    producer.managed.dl_tensor.data = 8
    with pytest.raises(tidl.UnsupportedError, match="DLPack 2") as caught:
        client.publish(name, producer.capsule())
    assert isinstance(caught.value, BufferError)
    assert producer.deleted == 1


@pytest.mark.dlpack_rule("C3")
@pytest.mark.parametrize("capsule_name", [b"used_dltensor", b"used_dltensor_versioned", b"other"])
def test_c3_wrong_capsules(client: tidl.Client, name: str, capsule_name: bytes) -> None:
    producer = dl.Producer(floats(2), (2,))
    capsule = producer.capsule(capsule_name)
    for obj in (capsule, dl.Exporter(lambda **_: capsule)):
        with pytest.raises(tidl.InvalidArgumentError, match="capsule"):
            client.publish(name, obj)
    assert dl.capsule_name(capsule) == capsule_name
    assert producer.deleted == 0


@pytest.mark.dlpack_rule("C3")
@pytest.mark.parametrize("answer", [None, 7, "dltensor"])
def test_c3_no_capsule(client: tidl.Client, name: str, answer: object) -> None:
    with pytest.raises(tidl.InvalidArgumentError, match="capsule"):
        client.publish(name, dl.Exporter(lambda **_: answer))


@pytest.mark.dlpack_rule("C4")
@pytest.mark.parametrize("is_versioned", [True, False])
def test_c4_failures_after_taking_over_delete_once(
    client: tidl.Client, name: str, is_versioned: bool
) -> None:
    client.publish(name, b"taken")
    producer = dl.Producer(floats(2), (2,), is_versioned=is_versioned)
    capsule = producer.capsule()
    with pytest.raises(tidl.ExistsError):
        client.publish(name, capsule)
    assert producer.deleted == 1
    assert dl.capsule_name(capsule).startswith(b"used_")


@pytest.mark.dlpack_rule("C4")
def test_c4_closed_client_deletes_once(session_client: tidl.Client, name: str) -> None:
    client = tidl.connect()
    producer = dl.Producer(floats(2), (2,))

    def export(**_: object) -> Any:
        client.close()
        return producer.capsule()

    exporter = dl.Exporter(export)
    with pytest.raises(tidl.ClosedError):
        client.publish(name, exporter)
    assert producer.deleted == 1


@pytest.mark.dlpack_rule("C5")
def test_c5_null_deleter(publish: Callable[..., Any]) -> None:
    for is_versioned in (True, False):
        producer = dl.Producer(floats(2), (2,), is_versioned=is_versioned)
        producer.managed.deleter = None
        assert publish(producer.capsule()) == [0, 1]


@pytest.mark.dlpack_rule("C6")
@pytest.mark.parametrize(
    ("shape", "strides", "offset", "expected"),
    [
        ((2, 3), None, 0, [[0, 1, 2], [3, 4, 5]]),
        ((2, 2), None, 8, [[2, 3], [4, 5]]),
        ((2, 3), (1, 2), 0, [[0, 2, 4], [1, 3, 5]]),
        ((3,), (-1,), 20, [5, 4, 3]),
        ((2, 2), (0, 1), 4, [[1, 2], [1, 2]]),
        ((1, 2, 1), (77, 1, -99), 0, [[[0], [1]]]),
        ((), None, 12, 3),
    ],
)
@pytest.mark.parametrize("is_versioned", [True, False])
def test_c6_layouts(
    publish: Callable[..., Any],
    shape: tuple[int, ...],
    strides: tuple[int, ...] | None,
    offset: int,
    expected: Any,
    is_versioned: bool,
) -> None:
    producer = dl.Producer(floats(6), shape, strides=strides, is_versioned=is_versioned)
    producer.managed.dl_tensor.byte_offset = offset
    assert publish(producer.capsule()) == expected
    assert producer.deleted == 1


@pytest.mark.dlpack_rule("C6")
def test_c6_null_shape_of_zero_dimensions(publish: Callable[..., Any]) -> None:
    producer = dl.Producer(floats(1), ())
    producer.managed.dl_tensor.shape = None
    assert publish(producer.capsule()) == 0


@pytest.mark.dlpack_rule("C7")
@pytest.mark.parametrize("data", [None, 8])
def test_c7_no_elements(client: tidl.Client, name: str, data: int | None) -> None:
    producer = dl.Producer(None, (2, 0, 3), strides=(9, 9, 9))
    producer.managed.dl_tensor.data = data  # dangling: must not be followed
    client.publish(name, producer.capsule())
    assert client.get(name).shape == (2, 0, 3)


@pytest.mark.dlpack_rule("C8")
@pytest.mark.parametrize(
    ("shape", "strides"),
    [
        ((2**62, 2**62), None),
        ((2, 2), (2**62, 1)),
        ((2, 2), (-(2**62), 1)),
        ((-1,), None),
        ((3, -1), (1, 1)),
    ],
)
def test_c8_impossible_sizes(
    client: tidl.Client, name: str, shape: tuple[int, ...], strides: tuple[int, ...] | None
) -> None:
    producer = dl.Producer(floats(4), shape, strides=strides)
    with pytest.raises(tidl.Error) as caught:
        client.publish(name, producer.capsule())
    assert caught.value.code == "LAYOUT"
    assert producer.deleted == 1


@pytest.mark.dlpack_rule("C8")
@pytest.mark.parametrize("ndim", [-1, 65, 2**31 - 1])
def test_c8_impossible_ranks(client: tidl.Client, name: str, ndim: int) -> None:
    producer = dl.Producer(floats(4), (4,))
    producer.managed.dl_tensor.ndim = ndim
    with pytest.raises(tidl.LayoutError):
        client.publish(name, producer.capsule())
    assert producer.deleted == 1


@pytest.mark.dlpack_rule("C8")
def test_c8_null_data_of_elements(client: tidl.Client, name: str) -> None:
    producer = dl.Producer(None, (4,))
    with pytest.raises(tidl.Error) as caught:
        client.publish(name, producer.capsule())
    assert caught.value.code in ("LAYOUT", "INVALID_ARGUMENT")
    assert producer.deleted == 1


@pytest.mark.dlpack_rule("C9")
@pytest.mark.parametrize(
    "dtype", [(1, 1, 1), (3, 64, 1), (200, 8, 1), (2, 24, 1), (2, 32, 0), (15, 8, 1), (5, 16, 1)]
)
def test_c9_impossible_dtypes(client: tidl.Client, name: str, dtype: tuple[int, int, int]) -> None:
    producer = dl.Producer(floats(4), (1,), dtype=dtype)
    with pytest.raises(tidl.DtypeError):
        client.publish(name, producer.capsule())
    assert producer.deleted == 1


@pytest.mark.dlpack_rule("C9")
def test_c9_bytes_are_not_turned_into_bool(client: tidl.Client, name: str) -> None:
    data = (ctypes.c_uint8 * 2)(0, 1)
    client.publish(name, dl.Producer(data, (2,), dtype=(dl.UINT, 8, 1)).capsule())
    assert client.get(name).dtype == "uint8"


@pytest.mark.dlpack_rule("C10")
def test_c10_pinned_memory_is_host_memory(publish: Callable[..., Any]) -> None:
    producer = dl.Producer(floats(2), (2,), device=(dl.CUDA_HOST, 0))
    assert publish(dl.Exporter(lambda **_: producer.capsule(), lambda: (dl.CUDA_HOST, 0))) == [0, 1]


@pytest.mark.dlpack_rule("C10")
@pytest.mark.parametrize("device", [dl.CUDA, dl.OPENCL, 13])
def test_c10_capsules_of_other_devices(client: tidl.Client, name: str, device: int) -> None:
    producer = dl.Producer(floats(2), (2,), device=(device, 0))
    with pytest.raises(tidl.Error) as caught:
        client.publish(name, producer.capsule())
    assert caught.value.code in ("DEVICE", "UNSUPPORTED")
    assert producer.deleted == 1


@pytest.mark.dlpack_rule("C13")
def test_c13_read_only_tensors_are_copied(client: tidl.Client, name: str) -> None:
    producer = dl.Producer(floats(2), (2,))
    producer.managed.flags = dl.READ_ONLY
    assert client.publish(name, producer.capsule()).copied
    client.get(name, access="write").to_numpy()[:] = 9
    assert list(producer.data or ()) == [0, 1]


@pytest.mark.dlpack_rule("C16")
def test_c16_unaligned_data(publish: Callable[..., Any]) -> None:
    data = (ctypes.c_uint8 * 9)()
    ctypes.memmove(ctypes.addressof(data) + 1, floats(2), 8)
    producer = dl.Producer(data, (2,))
    producer.managed.dl_tensor.byte_offset = 1
    assert publish(producer.capsule()) == [0, 1]
    unaligned = np.frombuffer(bytes(data)[1:] + b"\0", dtype="uint8")[:8].view("float32")
    assert publish(unaligned) == [0, 1]


@pytest.mark.dlpack_rule("C19")
def test_c19_own_exports_come_back_without_a_copy(client: tidl.Client, name: str) -> None:
    x = client.empty((4,))
    for number, obj in enumerate(
        (x, x.__dlpack__(), x.__dlpack__(max_version=(1, 0)), np.from_dlpack(x), memoryview(x))
    ):
        assert not client.publish(f"{name}/{number}", obj).copied
    assert client.publish(f"{name}/copy", x.__dlpack__(copy=True)).copied


def test_strides_of_part_elements(client: tidl.Client, name: str) -> None:
    records = np.zeros(4, dtype=[("a", "<f4"), ("b", "<i2")])
    with pytest.raises(tidl.LayoutError, match="ascontiguousarray"):
        client.publish(name, records["a"])
    client.publish(name, np.ascontiguousarray(records["a"]))


@pytest.mark.dlpack_rule("P16")
def test_client_can_be_used_inside_dlpack(client: tidl.Client, name: str) -> None:
    """A producer may do anything, with this very client too."""
    a = np.arange(3)

    def export(**keywords: Any) -> Any:
        client.publish(f"{name}/inner", a)
        return a.__dlpack__(**keywords)

    client.publish(name, dl.Exporter(export))
    assert client.get(name).to_numpy().tolist() == client.get(f"{name}/inner").to_numpy().tolist()
