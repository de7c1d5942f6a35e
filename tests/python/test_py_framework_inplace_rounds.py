# SPDX-License-Identifier: Apache-2.0
"""Frameworks' own memory shared where it lies, again and again: what is left behind is counted."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from python_brokers import broker_pids, descriptors, eventually
from python_peer import Peer

import tidl

pytestmark = pytest.mark.frameworks

# One thread: OpenMP threads spin while they wait, longer than they work on few cores.
ALONE = {
    "GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=65536",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "OMP_NUM_THREADS": "1",
}
MIB = 1 << 20
ROUNDS = 1000


@dataclass(frozen=True)
class Framework:
    """How a framework makes a square tensor of ones and does things to it where it lies."""

    make: str
    read: str  # all of it, as NumPy
    add: str = ""  # empty: nothing changes it in place
    slope: str = ""  # of half the sum of squares: the tensor itself
    imports: str = ""
    side: int = 256


FRAMEWORKS = {
    "numpy": Framework("np.ones((SIDE, SIDE), np.float32)", "t", add="t += 1", slope="t"),
    "torch": Framework(
        "torch.ones(SIDE, SIDE)",
        "t.numpy()",
        add="t.add_(1)",
        slope="torch.func.grad(lambda w: (w * w).sum() / 2)(t).numpy()",
    ),
    "paddle": Framework(
        "paddle.ones([SIDE, SIDE])",
        "t.numpy()",
        add="t.add_(paddle.ones([1]))",
        slope="paddle.grad((w * w).sum() / 2, w)[0].numpy()",
    ),
    "jax": Framework(
        "jnp.ones((SIDE, SIDE)).block_until_ready()",
        "np.asarray(t)",
        slope="np.asarray(jax.grad(lambda w: (w * w).sum() / 2)(t))",
        imports="import jax, jax.numpy as jnp",
    ),
    "tensorflow": Framework(
        "tf.ones((SIDE, SIDE))",
        "t.numpy()",
        slope="slope(t).numpy()",
        imports="import tensorflow as tf",
        side=4096,
    ),
}

# Some of the first blocks still come from holes in the heap: they are kept, so that others do not.
OWNER = """
import numpy as np
client = tidl.connect()
holes = []
def share(name, t):
    return client.publish(name, t, copy=False, writable=True)
def make_shareable(make, name):
    for _ in range(200):
        t = make()
        try:
            share(name, t)
        except tidl.CopyNeededError:
            holes.append(t)
        else:
            client.unshare(name)
            return t
    raise MemoryError("the heap has room for all of them")
"""
TENSORFLOW_SLOPE = """
def slope(t):
    with tf.GradientTape() as tape:
        tape.watch(t)
        y = tf.reduce_sum(t * t) / 2
    return tape.gradient(y, t)
"""


@pytest.fixture
def start(start_peer: Callable[..., Peer]) -> Callable[..., Peer]:
    def started(framework: str, side: int = 0) -> Peer:
        pytest.importorskip(framework, exc_type=ImportError)
        how = FRAMEWORKS[framework]
        peer = start_peer(how.imports or f"import {framework}", environment=ALONE)
        peer.do(OWNER + f"SIDE = {side or how.side}")
        if framework == "tensorflow":
            peer.do(TENSORFLOW_SLOPE)
        return peer

    return started


def memory_kib(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    raise KeyError(field)


@dataclass(frozen=True)
class Left:
    """What two processes and their broker have at a moment."""

    maps: int
    descriptors: tuple[int, ...]
    rss_kib: tuple[int, ...]

    @staticmethod
    def now(pids: list[int]) -> Left:
        return Left(
            sum(Path(f"/proc/{pid}/maps").read_text().count("\n") for pid in pids),
            tuple(len(descriptors(pid)) for pid in pids),
            tuple(memory_kib(pid, "VmRSS") for pid in pids),
        )


# Not TensorFlow: no less than 64 MiB at once come from malloc there.
@pytest.mark.parametrize("framework", [name for name in FRAMEWORKS if name != "tensorflow"])
def test_rounds_leave_nothing(
    client: tidl.Client, runtime: Path, start: Callable[..., Peer], name: str, framework: str
) -> None:
    """Written from both sides in each round, let go by either side first."""
    how = FRAMEWORKS[framework]
    owner = start(framework)
    owner.do(f"t = make_shareable(lambda: {how.make}, {name!r})")
    pids = [os.getpid(), owner.pid, *broker_pids(runtime)]
    expected = np.ones((how.side, how.side), np.float32)

    def one_round(number: int) -> None:
        owner.do(f"share({name!r}, t)\n{how.add}")
        mine = client.get(name, access="write").to_numpy()
        place = divmod(number * 257 % expected.size, how.side)
        mine[place] += 3
        if how.add:
            np.add(expected, 1, out=expected)
        expected[place] += 3
        if number % 2:
            owner.do(f"client.unshare({name!r})")
            mine[place] = -1  # too late for the owner
            del mine
        else:
            del mine
            owner.do(f"client.unshare({name!r})")

    def settled() -> Left:
        client.dispatch()
        assert owner.ask(f"[p.name for p in client.list({name!r})]") == []
        return Left.now(pids)

    for number in range(ROUNDS // 4):
        one_round(number)
    before = settled()
    for number in range(ROUNDS // 4, ROUNDS):
        one_round(number)
    # The broker closes what nobody holds by itself, a moment later.
    assert eventually(lambda: settled().descriptors == before.descriptors), (before, settled())
    after = settled()
    assert abs(after.maps - before.maps) < 20
    for grown, had in zip(after.rss_kib, before.rss_kib, strict=True):
        assert grown - had < 8 * 1024, (before, after)
    assert owner.ask(f"np.asarray({how.read}).tobytes()") == expected.tobytes()


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_there_is_no_second_copy(
    client: tidl.Client, start: Callable[..., Peer], name: str, framework: str
) -> None:
    how = FRAMEWORKS[framework]
    owner = start(framework, side=4096)
    owner.do(f"t = make_shareable(lambda: {how.make}, {name!r})")
    size_kib = 64 * 1024
    slack_kib = 16 * 1024

    def counted() -> tuple[int, int]:
        return memory_kib(owner.pid, "RssAnon"), memory_kib(owner.pid, "RssShmem")

    anon, shmem = counted()
    owner.do(f"share({name!r}, t)")
    # What is here and not in the owner's maps is counted, too: the segment's own pages.
    assert sum(s.data_size_bytes for s in client.inspect(name).segments) <= 64 * MIB + 2 * 4096
    mine = client.get(name, access="write").to_numpy()
    assert mine.sum(dtype=np.float64) == 4096 * 4096
    # Pages come into the owner's count when it touches them.
    owner.do(f"float(({how.read}).sum())")
    assert abs(counted()[0] - (anon - size_kib)) < slack_kib
    assert abs(counted()[1] - (shmem + size_kib)) < slack_kib
    # The owner calculates with what was written here.
    mine[1, 2] = 7
    if framework == "paddle":
        owner.do("w = t\nw.stop_gradient = False")
    assert owner.ask(f"float(({how.slope})[1, 2])") == 7
    del mine
    owner.do(f"client.unshare({name!r})")
    assert abs(counted()[1] - shmem) < slack_kib


# ---- writers that hold no GIL ----

WRITER = """
import threading
def count_writes(rounds, name):
    t = torch.zeros(2 * 1024 * 1024, dtype=torch.int32)
    done, ends, goes = 0, threading.Event(), threading.Event()
    def write():
        nonlocal done
        while not ends.is_set():
            t.add_(1)
            done += 1
            goes.set()
    writer = threading.Thread(target=write)
    writer.start()
    goes.wait()
    for _ in range(rounds):
        assert client.publish(name, t, copy=False).path == "in-place"
        client.unshare(name)
    ends.set()
    writer.join()
    return int((t != done).sum()), done
"""


def test_no_write_of_a_kernel_is_lost(start: Callable[..., Peer], name: str) -> None:
    """torch writes with no GIL while its tensor is moved."""
    owner = start("torch")
    owner.do(WRITER)
    lost, done = owner.ask(f"count_writes(120, {name!r})")
    assert lost == 0
    assert done > 0
