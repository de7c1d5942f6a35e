# SPDX-License-Identifier: Apache-2.0
"""Publishing foreign tensors again and again: the same memory, and never under anybody's eyes."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest
from python_peer import Peer

import tidl


def inode(client: tidl.Client, name: str) -> int:
    return client.inspect(name).segments[0].inode


def publish(client: tidl.Client, name: str, array: np.ndarray) -> int:
    publication = client.publish(name, array, replace=True)
    assert (publication.copied, publication.path) == (True, "copied")
    return inode(client, name)


@pytest.fixture
def producer() -> tidl.Client:
    """A connection with a pool of its own."""
    with tidl.connect() as client:
        yield client


def test_memory_is_used_again(producer: tidl.Client, name: str) -> None:
    array = np.zeros(5000)
    seen = []
    for step in range(12):
        array[:] = step
        seen.append(publish(producer, name, array))
        assert producer.get(name).to_numpy().tolist() == [step] * 5000
    assert len(set(seen[:3])) == 3  # the first is given away, and two take turns
    assert set(seen[3:]) == set(seen[1:3])


def test_another_size_gets_other_memory(producer: tidl.Client, name: str) -> None:
    small, large = np.ones(10), np.ones(5000)
    first = {publish(producer, name, small) for _ in range(6)}
    second = {publish(producer, name, large) for _ in range(6)}
    assert not first & second
    assert first & {publish(producer, name, small) for _ in range(2)}


def test_nothing_old_is_left(producer: tidl.Client, name: str) -> None:
    """Memory is handed out in pages; what a shorter tensor leaves of one is zero."""
    for _ in range(4):
        publish(producer, name, np.full(4096, 0xEE, dtype="u1"))
    seen = {publish(producer, name, np.full(100, 1, dtype="u1")) for _ in range(2)}
    publish(producer, name, np.full(4096, 0xEE, dtype="u1"))
    assert inode(producer, name) not in seen or len(seen) == 2
    publish(producer, name, np.full(100, 1, dtype="u1"))
    y = producer.get(name)
    with open("/proc/self/mem", "rb") as memory:
        memory.seek(y._address)
        assert memory.read(4096) == b"\1" * 100 + bytes(3996)


def test_bundles_are_copied_into_it_as_well(producer: tidl.Client, name: str) -> None:
    seen = []
    for step in range(8):
        bundle = {"a": np.full(100, step, "u1"), "b": np.full((3, 5), step).T}
        assert producer.publish(name, bundle, replace=True).copied
        seen.append(inode(producer, name))
        got = producer.get(name)
        assert got["a"].to_numpy().tolist() == [step] * 100
        assert got["b"].to_numpy().tolist() == [[step] * 3] * 5
        y = got["a"]
        with open("/proc/self/mem", "rb") as memory:
            memory.seek(y._address)
            assert memory.read(256)[100:] == bytes(156)
        del y, got
    assert len(set(seen)) < 6


def test_a_reader_keeps_what_it_has(producer: tidl.Client, peer: Peer, name: str) -> None:
    array = np.zeros(1000)
    peer.do("held = []")
    for step in range(12):
        array[:] = step
        publish(producer, name, array)
        peer.do(f"held.append((client.get({name!r})))\nheld = held[-3:]")
        expected = [float(max(step - 2, 0) + i) for i in range(min(step + 1, 3))]
        assert peer.ask("[float(y.to_numpy().min()) for y in held]") == expected
        assert peer.ask("[float(y.to_numpy().max()) for y in held]") == expected


def test_a_forked_child_keeps_what_it_inherited(
    producer: tidl.Client, peer: Peer, name: str
) -> None:
    """Its parent gives the lease back; the child has no lease, and the map all the same."""
    array = np.zeros(1000)
    for step in range(4):
        array[:] = step
        publish(producer, name, array)
    before = inode(producer, name)
    peer.do(
        f"y = client.get({name!r})\nask, answer = os.pipe(), os.pipe()\npid = os.fork()\n"
        "if pid == 0:\n"
        "    os.read(ask[0], 1)\n"
        "    os.write(answer[1], repr(set(y.to_numpy().tolist())).encode())\n"
        "    os._exit(0)\n"
        "y.release(); client.list()"
    )
    for step in range(4, 12):
        array[:] = step
        assert publish(producer, name, array) != before
    peer.do("os.write(ask[1], b'x')\nseen = os.read(answer[0], 100)\nos.waitpid(pid, 0)")
    assert peer.ask("seen") == b"{3.0}"


def test_a_killed_reader_may_have_left_children(
    producer: tidl.Client, peer: Peer, name: str
) -> None:
    array = np.zeros(1000)
    for _ in range(4):
        publish(producer, name, array)
    before = inode(producer, name)
    peer.do(
        f"import signal\ny = client.get({name!r})\n"
        "pid = os.fork()\nif pid == 0:\n    signal.pause()"
    )
    child = peer.ask("pid")
    try:
        peer.kill()
        assert all(publish(producer, name, array) != before for _ in range(8))
    finally:
        os.kill(child, signal.SIGKILL)


def test_what_was_written_by_others_is_not_used_again(
    producer: tidl.Client, peer: Peer, name: str
) -> None:
    array = np.zeros(1000)
    for _ in range(4):
        publish(producer, name, array)
    before = inode(producer, name)
    peer.do(f"y = client.get({name!r}, access='write')\ny.release()\nclient.list()")
    assert all(publish(producer, name, array) != before for _ in range(8))


def test_private_pages_go_on(producer: tidl.Client, name: str) -> None:
    """Whoever has it copy-on-write is granted it, since the pool is no writer."""
    array = np.zeros(1000)
    for step in range(6):
        array[:] = step
        publish(producer, name, array)
        with tidl.connect() as other:
            mine = other.get(name, access="copy_on_write")
            assert set(mine.to_numpy().tolist()) == {step}
            mine.release()


def test_immutable_copies_are_used_once(producer: tidl.Client, name: str) -> None:
    array = np.zeros(1000)
    seen = []
    for _ in range(6):
        producer.publish(name, array, replace=True, access="immutable")
        seen.append(inode(producer, name))
    assert len(set(seen)) == 6


def test_memory_goes_back_with_the_connection(client: tidl.Client, name: str) -> None:
    with tidl.connect() as producer:
        for step in range(6):
            publish(producer, f"{name}/{step}", np.zeros(1000))
    for step in range(6):
        assert client.get(f"{name}/{step}").to_numpy().sum() == 0
        client.remove(f"{name}/{step}")


def test_a_child_of_the_producer_publishes_on(producer: tidl.Client, name: str) -> None:
    array = np.zeros(1000)
    for _ in range(4):
        publish(producer, name, array)
    pid = os.fork()
    if pid == 0:
        for _ in range(4):
            array[:] = 8
            producer.publish(f"{name}/child", array, replace=True)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert producer.get(f"{name}/child").to_numpy().sum() == 8000
    assert producer.get(name).to_numpy().sum() == 0
    publish(producer, name, array)


def test_a_refused_publish_leaves_the_next_one_alone(producer: tidl.Client, name: str) -> None:
    array = np.zeros(1000)
    for _ in range(4):
        publish(producer, name, array)
    with pytest.raises(tidl.ExistsError):
        producer.publish(name, np.ones(1000))
    assert producer.get(name).to_numpy().sum() == 0
    for _ in range(4):
        publish(producer, name, array)
