# SPDX-License-Identifier: Apache-2.0
"""Tensors, exports, clients and interpreters end in any order, and nothing is left."""

from __future__ import annotations

import ctypes
import gc
import hashlib
import itertools
import os
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from python_brokers import broker_pids, descriptors, eventually, is_let_go
from python_peer import Peer

import tidl

WARM_UP = 30
CYCLES = 10_000


@pytest.mark.dlpack_rule("P19")
@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_any_order_of_ending(
    session_client: tidl.Client, name: str, order: tuple[int, ...]
) -> None:
    session_client.publish(name, np.arange(4))
    client = tidl.connect()
    tensor: tidl.Tensor | None = client.get(name)
    kept: dict[str, Any] = {"array": np.from_dlpack(tensor), "view": memoryview(tensor)}  # type: ignore[arg-type]

    def drop_tensor() -> None:
        nonlocal tensor
        tensor = None

    ends: list[Callable[[], Any]] = [
        drop_tensor,
        lambda: kept.pop("array"),
        lambda: kept.pop("view"),
        client.close,
    ]
    for step in order:
        for value in kept.values():
            assert value.tolist() == [0, 1, 2, 3]
        ends[step]()
    assert eventually(lambda: session_client.inspect(name).holders == ())


@pytest.mark.dlpack_rule("P23")
def test_array_interface_outlives_release(client: tidl.Client, name: str) -> None:
    """A bare address cannot hold the memory, so the tensor does, as long as it lives."""

    class Only:
        def __init__(self, tensor: tidl.Tensor) -> None:
            self.tensor = tensor

        @property
        def __array_interface__(self) -> dict[str, Any]:
            return self.tensor.__array_interface__

    client.publish(name, np.arange(4).reshape(2, 2).T)
    tensor = client.get(name)
    array = np.asarray(Only(tensor))
    tensor.release()
    assert array.tolist() == [[0, 2], [1, 3]]
    assert not array.flags.writeable
    del array, tensor
    gc.collect()
    assert is_let_go(client, name)


@pytest.mark.dlpack_rule("P23")
def test_array_interface_fields(client: tidl.Client) -> None:
    x = client.empty((2, 3), dtype="float32")
    interface = x.__array_interface__
    assert interface == {
        "version": 3,
        "typestr": "<f4",
        "shape": (2, 3),
        "strides": (12, 4),
        "data": (x.to_numpy().ctypes.data, False),
    }
    assert client.empty((0, 3)).__array_interface__["data"][0] != 0


def test_buffer_of_the_whole(client: tidl.Client) -> None:
    x = client.full((2, 3), 7, dtype="int16")
    view = memoryview(x)
    assert (view.format, view.itemsize, view.shape, view.strides) == ("h", 2, (2, 3), (6, 2))
    assert (view.readonly, view.nbytes, view.c_contiguous) == (False, 12, True)
    assert bytes(x) == b"\7\0" * 6
    assert hashlib.sha256(x).digest() == hashlib.sha256(bytes(x)).digest()


# Flags of PEP 3118.
SIMPLE, WRITABLE, FORMAT, ND, STRIDES = 0, 0x1, 0x4, 0x8, 0x18
C_CONTIGUOUS, F_CONTIGUOUS, ANY_CONTIGUOUS = 0x38, 0x58, 0x98
REQUESTS = {SIMPLE, FORMAT, ND, STRIDES, C_CONTIGUOUS, F_CONTIGUOUS, ANY_CONTIGUOUS}

LAYOUTS = {
    "row-major": ("a", REQUESTS - {F_CONTIGUOUS}),
    "column-major": ("a.T", {STRIDES, F_CONTIGUOUS, ANY_CONTIGUOUS}),
    "strided": ("a[:, ::2]", {STRIDES}),
    "one row": ("a[0]", REQUESTS),
    "empty": ("a[:0, ::2]", REQUESTS),
}


@pytest.mark.dlpack_rule("P23")
@pytest.mark.parametrize(("view", "possible"), LAYOUTS.values(), ids=LAYOUTS.keys())
def test_buffer_requests(client: tidl.Client, name: str, view: str, possible: set[int]) -> None:
    """Each consumer says what it can take, and gets that or a refusal."""
    a = client.empty((3, 4), dtype="int32").to_numpy()
    client.publish(name, eval(view, {"a": a}))
    readable, writable = client.get(name), client.get(name, access="write")
    request = ctypes.pythonapi.PyObject_GetBuffer
    request.argtypes = [ctypes.py_object, ctypes.c_void_p, ctypes.c_int]
    release = ctypes.pythonapi.PyBuffer_Release
    release.argtypes = [ctypes.c_void_p]
    buffer = ctypes.create_string_buffer(128)
    for flags in REQUESTS:
        with pytest.raises(tidl.ReadOnlyError):
            request(readable, buffer, flags | WRITABLE)
        for tensor, asked in ((readable, flags), (writable, flags), (writable, flags | WRITABLE)):
            if flags in possible:
                request(tensor, buffer, asked)
                release(buffer)
            else:
                with pytest.raises(tidl.LayoutError):
                    request(tensor, buffer, asked)


def test_tensor_as_context_manager(client: tidl.Client, name: str) -> None:
    client.publish(name, np.arange(4))
    with client.get(name) as tensor:
        assert tensor.to_numpy().tolist() == [0, 1, 2, 3]
    assert tensor.released
    assert is_let_go(client, name)


def test_objects_are_collected(session_client: tidl.Client) -> None:
    client = tidl.connect()
    tensor = client.empty((2,))
    gone: list[weakref.ref[Any]] = [weakref.ref(client), weakref.ref(tensor)]
    client.itself = client  # type: ignore[attr-defined]
    tensor.itself = tensor  # type: ignore[attr-defined]
    del client, tensor
    gc.collect()
    assert [ref() for ref in gone] == [None, None]


def test_a_client_that_is_dropped_closes(session_client: tidl.Client, name: str) -> None:
    client = tidl.connect()
    client.publish(name, np.ones(3), retain="owner")
    del client
    assert eventually(lambda: session_client.list(name) == [])


def test_ten_thousand_cycles_leave_nothing(own_runtime: Path) -> None:
    def cycle(client: tidl.Client, number: int) -> None:
        x = client.empty((16,), dtype="int32")
        x.to_numpy()[0] = number
        client.publish("cycle", x, replace=True)
        y = client.get("cycle", access=("read", "write")[number % 2])
        assert np.from_dlpack(y)[0] == number
        y.release()
        if number % 5 == 0:
            client.publish("cycle", np.ones(4), replace=True)
            client.get("cycle").release()
        if number % 3 == 0:
            client.remove("cycle")

    def state(client: tidl.Client, broker: int) -> dict[str, Any]:
        client.dispatch()
        client.list()  # one round trip: all that was sent before it is done
        maps = Path("/proc/self/maps").read_text().count("/memfd:tidl")
        return {
            "mine": descriptors(),
            "broker": len(descriptors(broker)),
            "shm": sorted(os.listdir("/dev/shm")),
            "maps": maps,
        }

    with tidl.connect() as client:
        (broker,) = broker_pids(own_runtime)
        # The first ones fill the pool that foreign tensors are copied into.
        for count in (WARM_UP, CYCLES):
            before = state(client, broker) if count == CYCLES else {}
            for number in range(count):
                cycle(client, number + 1)
            if client.list("cycle"):
                client.remove("cycle")
        assert client.list("**") == []
        assert eventually(lambda: state(client, broker) == before), state(client, broker)


def test_nothing_is_left_in_the_runtime_folder_but_socket_and_lock(own_runtime: Path) -> None:
    with tidl.connect() as client:
        client.publish("x", np.ones(3))
    names = sorted(path.name for path in own_runtime.rglob("*") if not path.is_dir())
    assert names == ["private.sock", "private.sock.lock"]


def test_exit_without_closing_anything(
    client: tidl.Client, start_peer: Callable[..., Peer], name: str
) -> None:
    client.publish(name, np.ones(3))
    peer = start_peer("import numpy as np")
    peer.do(
        "import builtins, threading\n"
        f"c = tidl.connect(); x = c.get({name!r}); y = c.empty((3,)); a = x.to_numpy()\n"
        "builtins.kept = [c, x, y, a]\n"
        "threading.Thread(target=lambda: c.get('never', timeout=None), daemon=True).start()"
    )
    assert len(client.inspect(name).holders) == 1
    assert peer.end() == 0
    assert eventually(lambda: client.inspect(name).holders == ())
