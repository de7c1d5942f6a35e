# SPDX-License-Identifier: Apache-2.0
"""`tidl.to_dlpack` and `tidl.from_dlpack`: old and new capsules, for whoever knows only one."""

from __future__ import annotations

import array
import ctypes
import gc
import sys
from typing import Any

import numpy as np
import pytest
from fake_dlpack import CUDA, Consumer, Exporter, Producer, capsule_name

import tidl


def floats(count: int = 6) -> ctypes.Array[Any]:
    return (ctypes.c_float * count)(*range(count))


@pytest.mark.dlpack_rule("P2")
def test_old_capsules_are_the_default(client: tidl.Client) -> None:
    for obj in (client.empty((2, 3)), np.zeros((2, 3), "float32")):
        consumer = Consumer(tidl.to_dlpack(obj))
        assert consumer.name == b"dltensor"
        assert consumer.shape == (2, 3)
        assert capsule_name(tidl.to_dlpack(obj, max_version=(1, 0))) == b"dltensor_versioned"
        assert capsule_name(tidl.to_dlpack(obj, max_version=(0, 8))) == b"dltensor"


def test_same_memory(client: tidl.Client) -> None:
    x = client.empty((2, 3))
    assert Consumer(tidl.to_dlpack(x)).tensor.data == x._address
    a = np.from_dlpack(tidl.from_dlpack(tidl.to_dlpack(x, max_version=(1, 0))))
    a[:] = 4
    assert x.to_numpy().sum() == 24


@pytest.mark.dlpack_rule("P8")
def test_read_only_tensors_need_a_new_capsule(client: tidl.Client, name: str) -> None:
    client.publish(name, np.arange(3))
    x = client.get(name)
    with pytest.raises(tidl.ReadOnlyError):
        tidl.to_dlpack(x)
    assert Consumer(tidl.to_dlpack(x, max_version=(1, 1))).flags & 1
    assert Consumer(tidl.to_dlpack(x.unflagged())).name == b"dltensor"


@pytest.mark.parametrize("is_versioned", [False, True])
def test_capsules_become_objects(is_versioned: bool) -> None:
    producer = Producer(floats(), (2, 3), is_versioned=is_versioned)
    foreign = tidl.from_dlpack(producer.capsule())
    assert foreign.__dlpack_device__() == (1, 0)
    a = np.from_dlpack(foreign)
    assert a.tolist() == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(tidl.InvalidArgumentError, match="used already"):
        np.from_dlpack(foreign)
    del a
    gc.collect()
    assert producer.deleted == 1


@pytest.mark.dlpack_rule("C4")
def test_unused_capsules_stay_their_owners() -> None:
    producer = Producer(floats(), (2, 3))
    capsule = producer.capsule()
    foreign = tidl.from_dlpack(capsule)
    with pytest.raises(tidl.InvalidArgumentError, match="new kind"):
        foreign.__dlpack__()
    with pytest.raises(tidl.CopyNeededError, match="cannot be copied"):
        foreign.__dlpack__(max_version=(1, 0), copy=True)
    with pytest.raises(tidl.DeviceError, match="stays on its device"):
        foreign.__dlpack__(max_version=(1, 0), dl_device=(2, 0))
    del foreign
    assert producer.deleted == 0
    assert capsule_name(capsule) == b"dltensor_versioned"


def test_objects_can_be_taken_again(client: tidl.Client) -> None:
    foreign = tidl.from_dlpack(client.full((2, 3), 2))
    assert np.from_dlpack(foreign).sum() == np.from_dlpack(foreign).sum() == 12
    assert "ForeignTensor of Tensor" in repr(foreign)


def test_publishing_one_is_recognised(client: tidl.Client, name: str) -> None:
    x = client.empty((2, 3))
    assert client.publish(name, tidl.from_dlpack(x)).copied is False
    producer = Producer(floats(), (2, 3), is_versioned=False)
    foreign = tidl.from_dlpack(producer.capsule())
    assert client.publish(name, foreign, replace=True).copied is True
    assert client.get(name).to_numpy()[1, 2] == 5
    assert producer.deleted == 1


class TestOldProducers:
    """Objects that know few words, or say strange things."""

    def make(self, *known: str, device: Any = (1, 0)) -> Exporter:
        self.producer = Producer(floats(), (6,), is_versioned=False)

        def export(**words: Any) -> Any:
            if not set(words) <= set(known):
                raise TypeError("unexpected keyword")
            return self.producer.capsule()

        return Exporter(export, lambda: device)

    def test_are_asked_again_with_fewer_words(self) -> None:
        old = self.make()
        a = np.from_dlpack(tidl.from_dlpack(old), device="cpu", copy=False)
        assert a.sum() == 15
        assert old.calls == [{"max_version": (1, 0), "copy": False}, {}]

    def test_are_not_believed_to_copy(self) -> None:
        with pytest.raises(TypeError):
            tidl.from_dlpack(self.make()).__dlpack__(copy=True, max_version=(1, 0))

    def test_may_have_no_device_number(self) -> None:
        assert tidl.from_dlpack(self.make(device=(1, None))).__dlpack_device__() == (1, 0)

    def test_on_other_devices_pass_through(self) -> None:
        old = self.make("stream", device=(CUDA, 1))
        foreign = tidl.from_dlpack(old)
        assert foreign.__dlpack_device__() == (CUDA, 1)
        foreign.__dlpack__(stream=7, dl_device=(CUDA, 1))
        assert old.calls == [{"stream": 7}]


@pytest.mark.parametrize("obj", [None, 3, "text", array.array("f", [1])])
def test_what_is_no_tensor(obj: Any) -> None:
    for call in (tidl.to_dlpack, tidl.from_dlpack):
        with pytest.raises(TypeError, match="is no tensor"):
            call(obj)


@pytest.mark.dlpack_rule("C3")
def test_foreign_capsules_are_refused() -> None:
    capsule = Producer(floats(), (6,)).capsule(b"other")
    with pytest.raises(tidl.InvalidArgumentError, match="holds no tensor"):
        tidl.from_dlpack(capsule)


@pytest.mark.dlpack_rule("C2")
def test_newer_capsules_are_refused() -> None:
    producer = Producer(floats(), (6,))
    producer.managed.version.major = 2
    with pytest.raises(tidl.UnsupportedError, match="DLPack 2") as caught:
        tidl.from_dlpack(producer.capsule()).__dlpack_device__()
    assert isinstance(caught.value, BufferError)


def test_endless_recursion_is_asked_once_for_each_level() -> None:
    calls = 0

    def export(**_: object) -> Any:
        nonlocal calls
        calls += 1
        return tidl.to_dlpack(exporter, max_version=(1, 0))

    exporter = Exporter(export)
    with pytest.raises(RecursionError):
        tidl.to_dlpack(exporter, max_version=(1, 0))
    assert calls < sys.getrecursionlimit()
