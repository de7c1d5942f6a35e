# SPDX-License-Identifier: Apache-2.0
"""NumPy's allocator in shareable memory: for whom it holds, what is refused, what C code sees."""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
import os
import signal
import sys
import threading
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from numpy_handlers import HEADERS, Handler, current, name_of, place_of
from python_brokers import await_poll, broker_pids, memfd_inode
from python_peer import Peer, PeerError

import tidl

PAGE = os.sysconf("SC_PAGESIZE")
SETUP = "import numpy as np\nclient = tidl.connect()\n"


# ---- where it holds ----


def test_nested_blocks(client: tidl.Client, session_client: tidl.Client, name: str) -> None:
    with tidl.numpy_allocator(client) as outer:
        with tidl.numpy_allocator(session_client, min_bytes=10 * PAGE) as inner:
            small, large = np.zeros(PAGE, "u1"), np.zeros(10 * PAGE, "u1")
        after = np.zeros(10 * PAGE, "u1")
    assert (outer.arrays, inner.arrays) == (2, 1)
    assert not client.publish(f"{name}/small", small).copied
    assert not session_client.publish(f"{name}/large", large).copied
    assert not client.publish(f"{name}/after", after).copied
    del small, large, after
    assert (outer.arrays, inner.arrays) == (0, 0)


def test_an_exception_ends_it(client: tidl.Client) -> None:
    with pytest.raises(KeyError), tidl.numpy_allocator(client):
        raise KeyError
    assert name_of() == "default_allocator"


def test_blocks_that_end_in_another_order(client: tidl.Client) -> None:
    first, second = tidl.numpy_allocator(client), tidl.numpy_allocator(client)
    first.__enter__()
    second.__enter__()
    third = tidl.numpy_allocator(client)
    third.__enter__()
    second.__exit__(None, None, None)
    first.__exit__(None, None, None)
    np.zeros(1000)
    assert (first.total_arrays, second.total_arrays, third.total_arrays) == (0, 0, 1)
    third.__exit__(None, None, None)
    assert name_of() == "default_allocator"


HAND_OVER = """
from concurrent.futures import ThreadPoolExecutor
import threading
threading.stack_size(1 << 18)
def hand_over(rounds):
    held = tidl.numpy_allocator(client)
    held.__enter__()
    for _ in range(rounds):
        following = tidl.numpy_allocator(client)
        following.__enter__()
        held.__exit__(None, None, None)
        held = following
    small, large = np.zeros(10), np.zeros(1000)
    held.__exit__(None, None, None)
    return held.arrays, small.resize(1000, refcheck=False), large.sum().item()
"""


def test_blocks_that_follow_one_another_without_a_gap(start_peer: Callable[..., Peer]) -> None:
    peer = start_peer(SETUP + HAND_OVER)
    assert peer.ask("ThreadPoolExecutor(1).submit(hand_over, 20_000).result()") == (1, None, 0)


def test_a_block_that_is_left_in_another_context(client: tidl.Client) -> None:
    allocator = tidl.numpy_allocator(client)
    elsewhere = contextvars.copy_context()
    elsewhere.run(allocator.__enter__)
    with tidl.numpy_allocator(client) as made:
        allocator.__exit__(None, None, None)
        assert memfd_inode(np.zeros(1000).ctypes.data) != 0
    assert (made.total_arrays, allocator.total_arrays) == (1, 0)
    assert elsewhere.run(lambda: memfd_inode(np.zeros(1000).ctypes.data)) == 0
    assert allocator.left["late"] == 1


def test_other_threads_allocate_as_usual(client: tidl.Client) -> None:
    names = []
    with tidl.numpy_allocator(client):
        thread = threading.Thread(target=lambda: names.append(name_of(np.zeros(1000))))
        thread.start()
        thread.join()
    assert names == ["default_allocator"]


def test_tasks_allocate_as_the_block_that_they_came_from(client: tidl.Client) -> None:
    async def work(inside: asyncio.Event, outside: asyncio.Event) -> tuple[int, int]:
        first = np.zeros(1000)
        inside.set()
        await outside.wait()
        return memfd_inode(first.ctypes.data), memfd_inode(np.zeros(1000).ctypes.data)

    async def main() -> None:
        inside, outside = asyncio.Event(), asyncio.Event()
        with tidl.numpy_allocator(client) as made:
            task = asyncio.create_task(work(inside, outside))
            await inside.wait()
            array = await asyncio.to_thread(np.zeros, 1000)
            assert made.arrays == 2
        assert name_of() == "default_allocator"
        outside.set()
        in_block, after_block = await task
        assert (in_block != 0, after_block) == (True, 0)
        assert made.left["late"] == 1
        assert memfd_inode(array.ctypes.data) != 0

    asyncio.run(main())


def test_entered_once(client: tidl.Client) -> None:
    allocator = tidl.numpy_allocator(client)
    assert (allocator.arrays, set(allocator.left.values())) == (0, {0})
    with allocator, pytest.raises(tidl.InvalidArgumentError, match="make another"):
        allocator.__enter__()
    assert name_of() == "default_allocator"


# ---- what is refused ----


def test_over_quota(own_runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDLD_QUOTA_UID", str(1 << 20))
    with tidl.connect() as client:
        with tidl.numpy_allocator(client) as made:
            with pytest.raises(MemoryError) as caught:
                np.zeros(2 << 20, "u1")
            assert isinstance(made.error, tidl.QuotaError)
            assert caught.value.__cause__ is None  # NumPy's own, so far
            array = np.arange(1000.0)
            with pytest.raises(MemoryError):
                array.resize(1 << 20)
            assert array.tolist() == list(range(1000))
        with (
            pytest.raises(MemoryError, match=r"2\.00 MiB") as caught,
            tidl.numpy_allocator(client) as made,
        ):
            np.zeros(2 << 20, "u1")
        assert caught.value.__cause__ is made.error
        assert "quota" in str(made.error)
        assert name_of() == "default_allocator"
        # Refused earlier is not why somebody else has no memory.
        with pytest.raises(MemoryError) as caught, tidl.numpy_allocator(client):
            with pytest.raises(MemoryError):
                np.zeros(2 << 20, "u1")
            np.zeros(1000)
            raise MemoryError
        assert caught.value.__cause__ is None


def test_the_broker_dies(own_runtime: Path) -> None:
    with tidl.connect() as client, tidl.numpy_allocator(client) as made:
        array = np.arange(1000.0)
        (pid,) = broker_pids(own_runtime)
        os.kill(pid, signal.SIGKILL)
        for _ in range(2):
            with pytest.raises(MemoryError):
                np.zeros(1000)
            assert isinstance(made.error, tidl.BrokerGoneError)
        array += 1
        assert array[999] == 1000
        small = np.zeros(10)
        with pytest.raises(MemoryError):
            small.resize(1000)
        assert small.tolist() == [0] * 10
        array.resize(10)  # has nowhere to go and stays
        assert array[9] == 10
        del array
        assert made.arrays == 0


def test_the_client_is_closed(own_runtime: Path) -> None:
    client = tidl.connect()
    allocator = tidl.numpy_allocator(client)
    with tidl.numpy_allocator(client) as made:
        client.close()
        with pytest.raises(MemoryError):
            np.zeros(1000)
        assert isinstance(made.error, tidl.ClosedError)
    with pytest.raises(tidl.ClosedError), allocator:
        pass
    assert name_of() == "default_allocator"


def test_ctrl_c_while_the_broker_is_stopped(
    own_runtime: Path, start_peer: Callable[..., Peer]
) -> None:
    peer = start_peer(SETUP + "before = np.zeros(3)\nmade = tidl.numpy_allocator(client)")
    (pid,) = broker_pids(own_runtime)
    os.kill(pid, signal.SIGSTOP)
    peer.start("with made: np.zeros(1000)")
    assert await_poll(peer.pid)
    peer.interrupt()
    with pytest.raises(PeerError) as caught:
        peer.finish()
    assert caught.value.kind == "KeyboardInterrupt"
    os.kill(pid, signal.SIGCONT)
    assert peer.ask("(made.error, made.arrays, np.zeros(1000).any().item())") == (None, 0, False)
    peer.do("with tidl.numpy_allocator(client) as made: x = np.ones(1000)")
    assert peer.ask("(made.arrays, x.sum().item())") == (1, 1000)


CTRL_C = """
with made:
    array, small = np.arange(1000.0), np.arange(10.0)
    sign(None)
    try:
        {call}
    except KeyboardInterrupt:
        is_caught = True
"""


@pytest.mark.parametrize(
    ("call", "size"),
    [
        ("array.resize(9000, refcheck=False)", 9000),
        ("small.resize(9000, refcheck=False)", 9000),
        ("array = np.fromiter(range(9000), 'f8')", 1000),
        ("np.add(array, array)", 1000),
    ],
)
def test_ctrl_c_is_no_memory_error(
    own_runtime: Path, start_peer: Callable[..., Peer], call: str, size: int
) -> None:
    setup = "import os, signal\nmade = tidl.numpy_allocator(client)\nis_caught = False"
    peer = start_peer(SETUP + setup)
    (pid,) = broker_pids(own_runtime)
    # Stops before the call; what follows waits for the broker once, however often it asks.
    peer.start(CTRL_C.format(call=f"os.kill({pid}, signal.SIGSTOP); {call}"))
    peer.await_sign()
    assert await_poll(peer.pid)
    peer.interrupt()
    peer.finish()
    os.kill(pid, signal.SIGCONT)
    assert peer.ask("(is_caught, made.error, made.left['interrupted'] > 0)") == (True, None, True)
    assert peer.ask("max(array.size, small.size)") == size
    assert peer.ask("(array[:10].tolist(), small[:10].tolist())") == (list(range(10)),) * 2
    peer.do("with tidl.numpy_allocator(client) as made: x = np.ones(1000)")
    assert peer.ask("(made.arrays, made.left['interrupted'])") == (1, 0)


def test_wrong_arguments(client: tidl.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    for min_bytes, error in ((0, ValueError), (-1, ValueError), (2**64, ValueError)):
        with pytest.raises(error):
            tidl.numpy_allocator(client, min_bytes=min_bytes)
    for wrong in (1.5, True, "1"):
        with pytest.raises(TypeError):
            tidl.numpy_allocator(client, min_bytes=wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        tidl.numpy_allocator(3)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "numpy", None)  # type: ignore[arg-type]
    with pytest.raises(tidl.MissingFrameworkError):
        tidl.numpy_allocator(client)


# ---- as C code sees it ----


def test_numpy_has_it_where_we_look() -> None:
    places = {"PyArray_GetNDArrayCVersion": 0, "PyArray_GetNDArrayCFeatureVersion": 211}
    places |= {"PyDataMem_SetHandler": 304, "PyDataMem_GetHandler": 305}
    assert {function: place_of(function) for function in places} == places
    types = (HEADERS / "ndarraytypes.h").read_text()
    _, _, allocator = types.partition("void *ctx;")
    members = [line.split("(*")[1].split(")")[0] for line in allocator.splitlines()[1:5]]
    assert members == ["malloc", "calloc", "realloc", "free"]
    assert "char name[127];" in types
    assert (Handler.context.offset, ctypes.sizeof(Handler)) == (128, 168)


@pytest.mark.parametrize(
    ("abi", "features", "words"), [(0x3000000, 0x20, "newer"), (0x1000009, 0xE, "1.22")]
)
def test_other_versions_of_numpy(client: tidl.Client, abi: int, features: int, words: str) -> None:
    version = ctypes.CFUNCTYPE(ctypes.c_uint)
    functions = {0: version(lambda: abi), 211: version(lambda: features)}
    table = (ctypes.c_void_p * 306)()
    for place, function in functions.items():
        table[place] = ctypes.cast(function, ctypes.c_void_p)
    make = ctypes.pythonapi.PyCapsule_New
    make.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    make.restype = ctypes.py_object
    capsule = make(ctypes.addressof(table), None, None)
    with pytest.raises(tidl.UnsupportedError, match=words):
        client._core.numpy_allocator(capsule, 1)
    with pytest.raises(ValueError, match="PyCapsule"):
        client._core.numpy_allocator(object(), 1)


def test_without_the_gil(client: tidl.Client) -> None:
    with tidl.numpy_allocator(client) as made:
        handler = current()

        def churn(seed: int) -> bool:
            address = handler.allocate(handler.context, 5000 + seed)
            ctypes.memset(address, seed, 5000)
            zeroed = handler.zeroed(handler.context, 100, 80)
            is_zero = not any(ctypes.string_at(zeroed, 8000))
            address = handler.resize(handler.context, address, 90_000)
            is_kept = ctypes.string_at(address, 5000) == bytes([seed]) * 5000
            handler.release(handler.context, zeroed, 8000)
            handler.release(handler.context, address, 90_000)
            return is_zero and is_kept

        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(churn, range(200)))
        handler.release(handler.context, None, 0)
        assert handler.allocate(handler.context, 2**63) is None
        assert handler.zeroed(handler.context, 2**40, 2**40) is None
        address = handler.resize(handler.context, None, 5000)
        assert handler.resize(handler.context, address, 2**64 - 1) is None
        handler.release(handler.context, address, 5000)
    assert (made.arrays, isinstance(made.error, MemoryError)) == (0, True)


OWNDATA = """
import ctypes, gc, warnings
libc = ctypes.CDLL(None); libc.malloc.restype = ctypes.c_void_p
warnings.simplefilter("ignore")
with tidl.numpy_allocator(client) as made:
    memory = libc.malloc(ctypes.c_size_t(8000))
    taken = np.frombuffer((ctypes.c_char * 8000).from_address(memory), dtype="f8")
    # PyArray_ENABLEFLAGS(taken, NPY_ARRAY_OWNDATA), as C code does with memory of its own.
    ctypes.c_int.from_address(id(taken) + 64).value |= 4
    assert taken.flags.owndata and taken.ctypes.data == memory
    taken[:] = 1
    total = float(taken.sum())
    del taken; gc.collect()
"""


def test_memory_that_c_code_brings_along(start_peer: Callable[..., Peer]) -> None:
    peer = start_peer(SETUP + OWNDATA)
    assert peer.ask("(total, made.arrays)") == (1000, 0)
    assert peer.end() == 0


def test_tracemalloc_counts_them(client: tidl.Client) -> None:
    tracemalloc.start()
    try:
        with tidl.numpy_allocator(client):
            array = np.ones(100_000)
            with_it = tracemalloc.get_traced_memory()[0]
            del array
            assert with_it - tracemalloc.get_traced_memory()[0] >= 800_000
    finally:
        tracemalloc.stop()
