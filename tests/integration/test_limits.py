# SPDX-License-Identifier: Apache-2.0
"""Quotas, and a broker with few descriptors: refused by code before anything runs out."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pytest
from ctl_support import program, run
from python_brokers import eventually
from raw_peer import Memory, RawPeer, Reply
from tidl_wire import Attach, Code
from tidld_process import Broker
from world import PAGE_BYTES, QUOTA_BYTES, QUOTA_OPTIONS, WITNESS, World

DESCRIPTORS = 600  # of which 320 are kept for what must not fail, and 128 for connections


@dataclass(frozen=True)
class Kind:
    """A broker of one user gives him all; one of many gives no user more than half."""

    options: tuple[str, ...]
    memory: int
    all: int
    code: Code
    sentence: str

    def refuses(self, reply: Reply, descriptors: int) -> None:
        reply.fails_with(
            self.code,
            rf"{self.sentence} {descriptors} descriptors in the broker, has \d+ and would "
            r"need \d more: release or remove tensors, or raise RLIMIT_NOFILE of tidld",
        )


KINDS = {
    "private": Kind(("--private",), 152, 280, Code.LIMIT, "the broker serves at most"),
    "system": Kind(
        (), 124, 140, Code.QUOTA, rf"all processes of uid {os.getuid()} may have at most"
    ),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


@pytest.fixture
def narrow(
    start_broker: Callable[..., Broker], make_world: Callable[..., World], kind: Kind
) -> Iterator[World]:
    """A world whose broker has few descriptors."""
    limit = f"--nofile={DESCRIPTORS}:{DESCRIPTORS}"
    broker = start_broker(*QUOTA_OPTIONS, *kind.options, command=["prlimit", limit])
    world = make_world(broker)
    with world.unharmed():
        yield world


def allocate_all(peer: RawPeer, kind: Kind) -> list[Memory]:
    """As many segments as the broker gives."""
    found: list[Memory] = []
    while True:
        reply = peer.ask("allocate", data_size_bytes=1)
        if reply.kind == "failure":
            kind.refuses(reply, kind.memory)
            return found
        segment = reply.packet.allocated.segment
        write_fd, read_fd = reply.fds
        found.append(Memory(segment.id, 0, 0, write_fd, read_fd, reply))


def test_segments_up_to_the_limit(narrow: World, kind: Kind) -> None:
    peer = narrow.connect()
    others = narrow.connect()
    counts = []
    for _ in range(3):
        memory = allocate_all(peer, kind)
        counts.append(len(memory))
        for name in (WITNESS, WITNESS):  # needs no descriptors that stay
            assert others.must_get(name, Attach.WRITE)
        narrow.client.publish("small/x", np.ones(0))
        narrow.client.remove("small/x")
        for item in memory:
            item.close()
        peer.release(segments=[item.id for item in memory])
        peer.goes_on()
    assert counts[0] == counts[1] == counts[2]
    assert 2 * counts[0] <= kind.memory


def test_memory_up_to_the_limit_locks_nobody_out(narrow: World, kind: Kind) -> None:
    """One can always come to see what there is, take it away, and stop the broker."""
    hog = narrow.connect()
    memory = allocate_all(hog, kind)
    assert hog.publish("hog/x", memory[0].id, 1).kind == "published"
    environment = {**os.environ, "TIDL_SOCKET": str(narrow.broker.socket)}
    tidlctl = program("client/ctl/tidlctl")
    others = [narrow.connect() for _ in range(4)]
    assert all(peer.must_get(WITNESS) for peer in others)
    listing = run(tidlctl, ("list",), environment)
    assert listing.status == 0
    assert "hog/x" in listing.out
    assert run(tidlctl, ("rm", "hog/x"), environment).status == 0
    assert hog.names("hog/*") == []


def test_connections_up_to_the_limit(narrow: World, kind: Kind) -> None:
    counts = []
    for _ in range(3):
        count = 0
        while connect_or_be_refused(narrow, kind):
            count += 1
        counts.append(count)
        assert narrow.client.get(WITNESS).shape == (1000,)
        narrow.disconnect()
        assert eventually(narrow.is_welcoming)
    # The last look at whether there is room may still be on its way out.
    assert max(counts) - min(counts) <= 1
    assert 2 * counts[0] <= kind.all


def connect_or_be_refused(world: World, kind: Kind) -> bool:
    peer = world.connect(says_hello=False)
    with suppress(ConnectionError):
        peer.send("hello", number=1, min_version=1, max_version=1)
    reply = peer.receive()
    assert reply
    if reply.kind == "welcome":
        return True
    kind.refuses(reply, kind.all)
    peer.has_ended()
    return False


def test_descriptors_on_their_way_when_there_are_few(narrow: World) -> None:
    """Whoever does not read is dropped before the broker runs out."""
    slow, other = narrow.connect(), narrow.connect()
    with suppress(ConnectionError):
        for _ in range(100):
            slow.send("get", name=WITNESS, attach=Attach.READ)
    for _ in range(100):
        other.must_get(WITNESS).close()


def test_many_packets_of_descriptors_when_there_are_few(narrow: World, kind: Kind) -> None:
    """The broker can receive what it then refuses."""
    fd = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
    filler = allocate_all(narrow.connect(), kind)
    assert filler
    for _ in range(20):
        with RawPeer(narrow.broker.socket, says_hello=False) as peer:
            with suppress(ConnectionError):
                peer.send_bytes(b"x", [fd] * 253)
            reply = peer.receive()
            assert reply
            assert reply.packet.failure.code in (Code.PROTOCOL, Code.LIMIT, kind.code)
    os.close(fd)
    assert narrow.client.get(WITNESS).shape == (1000,)


def test_too_few_descriptors_to_begin_with(start_broker: Callable[..., Broker]) -> None:
    broker = start_broker(is_ready=False, command=["prlimit", "--nofile=300:300"])
    assert broker.await_end() == 1
    assert b"only 300 descriptors are allowed (RLIMIT_NOFILE): tidld needs 512" in broker.log
    assert not broker.socket.exists()


def test_soft_limit_is_raised(start_broker: Callable[..., Broker]) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    broker = start_broker(command=["prlimit", f"--nofile=256:{hard}"])
    soft = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)[0]
    assert soft == min(hard, 1 << 20)


# ---- bytes ----


def test_quota_to_the_last_byte(world: World, peer: RawPeer) -> None:
    """What is listed counts as well; the pages of a segment are whole ones."""
    first = peer.allocate(1)
    used = world.used_bytes()
    left_pages = (QUOTA_BYTES - used) // PAGE_BYTES
    peer.refuses(
        Code.QUOTA,
        f"all processes of uid {os.getuid()} may have at most {QUOTA_BYTES} bytes of shared "
        rf"memory, has {used} and would need {(left_pages + 1) * PAGE_BYTES} more: release or",
        "allocate",
        data_size_bytes=left_pages * PAGE_BYTES,
    )
    large = peer.allocate((left_pages - 1) * PAGE_BYTES)
    assert large.size_bytes == left_pages * PAGE_BYTES
    assert world.used_bytes() == used + large.size_bytes
    other = world.connect()
    other.refuses(Code.QUOTA, "would need 8192 more", "allocate", data_size_bytes=1)
    assert peer.publish("bad/full", first.id, 1).kind in ("published", "failure")
    peer.release(segments=[large.id])
    peer.goes_on()
    assert other.allocate(1)
    peer.remove("bad/full")


def test_publications_count_too(world: World, peer: RawPeer) -> None:
    """Names without memory do not come for nothing."""
    first = peer.allocate(1)
    left = QUOTA_BYTES - world.used_bytes()
    filler = peer.allocate(left // PAGE_BYTES * PAGE_BYTES - PAGE_BYTES)
    published = 0
    metadata = '{"a": "' + "x" * 4000 + '"}'
    while True:
        reply = peer.publish(f"bad/{published}", first.id, 1, metadata=metadata)
        if reply.kind == "failure":
            break
        published += 1
    reply.fails_with(Code.QUOTA, "bytes of shared memory")
    assert published < 2
    peer.release(segments=[filler.id])
    assert peer.publish("bad/after", first.id, 1, metadata=metadata).kind == "published"
    for name in peer.names("bad/*"):
        assert peer.remove(name).kind == "done"


def test_quota_of_all_together(
    start_broker: Callable[..., Broker], make_world: Callable[..., World]
) -> None:
    world = make_world(start_broker("--quota-total", "1M", "--quota-uid", "2M"))
    peer = world.connect()
    peer.refuses(
        Code.LIMIT,
        r"the broker serves at most 1048576 bytes of shared memory, has \d+ and would need",
        "allocate",
        data_size_bytes=1 << 20,
    )
    assert peer.allocate(1 << 19)
    peer.refuses(Code.LIMIT, "at most 1048576 bytes", "allocate", data_size_bytes=1 << 19)
    world.disconnect()
    world.serves()
    assert eventually(
        lambda: world.probe.ask("allocate", data_size_bytes=900 << 10).kind == "allocated"
    )


def test_charge_of_a_removed_tensor_stays_with_its_reader(world: World) -> None:
    maker, reader = world.connect(), world.connect()
    before = world.used_bytes()
    memory = maker.must_publish("bad/x", bytes(1 << 20))
    lease = reader.must_get("bad/x").packet.granted.lease_id
    listed = world.used_bytes()
    assert listed - before > memory.size_bytes
    assert maker.remove("bad/x").kind == "done"
    maker.close()
    # Nobody tells when the broker has seen the end of the maker; the bytes are the reader's then.
    world.serves()
    assert world.used_bytes() == listed
    reader.release(leases=[lease])
    reader.goes_on()
    assert eventually(lambda: world.used_bytes() == before)
