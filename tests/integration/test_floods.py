# SPDX-License-Identifier: Apache-2.0
"""Clients that ask faster than they read, in great numbers, or not at all."""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import socket
import struct
import termios
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import FrameType
from typing import Any

import pytest
from child import Child, ChildPipe
from python_brokers import eventually
from raw_peer import RawPeer
from tidl_wire import Attach, Code, pack
from world import CONTENT, WITNESS, World

import tidl

UNREAD_PACKETS = 512
GROWTH_BYTES = 64 << 20
WAITS_PER_CONNECTION = 1024
NAME = "flood/x"
INTERVAL_S = 0.0003


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """For a thousand connections this process needs as many descriptors."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] < 3000:
        pytest.skip(f"only {before[1]} descriptors are allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


REQUESTS = {
    "small": pack("get", 3, name="nothing", attach=Attach.READ),
    "large": pack("inspect", 3, name=WITNESS),
    "descriptors": pack("get", 3, name=WITNESS, attach=Attach.READ),
    "memory": pack("allocate", 3, data_size_bytes=1),
}


@pytest.mark.parametrize("packet", REQUESTS.values(), ids=REQUESTS)
def test_requests_without_end_and_no_reading(world: World, peer: RawPeer, packet: bytes) -> None:
    """Beyond what the broker keeps for it, a client is not read either until it reads."""
    before = world.broker.resident_bytes()
    sent = send_until_stuck(world, peer, packet)
    assert UNREAD_PACKETS <= sent < 10000
    world.serves()
    assert world.broker.resident_bytes() < before + GROWTH_BYTES
    for _ in range(sent):
        reply = peer.receive()
        assert reply
        assert reply.request_id == 3
        reply.close()
    peer.goes_on()


def outgoing_bytes(peer: RawPeer) -> int:
    """What the broker has not received yet."""
    (size,) = struct.unpack("i", fcntl.ioctl(peer.socket, termios.TIOCOUTQ, bytes(4)))
    return int(size)


def send_until_stuck(world: World, peer: RawPeer, packet: bytes) -> int:
    """Returns how often it was sent before the broker read no more."""
    sent = 0
    peer.socket.setblocking(False)
    while sent < 10000:
        try:
            peer.send_bytes(packet)
            sent += 1
        except BlockingIOError:
            before = outgoing_bytes(peer)
            # In the same turn of its loop it takes a packet from each client that it reads.
            world.serves()
            if outgoing_bytes(peer) == before:
                break
    peer.socket.setblocking(True)
    return sent


def test_requests_without_end_by_many(world: World) -> None:
    """Each of them stays below what would have it dropped."""
    before = world.broker.resident_bytes()
    peers = [world.connect() for _ in range(20)]
    for peer in peers:
        for _ in range(UNREAD_PACKETS):
            peer.send_bytes(REQUESTS["large"])
    world.serves()
    assert world.broker.resident_bytes() < before + GROWTH_BYTES
    for peer in peers:
        for _ in range(UNREAD_PACKETS):
            reply = peer.receive()
            assert reply
            assert reply.kind == "inspection"


def test_pipelined_requests_are_all_answered(peer: RawPeer) -> None:
    requests: dict[str, dict[str, Any]] = {
        "get": {"name": WITNESS, "attach": Attach.READ},
        "list": {"pattern": "**"},
        "inspect": {"name": WITNESS},
        "allocate": {"data_size_bytes": 1},
    }
    for _ in range(30):
        asked = [peer.send(kind, **fields) for kind, fields in requests.items()]
        answered = []
        for _ in asked:
            reply = peer.receive()
            assert reply
            assert reply.kind != "failure"
            answered.append(reply.request_id)
            reply.close()
        assert answered == asked


# ---- clients that are interrupted ----


class Interrupted(Exception):
    pass


def interrupt_calls(count: int, call: Callable[[], object]) -> None:
    """Calls it as often, and ends each call by a signal, as Ctrl-C does."""
    is_inside = False

    def handler(number: int, frame: FrameType | None) -> None:
        nonlocal is_inside
        if is_inside:
            is_inside = False
            raise Interrupted

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, INTERVAL_S, INTERVAL_S)
    try:
        for _ in range(count):
            with suppress(Interrupted):
                is_inside = True
                call()
    finally:
        is_inside = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_interrupted_calls_lose_no_connection(world: World) -> None:
    """Nobody takes the answers to what was given up, until somebody calls again."""
    before = len(world.client.inspect(WITNESS).holders)
    with tidl.connect(world.broker.socket) as client:
        for _ in range(6):
            world.broker.freeze()
            try:
                interrupt_calls(250, lambda: client.get(WITNESS))
            finally:
                world.broker.thaw()
            held, now = 0, before
            # It takes a packet from each client in turn, so it has them all when it takes no more.
            while now > held:
                held, now = now, len(world.client.inspect(WITNESS).holders)
        assert held > UNREAD_PACKETS
        assert client.get(WITNESS).to_numpy().tolist() == CONTENT


# ---- descriptors on their way ----


def unread(peer: RawPeer) -> list[int]:
    """How many descriptors each packet has that lies unread in this peer's queue."""
    counts = []
    peer.socket.setblocking(False)
    with suppress(BlockingIOError):
        while reply := peer.receive():
            assert reply.kind in ("granted", "allocated", "listing")
            counts.append(len(reply.fds))
    peer.socket.setblocking(True)
    return counts


@pytest.mark.parametrize("kind", ["get", "allocate"])
def test_one_packet_with_descriptors_at_a_time(world: World, kind: str) -> None:
    """What lies unread in queues counts against the broker's own limit."""
    peers = [world.connect() for _ in range(3)]
    fields: dict[str, dict[str, Any]] = {
        "get": {"name": NAME, "attach": Attach.READ},
        "allocate": {"data_size_bytes": 1},
    }
    maker = world.connect()
    maker.must_publish(NAME, b"x")
    for peer in peers:
        for _ in range(50):
            peer.send(kind, **fields[kind])
        peer.send("list", pattern="none")

    def is_done() -> bool:
        """The broker has answered everything, as far as it does."""
        if kind == "get":
            return len(world.client.inspect(NAME).holders) == 1 + 3 * 50
        return sum("/memfd:tidl:" in path for path in world.broker.descriptors()) >= 3 * 50 * 2

    assert eventually(is_done)
    world.broker.freeze()
    in_flight = [unread(peer) for peer in peers]
    world.broker.thaw()
    each = 1 if kind == "get" else 2
    assert in_flight == [[each]] * 3
    for peer in peers:
        for _ in range(49):
            reply = peer.receive()
            assert reply
            assert len(reply.fds) == each
            reply.close()
        last = peer.receive()
        assert last
        assert last.kind == "listing"
    assert maker.remove(NAME).kind == "done"


def test_slow_reader_holds_up_nobody(world: World, peer: RawPeer) -> None:
    for _ in range(100):
        peer.send("get", name=WITNESS, attach=Attach.READ)
    for _ in range(100):
        with RawPeer(world.broker.socket) as other:
            assert other.must_get(WITNESS)


# ---- stopped processes ----


def test_stopped_client(world: World) -> None:
    """Whoever has asked for nothing may stand still as long as he likes."""

    def work(pipe: ChildPipe) -> None:
        with RawPeer(world.broker.socket) as peer:
            lease = peer.must_get(WITNESS).packet.granted.lease_id
            pipe.send("ready")
            pipe.recv()
            peer.release(leases=[lease])
            peer.goes_on()
            pipe.send("gone on")

    with Child(work) as child:
        assert child.receive() == "ready"
        child.freeze()
        for _ in range(20):
            world.serves()
        assert child.pid in [holder.pid for holder in world.client.inspect(WITNESS).holders]
        child.thaw()
        child.send("go on")
        assert child.receive() == "gone on"


def test_stopped_client_with_answers_on_their_way(world: World) -> None:
    def work(pipe: ChildPipe) -> None:
        with RawPeer(world.broker.socket) as peer:
            for _ in range(100):
                peer.send("get", name=WITNESS, attach=Attach.READ)
            pipe.send("asked")
            pipe.recv()
            for _ in range(100):
                reply = peer.receive()
                assert reply
                assert len(reply.fds) == 1
                reply.close()
            pipe.send("read")

    with Child(work) as child:
        assert child.receive() == "asked"
        child.freeze()
        for _ in range(20):
            world.serves()
        child.thaw()
        child.send("read")
        assert child.receive() == "read"


def test_stopped_client_that_is_killed(world: World) -> None:
    def work(pipe: ChildPipe) -> None:
        with RawPeer(world.broker.socket) as peer:
            for _ in range(100):
                peer.send("get", name=WITNESS, attach=Attach.WRITE)
            pipe.send("asked")
            pipe.block()

    with Child(work) as child:
        child.receive()
        child.freeze()
        world.serves()
        child.kill()


# ---- connections ----


def test_a_thousand_connections(world: World, many_descriptors: None) -> None:
    peers = [world.connect() for _ in range(1000)]
    world.serves()
    for peer in peers[::7]:
        assert peer.must_get(WITNESS)
    world.serves()


def test_connections_that_say_nothing(world: World, many_descriptors: None) -> None:
    silent = [world.connect(says_hello=False) for _ in range(500)]
    world.serves()
    for peer in silent[::5]:
        assert peer.ask("hello", min_version=1, max_version=1).kind == "welcome"


@pytest.mark.parametrize("manner", ["at_once", "with_hello", "after_hello", "half"])
def test_connect_and_close(world: World, manner: str) -> None:
    for _ in range(500):
        peer = RawPeer(world.broker.socket, says_hello=manner == "after_hello")
        if manner == "with_hello":
            peer.send("hello", min_version=1, max_version=1)
        elif manner == "half":
            peer.socket.shutdown(socket.SHUT_RD)
            peer.send("hello", min_version=1, max_version=1)
        peer.close()
    world.serves()


@pytest.mark.parametrize("how", [socket.SHUT_RD, socket.SHUT_WR, socket.SHUT_RDWR])
def test_half_closed_connection(world: World, how: int) -> None:
    """It is over, as a whole."""
    peer = world.connect()
    peer.must_get(WITNESS)
    peer.send("get", name="never", attach=Attach.READ, wait=True)
    peer.goes_on()
    peer.socket.shutdown(how)
    if how == socket.SHUT_WR:
        peer.has_ended()
    elif how == socket.SHUT_RD:
        with pytest.raises(BrokenPipeError):
            while True:
                peer.send("list", pattern="none")
    # The rest is seen when the test ends: nothing of it is left, although the socket is open.
    assert eventually(lambda: len(world.client.inspect(WITNESS).holders) == 1)


# ---- waits ----


def test_limit_of_waits(world: World, peer: RawPeer) -> None:
    waits = [
        peer.send("get", name=f"never/{number % 7}", attach=Attach.READ, wait=True)
        for number in range(WAITS_PER_CONNECTION)
    ]
    sentence = (
        f"one connection of uid {os.getuid()} may have at most {WAITS_PER_CONNECTION} waiting "
        f"requests, has {WAITS_PER_CONNECTION} and would need 1 more: cancel some first"
    )
    peer.refuses(Code.QUOTA, sentence, "get", name="never", attach=Attach.READ, wait=True)
    peer.cancel(waits[500])
    peer.answer(waits[500]).fails_with(Code.CANCELLED, "cancelled")
    peer.send("get", name="never", attach=Attach.READ, wait=True)
    peer.refuses(Code.QUOTA, sentence, "get", name="never", attach=Attach.READ, wait=True)
    other = world.connect()
    waiting = other.send("get", name="never/1", attach=Attach.READ, wait=True)
    maker = world.connect()
    maker.must_publish("never/1", b"x")
    assert other.answer(waiting).kind == "granted"
    assert world.client.get(WITNESS).to_numpy().tolist() == CONTENT
    assert maker.remove("never/1").kind == "done"
