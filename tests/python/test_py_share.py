# SPDX-License-Identifier: Apache-2.0
"""Moving tensors into shareable memory: what is done around a framework, here a made-up one."""

from __future__ import annotations

import ctypes
import importlib
import sys
from collections.abc import Callable, Iterable
from typing import Any

import pytest

import tidl
from tidl._share import Place, share


class Thing:
    """A tensor of bytes: part of a storage."""

    def __init__(self, storage: Any, first: int, size: int) -> None:
        self.storage = storage
        self.first = first
        self.size = size

    def bytes(self) -> bytes:
        return ctypes.string_at(self.first, self.size)

    def write(self, index: int, value: int) -> None:
        ctypes.memset(self.first + index, value, 1)


class Madeup:
    """A framework whose tensors move, but for some."""

    title = "Madeup"
    takes = "a thing"

    def __init__(self, on_move: Callable[[Thing], bool] = lambda thing: True) -> None:
        self._on_move = on_move

    def tensors_in(self, target: Any) -> Iterable[Any] | None:
        return (target,) if isinstance(target, Thing) else None

    def place_of(self, tensor: Thing) -> Place | None:
        if tensor.storage is None:
            return Place(0, 0, 8, 1)
        if not tensor.storage:
            return None
        begin = ctypes.addressof(tensor.storage)
        return Place(tensor.first, begin, len(tensor.storage), 1)

    def over(self, memory: tidl.Tensor) -> Any:
        return (ctypes.c_ubyte * memory.nbytes).from_buffer(memory)

    def home_of(self, tensor: Thing) -> Callable[[], None]:
        storage, first = tensor.storage, tensor.first

        def go() -> None:
            tensor.storage, tensor.first = storage, first

        return go

    def move(self, tensor: Thing, block: Any, offset: int) -> None:
        if self._on_move(tensor):
            tensor.storage, tensor.first = block, ctypes.addressof(block) + offset


def storage(size: int, first: int = 0) -> Any:
    return (ctypes.c_ubyte * size)(*(first + i for i in range(size)))


def thing(size: int, first: int = 0) -> Thing:
    memory = storage(size, first)
    return Thing(memory, ctypes.addressof(memory), size)


def test_tensors_move_and_keep_their_bytes(client: tidl.Client) -> None:
    a, b = thing(5), thing(300, -44)
    wanted = a.bytes(), b.bytes()
    old = a.first, b.first
    report = share(Madeup(), {"a": a, "deeper": {"b": b}}, client, None)
    assert (report.tensors, report.bytes, report.left) == (2, 305, 0)
    assert (a.bytes(), b.bytes()) == wanted
    assert (a.first, b.first) != old
    assert a.first % 256 == b.first % 256 == 0


def test_one_tensor_under_two_keys_moves_once(client: tidl.Client) -> None:
    a, b = thing(3), thing(7, 10)
    report = share(Madeup(), {"a": a, "b": b, "again": b}, client, None)
    assert (report.tensors, report.bytes, report.left) == (2, 10, 0)
    assert list(b.bytes()) == list(range(10, 17))


def test_what_overlaps_goes_on_doing_so(client: tidl.Client) -> None:
    """Storages of their own over one array, as frameworks make them of NumPy's memory."""
    memory = storage(64)
    begin = ctypes.addressof(memory)
    whole = Thing(memory, begin, 64)
    part = Thing((ctypes.c_ubyte * 8).from_address(begin + 40), begin + 41, 4)
    beside = thing(8)
    report = share(Madeup(), {"part": part, "beside": beside, "whole": whole}, client, None)
    assert (report.tensors, report.bytes) == (3, 72)
    assert list(part.bytes()) == [41, 42, 43, 44]
    part.write(0, 99)
    assert whole.bytes()[41] == 99
    assert memory[41] == 41


def test_only_what_is_below_the_limit(client: tidl.Client) -> None:
    small, large, empty = thing(9), thing(10), Thing((ctypes.c_ubyte * 0)(), 0, 0)
    first = large.first
    report = share(Madeup(), {"small": small, "large": large, "empty": empty}, client, 10)
    assert (report.tensors, report.bytes, report.left) == (1, 9, 2)
    assert large.first == first
    for below, error in ((-1, tidl.InvalidArgumentError), (True, tidl.ArgumentTypeError)):
        with pytest.raises(error, match="below"):
            share(Madeup(), large, client, below)


def test_what_lies_in_memory_of_the_client_is_left(client: tidl.Client, name: str) -> None:
    a, b = thing(3), thing(4)
    assert share(Madeup(), a, client, None).tensors == 1
    memory = client.empty((16,), dtype="uint8")
    made = Thing(Madeup().over(memory), memory._address or 0, 16)
    first = a.first, made.first
    report = share(Madeup(), {"a": a, "b": b, "made": made}, client, None)
    assert (report.tensors, report.bytes, report.left) == (1, 4, 2)
    assert (a.first, made.first) == first
    client.publish(name, memory)
    with tidl.connect() as other:
        attached = other.get(name, access="write")
        theirs = Thing(Madeup().over(attached), attached._address or 0, 16)
        assert share(Madeup(), theirs, other, None).left == 1
        assert share(Madeup(), theirs, client, None).tensors == 1


@pytest.mark.parametrize(
    ("failure", "error", "text"),
    [
        (ValueError("no way"), tidl.NotExportableError, "Madeup refuses to move a tensor: no way"),
        (tidl.DeviceError("elsewhere"), tidl.DeviceError, "elsewhere"),
        (KeyboardInterrupt("now"), KeyboardInterrupt, "now"),
        (None, tidl.UnsupportedError, "keeps a tensor where it is"),
    ],
)
def test_all_or_nothing(
    client: tidl.Client, failure: BaseException | None, error: type[BaseException], text: str
) -> None:
    a, b, c = thing(3), thing(3, 10), thing(3, 20)
    before = a.first, b.first, c.first

    def on_move(moving: Thing) -> bool:
        if moving is not b:
            return True
        if failure:
            raise failure
        return False

    with pytest.raises(error, match=text):
        share(Madeup(on_move), {"a": a, "b": b, "c": c}, client, None)
    assert (a.first, b.first, c.first) == before
    assert list(a.bytes() + c.bytes()) == [0, 1, 2, 20, 21, 22]


def test_refusals_come_before_anything_is_moved(client: tidl.Client) -> None:
    a = thing(3)
    first = a.first
    memory = storage(64)
    begin = ctypes.addressof(memory)

    class Wide(Madeup):
        def place_of(self, tensor: Thing) -> Place | None:
            place = super().place_of(tensor)
            return place and Place(place.first, place.begin, place.size, 4)

    overlapping = {
        "aligned": Thing(memory, begin, 64),
        "not": Thing((ctypes.c_ubyte * 8).from_address(begin + 2), begin + 2, 8),
    }
    for framework, target, error, text in (
        (Madeup(), {"a": a, "b": 3}, tidl.ArgumentTypeError, "takes a thing, not 3"),
        (Madeup(), {"a": a, "b": Thing(None, 0, 8)}, tidl.InvalidArgumentError, "its memory"),
        (Wide(), {"a": a, **overlapping}, tidl.LayoutError, "multiple"),
    ):
        with pytest.raises(error, match=text):
            share(framework, target, client, None)
        assert a.first == first


def test_nothing_to_move_needs_no_memory(client: tidl.Client) -> None:
    client.close()
    report = share(Madeup(), {"a": {}}, client, None)
    assert (report.tensors, report.bytes, report.left) == (0, 0, 0)


@pytest.mark.parametrize("framework", ["torch", "paddle"])
def test_without_the_framework(
    client: tidl.Client, monkeypatch: pytest.MonkeyPatch, framework: str
) -> None:
    monkeypatch.setitem(sys.modules, framework, None)
    module = importlib.import_module(f"tidl.{framework}")
    with pytest.raises(tidl.MissingFrameworkError, match="install it"):
        module.share_({}, client)
