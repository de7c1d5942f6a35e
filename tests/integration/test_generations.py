# SPDX-License-Identifier: Apache-2.0
"""Generations that stay: kept by their owner, pinned, held; and what ends by itself."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from child import Child, ChildPipe
from python_brokers import eventually
from raw_peer import RawPeer
from tidl_wire import Attach, Code, Retention
from tidld_process import Broker
from users import OWNER, STRANGER, Publisher, as_root
from watcher import Kind, bits, next_event, watch
from world import QUOTA_OPTIONS, WITNESS, World

NAME = "made/x"
GROWTH_BYTES = 32 << 20
GONE = rf'generation \d+ of "{NAME}" is not published'


@pytest.fixture
def brief(start_broker: Callable[..., Broker], make_world: Callable[..., World]) -> Iterator[World]:
    """A world where pins are short."""
    world = make_world(start_broker(*QUOTA_OPTIONS, "--pin-time", "0.3"))
    with world.unharmed():
        yield world


def publish(peer: RawPeer, content: bytes, **fields: Any) -> int:
    """Gives the memory out of hand; returns the generation."""
    memory = peer.allocate(len(content))
    os.pwrite(memory.write_fd, content, 0)
    reply = peer.publish(NAME, memory.id, len(content), replace=True, **fields)
    assert reply.kind == "published", reply.packet
    memory.close()
    peer.release(segments=[memory.id])
    return int(reply.packet.published.generation)


def content_of(peer: RawPeer, **fields: Any) -> bytes:
    reply = peer.must_get(NAME, **fields)
    content = os.pread(reply.fds[0], 100, 0).rstrip(b"\0")
    peer.release(leases=[reply.packet.granted.lease_id])
    reply.close()
    return content


def is_gone(peer: RawPeer, generation: int) -> bool:
    reply = peer.get(NAME, generation=generation)
    reply.close()
    if reply.kind == "granted":
        peer.release(leases=[reply.packet.granted.lease_id])
        return False
    reply.fails_with(Code.GENERATION_GONE, GONE)
    return True


def pin(peer: RawPeer, generation: int, **fields: Any) -> None:
    reply = peer.ask("pin", name=NAME, generation=generation, **fields)
    assert reply.kind == "done", reply.packet


# ---- kept ----


def test_the_last_generations_stay(world: World, peer: RawPeer) -> None:
    before = world.used_bytes()
    made = [publish(peer, b"%d" % number, keep=3) for number in range(6)]
    for number, generation in enumerate(made):
        if number < 3:
            assert is_gone(peer, generation)
        else:
            assert content_of(peer, generation=generation) == b"%d" % number
    assert content_of(peer) == b"5"
    assert peer.names("made/**") == [NAME]
    assert list(peer.inspection(NAME).kept_generations) == made[4:2:-1]
    assert world.used_bytes() > before + 3 * 4096
    assert peer.remove(NAME).kind == "done"
    assert all(is_gone(peer, generation) for generation in made)
    assert world.used_bytes() == before


def test_one_is_enough_by_default(peer: RawPeer) -> None:
    first = publish(peer, b"1", keep=256)
    second = publish(peer, b"2", keep=256)
    assert content_of(peer, generation=first) == b"1"
    third = publish(peer, b"3")
    assert is_gone(peer, first)
    assert is_gone(peer, second)
    assert content_of(peer, generation=third) == b"3"
    peer.remove(NAME)


def test_what_is_kept_counts_for_its_owner(
    start_broker: Callable[..., Broker], make_world: Callable[..., World]
) -> None:
    """A history beyond the quota is refused, and leaves nothing of what it refused behind."""
    quota = 1 << 20
    broker = start_broker("--quota-uid", str(quota), "--quota-total", str(2 * quota))
    world = make_world(broker, quota_bytes=quota)
    with world.unharmed():
        peer = world.connect()
        made = [publish(peer, bytes(200 << 10), keep=100) for _ in range(4)]
        peer.refuses(Code.QUOTA, "bytes of shared memory", "allocate", data_size_bytes=200 << 10)
        assert all(not is_gone(peer, generation) for generation in made)
        publish(peer, b"small")
        assert all(is_gone(peer, generation) for generation in made)
        peer.remove(NAME)


def test_inspection_of_another_generation(world: World, peer: RawPeer) -> None:
    first = publish(peer, b"1", keep=2)
    second = publish(peer, b"2", keep=2)
    assert peer.inspection(NAME, generation=first).generation == first
    assert peer.inspection(NAME).generation == second
    reader = world.connect()
    reader.must_get(NAME, generation=first)
    peer.remove(NAME)
    # Nobody can attach it any more; who holds it can still be asked.
    old = peer.inspection(NAME, generation=first)
    assert [holder.process.pid for holder in old.holders] == [os.getpid()]
    peer.refuses(
        Code.GENERATION_GONE,
        "neither published nor held",
        "inspect",
        name=NAME,
        generation=second,
    )


def test_a_thousand_replacements_under_readers(world: World) -> None:
    """Each reader sees generations of one piece, that grow; nothing is left of any of them."""
    size = 4096

    def read(pipe: ChildPipe) -> None:
        with RawPeer(world.broker.socket) as peer:
            last = seen = 0
            pipe.send("reads")
            while last < 1000:
                reply = peer.must_get(NAME)
                number = reply.packet.granted.metadata
                content = os.pread(reply.fds[0], size, 0)
                assert len(set(content[8:])) == 1
                current = int.from_bytes(content[:8], "little")
                assert number == b'{"number": %d}' % current
                assert content[8] == current % 251
                assert current >= last
                seen += current > last
                last = current
                peer.release(leases=[reply.packet.granted.lease_id])
                reply.close()
            pipe.send(seen)
            pipe.block()

    def make(peer: RawPeer, number: int) -> None:
        content = number.to_bytes(8, "little") + bytes([number % 251]) * (size - 8)
        publish(peer, content, metadata=f'{{"number": {number}}}')

    maker = world.connect()
    make(maker, 0)
    before = world.broker.resident_bytes()
    children = [Child(read) for _ in range(8)]
    try:
        for child in children:
            assert child.receive() == "reads"
        for number in range(1, 1001):
            make(maker, number)
        for child in children:
            assert child.receive() > 0
        assert world.broker.resident_bytes() < before + GROWTH_BYTES
    finally:
        for child in children:
            child.__exit__(None, None, None)
    assert maker.remove(NAME).kind == "done"


# ---- pinned ----


def test_pin_outlives_name_and_connection(brief: World) -> None:
    maker, carrier, taker = brief.connect(), brief.connect(), brief.connect()
    first = publish(maker, b"old")
    pin(carrier, first)
    second = publish(maker, b"new")
    assert content_of(taker, generation=first) == b"old"
    assert content_of(taker) == b"new"
    pinned = [holder for holder in taker.inspection(NAME, generation=first).holders]
    assert [holder.kind for holder in pinned] == [3]
    assert 0 < pinned[0].left_ms <= 300
    pin(carrier, second)
    maker.remove(NAME)
    carrier.close()
    maker.close()
    assert content_of(taker, generation=second) == b"new"
    assert eventually(lambda: is_gone(taker, first) and is_gone(taker, second))


def test_pin_of_a_dead_process(brief: World) -> None:
    def work(pipe: ChildPipe) -> None:
        with RawPeer(brief.broker.socket, name="carrier") as peer:
            generation = publish(peer, b"abc", retention=Retention.OWNER)
            pin(peer, generation)
            peer.remove(NAME)
            pipe.send(generation)
            pipe.block()

    taker = brief.connect()
    with Child(work) as child:
        generation = child.receive()
        child.kill()
        assert content_of(taker, generation=generation) == b"abc"
    holder = taker.inspection(NAME, generation=generation).holders[0]
    assert holder.process.pid == child.pid
    assert eventually(lambda: is_gone(taker, generation))


def test_who_has_a_lease_may_hand_it_over(brief: World) -> None:
    """Although nobody can attach that generation by then, until it is pinned."""
    maker, reader, taker = brief.connect(), brief.connect(), brief.connect()
    generation = publish(maker, b"abc")
    reader.must_get(NAME)
    maker.remove(NAME)
    assert is_gone(taker, generation)
    taker.refuses(Code.GENERATION_GONE, GONE, "pin", name=NAME, generation=generation)
    pin(reader, generation)
    pin(taker, generation)  # pinned, hence anybody's to pin
    reader.close()
    assert content_of(taker, generation=generation) == b"abc"
    assert eventually(lambda: is_gone(taker, generation))


def test_pins_are_waited_for(brief: World) -> None:
    maker = brief.connect()
    generation = publish(maker, b"abc")
    pin(maker, generation)
    number = maker.send("wait", name=NAME, released=True)
    reply = maker.answer(number)
    assert reply.packet.waited.generation == generation
    assert [holder.kind for holder in maker.inspection(NAME).holders] == []
    maker.remove(NAME)


def test_pins_of_what_is_not_there(peer: RawPeer) -> None:
    there = peer.inspection(WITNESS).generation
    for generation in (0, there, 2**63):
        peer.refuses(Code.GENERATION_GONE, GONE, "pin", name=NAME, generation=generation)
    peer.refuses(
        Code.GENERATION_GONE, "hand over", "pin", name=WITNESS, owner_uid=7, generation=there
    )
    peer.refuses(Code.NAME_INVALID, ".", "pin", name="/", generation=there)


def test_pins_without_end(brief: World) -> None:
    """The same again prolongs; each other one counts, and all of them go."""
    peer = brief.connect()
    before = brief.broker.resident_bytes()
    for _ in range(2000):
        pin(peer, publish(peer, b"x"))
    last = peer.inspection(NAME).generation
    for _ in range(2000):
        pin(peer, last)
    assert len(peer.inspection(NAME).holders) == 1
    assert brief.broker.resident_bytes() < before + GROWTH_BYTES
    peer.remove(NAME)


@as_root
def test_rights_of_pins(brief: World) -> None:
    """Who may not read a generation may not hand it over, and who has it by its number gets
    nothing more by that."""

    def attempt(generation: int) -> list[str]:
        with RawPeer(brief.broker.socket) as peer:
            fields = {"name": "shared/x", "owner_uid": OWNER.uid, "generation": generation}
            replies = [peer.ask("pin", **fields), peer.ask("get", attach=Attach.READ, **fields)]
            return [
                Code(reply.packet.failure.code).name if reply.kind == "failure" else reply.kind
                for reply in replies
            ]

    for mode, expected in (
        (0o600, ["GENERATION_GONE", "GENERATION_GONE"]),
        (0o604, ["done", "granted"]),
    ):
        with Publisher(brief, OWNER, mode=mode, replace=True, expose=True):
            generation = brief.probe.inspection("shared/x", owner_uid=OWNER.uid).generation
            assert STRANGER.does(lambda found=generation: attempt(found)) == expected
    assert brief.probe.remove("shared/x", owner_uid=OWNER.uid).kind == "done"


# ---- seconds to live ----


@pytest.mark.parametrize("stays", [True, False])
def test_seconds_to_live(world: World, stays: bool) -> None:
    """They are over whether its publisher is there or not; holders keep their memory."""
    maker, hearer = world.connect(), world.connect()
    watch(hearer, NAME, kinds=bits(Kind.REMOVED, Kind.OWNER_DIED))
    generation = publish(maker, b"abc", retention=Retention.SECONDS, ttl_ms=150)
    held = hearer.must_get(NAME)
    info = hearer.inspection(NAME)
    assert info.retention == Retention.SECONDS
    assert info.left_ms <= 150
    if not stays:
        maker.close()
    removed = next_event(hearer)
    assert (removed.kind, removed.generation) == (Kind.REMOVED, generation)
    assert NAME not in hearer.names()
    assert os.pread(held.fds[0], 3, 0) == b"abc"


def test_replaced_before_its_time_is_over(world: World) -> None:
    """The time is the generation's, not the name's."""
    maker, hearer = world.connect(), world.connect()
    watch(hearer, "made/*", kinds=bits(Kind.REMOVED))
    publish(maker, b"1", retention=Retention.SECONDS, ttl_ms=50)
    publish(maker, b"2")
    maker.must_publish("made/y", b"y", retention=Retention.SECONDS, ttl_ms=100)
    assert next_event(hearer).name == "made/y"
    assert content_of(maker) == b"2"
    maker.remove(NAME)


def test_a_thousand_that_end_at_once(world: World) -> None:
    maker, hearer = world.connect(), world.connect()
    memory = maker.allocate(1)
    watch(hearer, "many/**", kinds=bits(Kind.REMOVED))
    for number in range(1000):
        reply = maker.publish(
            f"many/{number}", memory.id, 1, retention=Retention.SECONDS, ttl_ms=600
        )
        assert reply.kind == "published"
    assert {next_event(hearer).name for _ in range(1000)} == {
        f"many/{number}" for number in range(1000)
    }
    assert maker.names("many/**") == []


# ---- private brokers ----


@pytest.mark.parametrize("what", ["pin", "seconds", "owner"])
def test_private_broker_waits_for_what_ends_by_itself(
    start_broker: Callable[..., Broker], what: str
) -> None:
    """It exits when nothing is left, and not before."""
    options = ("--private", "--empty-exit", "0.02", "--pin-time", "0.4", "--owner-grace", "0.4")
    broker = start_broker(*options)
    began = time.monotonic()
    with RawPeer(broker.socket) as peer:
        match what:
            case "pin":
                pin(peer, publish(peer, b"x"))
                peer.remove(NAME)
            case "seconds":
                publish(peer, b"x", retention=Retention.SECONDS, ttl_ms=400)
            case "owner":
                publish(peer, b"x", retention=Retention.OWNER)
    assert broker.await_end() == 0
    # The broker's clock is coarse.
    assert time.monotonic() - began > 0.39


def test_private_broker_with_pins_is_idle_all_the_same(
    start_broker: Callable[..., Broker],
) -> None:
    broker = start_broker("--private", "--idle-exit", "0.05", "--empty-exit", "0.02")
    with RawPeer(broker.socket) as peer:
        pin(peer, publish(peer, b"x"))
    assert broker.await_end() == 0


def test_stopping_with_everything_there_is(start_broker: Callable[..., Broker]) -> None:
    broker = start_broker()
    peer = RawPeer(broker.socket)
    watch(peer, "none/**")
    for number in range(3):
        pin(peer, publish(peer, b"%d" % number, keep=2))
    publish(peer, b"x", retention=Retention.SECONDS, ttl_ms=10**15)
    publish(peer, b"x", retention=Retention.OWNER)
    peer.send("wait", name="never")
    peer.must_get(NAME)
    peer.goes_on()
    broker.stop()
    peer.close()


def test_no_work_when_nothing_ends_soon(start_broker: Callable[..., Broker]) -> None:
    """Deadlines far away cost nothing: the broker sleeps until the next one."""
    broker = start_broker(*QUOTA_OPTIONS)
    with RawPeer(broker.socket) as peer:
        for _ in range(10):
            pin(peer, publish(peer, b"x", retention=Retention.SECONDS, ttl_ms=10**9))
        watch(peer, "**")
        peer.goes_on()
        before = broker.switches()
        select.select([], [], [], 0.3)
        assert broker.switches() - before <= 4
