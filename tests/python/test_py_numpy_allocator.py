# SPDX-License-Identifier: Apache-2.0
"""NumPy's arrays in shareable memory: which, of what size, and until when."""

from __future__ import annotations

import gc
import io
import os
import pickle
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from numpy_handlers import name_of
from python_brokers import descriptors, memfd_inode
from python_peer import Peer

import tidl

PAGE = os.sysconf("SC_PAGESIZE")
SETUP = "import numpy as np\nclient = tidl.connect()\n"


def maps() -> int:
    return Path("/proc/self/maps").read_text().count("/memfd:")


# ---- what arrays it makes ----


def test_both_sides_see_writes(client: tidl.Client, peer: Peer, name: str) -> None:
    with tidl.numpy_allocator(client) as made:
        mine = np.zeros((50, 40), dtype="f4")
    publication = client.publish(name, mine)
    assert (publication.copied, publication.path) == (False, "allocated")
    assert publication.exposed_bytes == 2 * PAGE
    peer.do(f"y = client.get({name!r}, access='write').to_numpy(); y += 1")
    assert mine.sum() == mine.size
    mine[7] = 5
    assert peer.ask("y[7].tolist()") == [5] * 40
    assert memfd_inode(mine.ctypes.data) == client.inspect(name).segments[0].inode
    assert (made.arrays, made.bytes) == (1, 2 * PAGE)


def test_they_are_ordinary_arrays(client: tidl.Client) -> None:
    with tidl.numpy_allocator(client) as made:
        array = np.ones((3, 1000))
    assert name_of(array) == "tidl"
    assert array.base is None
    assert array.flags.owndata
    assert array.flags.writeable
    assert array.ctypes.data % PAGE == 0
    assert name_of() == "default_allocator"
    assert name_of(np.ones((3, 1000))) == "default_allocator"
    assert (made.arrays, made.total_arrays, made.error) == (1, 1, None)


@pytest.mark.parametrize("view", ["x[5:50, ::2]", "x.T", "x[::-1]", "x.reshape(-1)[7:]"])
@pytest.mark.parametrize("copy", [None, False])
def test_views_need_no_copy(client: tidl.Client, name: str, view: str, copy: bool | None) -> None:
    with tidl.numpy_allocator(client):
        x = np.arange(6400.0).reshape(64, 100)
    mine = eval(view)
    publication = client.publish(name, mine, copy=copy)
    assert (publication.path, publication.moved_bytes) == ("allocated", 0)
    theirs = client.get(name).to_numpy()
    assert np.array_equal(theirs, mine)
    x += 1
    assert np.array_equal(theirs, mine)


def test_whatever_numpy_allocates(client: tidl.Client, name: str) -> None:
    stream = io.BytesIO()
    np.save(stream, np.arange(2000.0))
    stream.seek(0)
    pickled = pickle.dumps(np.arange(2000.0), protocol=2)
    with tidl.numpy_allocator(client):
        one = np.empty(2000)
        arrays = {
            "sum": one + one,
            "concatenated": np.concatenate([one, one]),
            "copied": one.copy(),
            "cast": one.astype("f4"),
            "loaded": np.load(stream),
            "gathered": one[np.arange(1999)],
            "stacked": np.stack([one, one]),
            "random": np.random.default_rng(0).random(2000),
            "unpickled": pickle.loads(pickled).copy(),
        }
    publication = client.publish(name, arrays, copy=False)
    assert (publication.path, publication.copied_count) == ("allocated", 0)


def test_small_ones_are_left_and_counted(client: tidl.Client) -> None:
    with tidl.numpy_allocator(client, min_bytes=1000) as made:
        before = made.left["small"]
        small, large = np.zeros(999, "u1"), np.zeros(1000, "u1")
        left = made.left
    assert (name_of(small), small.ctypes.data % PAGE == 0) == ("tidl", False)
    assert memfd_inode(small.ctypes.data) == 0
    assert memfd_inode(large.ctypes.data) != 0
    assert (left["small"] - before, left["late"]) == (1, 0)
    assert (made.arrays, made.bytes, made.min_bytes) == (1, PAGE, 1000)
    assert client.publish("numpy/small", small).reason == "foreign"
    client.remove("numpy/small")
    del small, large
    assert made.arrays == 0


@pytest.mark.parametrize("shape", [(0,), (0, 3), (4, 0, 2), ()])
def test_without_elements_and_without_axes(
    client: tidl.Client, name: str, shape: tuple[int, ...]
) -> None:
    with tidl.numpy_allocator(client, min_bytes=1) as made:
        array = np.zeros(shape, "f4")
        empty = np.empty(shape, "f4")
    assert array.flags.owndata
    assert client.publish(name, array, copy=False).copied is False
    assert client.get(name).to_numpy().shape == shape
    del array, empty
    assert made.arrays == 0


def test_memory_is_zeroed(client: tidl.Client) -> None:
    with tidl.numpy_allocator(client):
        for _ in range(20):
            array = np.zeros(3000)
            assert not array.any()
            array[:] = 7
            del array


# ---- changing the size ----


def test_resize(client: tidl.Client, peer: Peer, name: str) -> None:
    with tidl.numpy_allocator(client) as made:
        array = np.arange(1000.0)
        address = array.ctypes.data
        array.resize(1020)  # there is room in its pages
        assert array.ctypes.data == address
        client.publish(name, array)
        array.resize(100_000)
        assert array[:1000].tolist() == list(range(1000))
        assert not array[1000:].any()
        assert (made.arrays, memfd_inode(array.ctypes.data) != 0) == (1, True)
        array[:] = 3
        array.resize(10)  # stays in shareable memory, and takes less of it
        assert (array.tolist(), made.bytes) == ([3] * 10, PAGE)
        assert memfd_inode(array.ctypes.data) != 0
    # What was published before it moved is what it was.
    assert peer.ask(f"client.get({name!r}).to_numpy()[:1000].sum().item()") == sum(range(1000))


def test_what_grows_comes_into_shareable_memory(client: tidl.Client) -> None:
    text = " ".join(map(str, range(30_000)))
    with tidl.numpy_allocator(client) as made:
        small = np.arange(10.0)
        small.resize(1000)
        arrays = [
            np.fromiter((number for number in range(30_000)), dtype="f8"),
            np.fromstring(text, sep=" "),  # resizes without the GIL
            np.loadtxt(io.StringIO(text.replace(" ", "\n"))),
        ]
        # In small steps, and yet not copied at each.
        assert made.total_arrays < 60
    assert small[:10].tolist() == list(range(10))
    assert not small[10:].any()
    for array in [small, *arrays]:
        assert memfd_inode(array.ctypes.data) != 0
    for array in arrays:
        assert np.array_equal(array, np.arange(30_000.0))
    del arrays, array
    assert made.arrays == 1


def test_resize_after_the_block(client: tidl.Client, name: str) -> None:
    with tidl.numpy_allocator(client) as made:
        array = np.arange(1000.0)
    client.publish(name, array)
    array.resize(3000)
    assert array[:1000].tolist() == list(range(1000))
    assert not array[1000:].any()
    assert memfd_inode(array.ctypes.data) == 0
    assert (made.arrays, made.left["late"]) == (0, 1)
    array.resize(5)
    assert array.tolist() == [0, 1, 2, 3, 4]
    assert client.get(name).to_numpy().sum() == sum(range(1000))


RESIZED_AT_ONCE = """
from concurrent.futures import ThreadPoolExecutor
import contextvars, threading
def resize_at_once(size, rounds):
    with tidl.numpy_allocator(client) as made, ThreadPoolExecutor(4) as pool:
        contexts = [contextvars.copy_context() for _ in range(4)]
        for _ in range(rounds):
            array, barrier = np.arange(size), threading.Barrier(4)
            def one(new_size):
                barrier.wait()
                try:
                    array.resize(new_size, refcheck=False)
                except MemoryError:
                    return None
                return new_size
            done = [pool.submit(context.run, one, 2000 + 1000 * number)
                    for number, context in enumerate(contexts)]
            sizes = {future.result() for future in done}
            assert array.size in sizes
            assert array[:size].tolist() == list(range(size)) and not array[size:].any()
    return made.arrays, made.error
"""


@pytest.mark.parametrize("size", [10, 1000], ids=["of malloc", "of ours"])
def test_threads_resize_one_array_at_once(start_peer: Callable[..., Peer], size: int) -> None:
    peer = start_peer(SETUP + RESIZED_AT_ONCE)
    assert peer.ask(f"resize_at_once({size}, rounds=100)") == (1, None)


# ---- until when ----


def test_freed_first_by_either_side(client: tidl.Client, peer: Peer, name: str) -> None:
    with tidl.numpy_allocator(client) as made:
        array = np.arange(2000)
    client.publish(name, array, copy=False)
    peer.do(f"y = client.get({name!r}, access='write').to_numpy()")
    del array
    assert made.arrays == 0
    peer.do("y += 1")
    assert client.get(name).to_numpy()[:3].tolist() == [1, 2, 3]
    client.remove(name)
    assert peer.ask("int(y[1999])") == 2000


def test_the_client_and_the_block_are_gone_first(own_runtime: Path) -> None:
    with tidl.connect() as client, tidl.numpy_allocator(client) as made:
        array = np.arange(2000)
    del client
    array += 1
    assert array[1999] == 2000
    before = maps()
    del array
    assert (made.arrays, maps()) == (0, before - 1)


def test_any_thread_frees_them(client: tidl.Client) -> None:
    with tidl.numpy_allocator(client) as made:
        arrays = [np.zeros(1000) for _ in range(100)]

    def drop() -> None:
        while arrays:
            arrays.pop()

    threads = [threading.Thread(target=drop) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made.arrays == 0


@pytest.mark.parametrize("how", ["raised", "refused in a handler", "left by hand"])
def test_an_error_does_not_keep_them(client: tidl.Client, how: str) -> None:
    def refused() -> tuple[weakref.ref[np.ndarray], weakref.ref[BaseException]]:
        with tidl.numpy_allocator(client) as made:
            array = np.zeros(1000)
            try:
                {}["a context for what is raised next"]
            except KeyError:
                with pytest.raises(MemoryError):
                    np.empty(1 << 50, "u1")
            assert made.error
            if how == "left by hand":
                made.__exit__(MemoryError, MemoryError, None)  # type: ignore[arg-type]
            with suppress(tidl.QuotaError):
                if how == "raised":
                    raise made.error
            return weakref.ref(array), weakref.ref(made.error)

    kept = refused()
    gc.collect()
    assert all(reference() is None for reference in kept)


def test_a_thousand_leave_nothing(client: tidl.Client, name: str) -> None:
    def one() -> None:
        with tidl.numpy_allocator(client):
            array = np.ones(1000)
            array.resize(2000, refcheck=False)
            client.publish(name, array, replace=True, copy=False)

    one()
    gc.collect()
    before = (maps(), descriptors())
    for _ in range(1000):
        one()
    client.dispatch()
    assert (maps(), descriptors()) == before
    # What is still published is the last one; of those before the broker keeps nothing.
    assert client.inspect(name).holders == ()


def test_a_forked_child_gives_nothing_back(client: tidl.Client, name: str) -> None:
    with tidl.numpy_allocator(client) as made:
        array = np.arange(2000)
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                array[0] = 7  # shared with the parent
                own = np.full(2000, 3)
                client.publish(name, own, copy=False)
                del array, own
                gc.collect()
                client.dispatch()
                status = made.arrays
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert made.arrays == 1
    assert array[:3].tolist() == [7, 1, 2]
    assert client.publish(f"{name}/parent", array, copy=False).path == "allocated"
    assert client.get(name).to_numpy().tolist() == [3] * 2000


def test_a_fork_while_others_allocate(client: tidl.Client) -> None:
    over = threading.Event()

    def churn() -> None:
        with tidl.numpy_allocator(client):
            while not over.is_set():
                np.ones(1000).resize(3000, refcheck=False)

    with ThreadPoolExecutor(2) as pool:
        threads = [pool.submit(churn) for _ in range(2)]
        for _ in range(20):
            pid = os.fork()
            if pid == 0:
                with tidl.numpy_allocator(client):
                    os._exit(0 if np.ones(1000).sum() == 1000 else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        over.set()
        for thread in threads:
            thread.result()


AT_EXIT = """
import numpy as np, threading, tidl
client = tidl.connect()
allocator = tidl.numpy_allocator(client)
made = allocator.__enter__()
kept = np.arange(3000)
class Cycle: pass
cycle = Cycle(); cycle.me = cycle; cycle.array = np.arange(3000)
def wait(array): threading.Event().wait()
threading.Thread(target=wait, args=(np.arange(3000),), daemon=True).start()
def at_exit(array=np.arange(3000)): np.arange(3000) if not client.closed else array.sum()
import atexit; atexit.register(at_exit)
print(made.arrays)
"""


def test_the_interpreter_ends_with_arrays_alive(session_client: tidl.Client) -> None:
    result = subprocess.run(
        [sys.executable, "-c", AT_EXIT], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "4\n", "")
