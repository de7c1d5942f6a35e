# SPDX-License-Identifier: Apache-2.0
"""Watches: who hears what, and what becomes of those who do not listen."""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from contextlib import suppress

import pytest
from child import Child, ChildPipe, become
from python_brokers import eventually
from raw_peer import RawPeer, publication
from tidl_wire import Attach, Code, Retention
from tidld_process import Broker
from users import GROUP, MEMBER, OWNER, STRANGER, Publisher, as_root
from watcher import (
    Event,
    Kind,
    answer_among_events,
    bits,
    has_no_event,
    next_event,
    next_packet,
    watch,
)
from world import QUOTA_OPTIONS, WITNESS, World

NAME = "seen/x"
EVENTS_PER_WATCH = 1024
WATCHES_PER_CONNECTION = 256
GROWTH_BYTES = 32 << 20


def generation_of(peer: RawPeer, name: str = NAME) -> int:
    return int(peer.inspection(name).generation)


# ---- what happens to a name ----


@pytest.mark.parametrize("pattern", [NAME, "seen/*", "**", "*/x"])
def test_all_that_happens_to_a_name(world: World, pattern: str) -> None:
    maker, reader, hearer = world.connect(), world.connect(), world.connect()
    watch(hearer, pattern)
    memory = maker.must_publish(NAME, b"abc")
    first = generation_of(maker)
    lease = reader.must_get(NAME, Attach.WRITE).packet.granted.lease_id
    second = maker.publish(NAME, memory.id, 3, replace=True).packet.published.generation
    reader.release(leases=[lease])
    reader.goes_on()
    assert maker.remove(NAME).kind == "done"
    assert next_event(hearer) == Event(Kind.PUBLISHED, NAME, first)
    leased = next_packet(hearer)
    assert (leased.kind, leased.generation) == (Kind.LEASED, first)
    assert (leased.holder_uid, leased.holder_pid) == (os.getuid(), os.getpid())
    assert leased.attach == Attach.WRITE
    assert next_event(hearer) == Event(Kind.REPLACED, NAME, second)
    assert next_event(hearer) == Event(Kind.RELEASED, NAME, first)
    assert next_event(hearer) == Event(Kind.REMOVED, NAME, second)
    has_no_event(hearer)


def test_only_what_matches_and_is_wanted(world: World) -> None:
    maker, hearer = world.connect(), world.connect()
    ids = [
        watch(hearer, "seen/*", kinds=bits(Kind.REMOVED)),
        watch(hearer, "other/**"),
        watch(hearer, NAME, owner_uid=os.getuid() + 1),
        watch(hearer, "**", any_owner=True, kinds=bits(Kind.PUBLISHED, Kind.LOST)),
    ]
    maker.must_publish(NAME, b"a")
    maker.must_publish(NAME, b"a", replace=True)
    maker.remove(NAME)
    heard = [next_packet(hearer) for _ in range(2)]
    assert [event.watch_id for event in heard] == [ids[3], ids[0]]
    assert [event.kind for event in heard] == [Kind.PUBLISHED, Kind.REMOVED]
    has_no_event(hearer)


def test_ones_own_events_come_behind_the_answer(peer: RawPeer) -> None:
    watch(peer, "**")
    memory = peer.allocate(1)
    assert peer.publish(NAME, memory.id, 1).kind == "published"
    assert next_event(peer).kind == Kind.PUBLISHED
    assert peer.must_get(NAME)
    assert next_event(peer).kind == Kind.LEASED
    assert peer.remove(NAME).kind == "done"
    assert next_event(peer).kind == Kind.REMOVED


def test_the_end_of_a_reader_is_heard(world: World) -> None:
    hearer = world.connect()

    def work(pipe: ChildPipe) -> None:
        with RawPeer(world.broker.socket) as reader:
            for _ in range(3):
                reader.must_get(WITNESS)
            pipe.send("holds")
            pipe.block()

    with Child(work) as child:
        child.receive()
        watch(hearer, WITNESS)
        child.kill()
        for _ in range(3):
            released = next_packet(hearer)
            assert (released.kind, released.holder_pid) == (Kind.RELEASED, child.pid)
    has_no_event(hearer)


def test_unwatch(world: World) -> None:
    maker, hearer = world.connect(), world.connect()
    ended, kept = watch(hearer, "**"), watch(hearer, NAME)
    maker.must_publish(NAME, b"a")
    assert {next_packet(hearer).watch_id for _ in range(2)} == {ended, kept}
    hearer.send("unwatch", number=0, watch_id=ended)
    hearer.send("unwatch", number=0, watch_id=ended)
    hearer.send("unwatch", number=0, watch_id=2**63)
    hearer.goes_on()
    maker.remove(NAME)
    assert next_packet(hearer).watch_id == kept
    has_no_event(hearer)


@pytest.mark.parametrize("retention", [Retention.OWNER, Retention.PERSIST])
def test_goodbye_is_no_death(world: World, retention: Retention) -> None:
    hearer = world.connect()
    watch(hearer, NAME)
    maker = world.connect()
    maker.must_publish(NAME, b"a", retention=retention)
    generation = generation_of(maker)
    maker.send("goodbye", number=0)
    maker.goes_on()  # what is asked behind it is still answered
    maker.close()
    assert next_event(hearer) == Event(Kind.PUBLISHED, NAME, generation)
    if retention == Retention.PERSIST:
        has_no_event(hearer)
        assert hearer.remove(NAME).kind == "done"
    assert next_event(hearer) == Event(Kind.REMOVED, NAME, generation)


@pytest.mark.parametrize("manner", ["killed", "closed", "broke_the_protocol"])
def test_death_of_an_owner(world: World, manner: str) -> None:
    """Its tensor is there for a while: whoever heard of the death can still save it."""
    hearer = world.connect()
    watch(hearer, NAME)

    def work(pipe: ChildPipe) -> None:
        with RawPeer(world.broker.socket) as maker:
            maker.must_publish(NAME, b"abc", retention=Retention.OWNER)
            pipe.send("published")
            pipe.recv()
            if manner == "broke_the_protocol":
                maker.send_bytes(b"x")
            maker.close()
            pipe.send("left")
            pipe.block()

    with Child(work) as child:
        child.receive()
        generation = generation_of(world.probe)
        if manner == "killed":
            child.kill()
        else:
            child.send("leave")
            assert child.receive() == "left"
    assert next_event(hearer) == Event(Kind.PUBLISHED, NAME, generation)
    assert next_event(hearer) == Event(Kind.OWNER_DIED, NAME, generation)
    saved = hearer.must_get(NAME)
    assert os.pread(saved.fds[0], 3, 0) == b"abc"
    assert next_event(hearer) == Event(Kind.LEASED, NAME, generation)
    assert 0 < world.probe.inspection(NAME).left_ms <= 2000
    assert next_event(hearer) == Event(Kind.REMOVED, NAME, generation)
    assert NAME not in hearer.names()


def test_an_owner_that_starts_again(world: World) -> None:
    """It need not know that it died before."""
    hearer, first, second = world.connect(), world.connect(), world.connect()
    watch(hearer, NAME, kinds=bits(*Kind) & ~bits(Kind.LEASED, Kind.RELEASED))
    memory = first.must_publish(NAME, b"a", retention=Retention.OWNER)
    second.must_publish("seen/y", b"a", retention=Retention.OWNER)
    memory.close()
    other = second.allocate(1)
    second.refuses(Code.EXISTS, "is published already", "publish", **publication(NAME, other.id, 1))
    first.close()
    assert [next_event(hearer).kind for _ in range(2)] == [Kind.PUBLISHED, Kind.OWNER_DIED]
    second.must_publish(NAME, b"b", retention=Retention.OWNER)
    assert next_event(hearer) == Event(Kind.REPLACED, NAME, generation_of(second))
    assert not second.inspection(NAME).HasField("left_ms")


# ---- rights ----


@as_root
def test_watcher_without_rights(world: World) -> None:
    """It hears of nothing that it may not see, and of no lease that is not its business."""

    def hear(uid: int, gid: int, groups: tuple[int, ...]) -> Callable[[ChildPipe], None]:
        def work(pipe: ChildPipe) -> None:
            become(uid, gid, groups)
            with RawPeer(world.broker.socket) as peer:
                watch(peer, "**", any_owner=True)
                watch(peer, "shared/x", owner_uid=OWNER.uid)
                pipe.send("watches")
                pipe.recv()
                _, events = answer_among_events(peer, peer.send("list", pattern="none"))
                pipe.send([(event.kind, event.name) for event in events])

        return work

    users = (MEMBER, STRANGER)
    for mode, hearers in ((0o600, ()), (0o640, (MEMBER,)), (0o604, (STRANGER,)), (0o644, users)):
        children = [Child(hear(user.uid, user.gid, user.groups)) for user in users]
        try:
            for child in children:
                child.receive()
            with Publisher(world, OWNER, mode=mode, gid=GROUP, expose=True):
                lease = world.probe.must_get("shared/x", owner_uid=OWNER.uid)
                world.probe.release(leases=[lease.packet.granted.lease_id])
                lease.close()
            assert world.probe.remove("shared/x", owner_uid=OWNER.uid).kind == "done"
            for user, child in zip(users, children, strict=True):
                child.send("go on")
                expected = [(Kind.PUBLISHED, "shared/x"), (Kind.REMOVED, "shared/x")]
                heard = child.receive()
                if user in hearers:
                    assert sorted(heard) == sorted(2 * expected)
                else:
                    assert heard == []
        finally:
            for child in children:
                child.__exit__(None, None, None)


# ---- who does not listen ----


def test_slow_watcher_loses_events_and_nothing_else(world: World) -> None:
    maker, hearer = world.connect(), world.connect()
    watch(hearer, "seen/**")
    memory = maker.allocate(1)
    before = world.broker.resident_bytes()
    count = 5000
    for number in range(count):
        maker.publish(NAME, memory.id, 1, replace=number > 0)
    assert world.broker.resident_bytes() < before + GROWTH_BYTES
    world.serves()
    heard = []
    while (event := next_event(hearer)).kind != Kind.LOST:
        heard.append(event.generation)
    assert EVENTS_PER_WATCH <= len(heard) < count
    assert heard == list(range(heard[0], heard[0] + len(heard)))
    # What happens from now on is heard again, and the connection is as good as ever.
    has_no_event(hearer)
    assert hearer.must_get(WITNESS)
    assert maker.remove(NAME).kind == "done"
    assert next_event(hearer).kind == Kind.REMOVED


def test_answers_do_not_wait_for_events_to_be_read(world: World) -> None:
    """A client that reads what it asked for gets it, however much else lies in between."""
    maker, hearer = world.connect(), world.connect()
    watch(hearer, "**")
    memory = maker.allocate(1)
    for number in range(3000):
        maker.publish(NAME, memory.id, 1, replace=number > 0)
    asked = [
        hearer.send(kind, **fields)
        for _ in range(50)
        for kind, fields in (
            ("get", {"name": WITNESS, "attach": Attach.READ}),
            ("list", {"pattern": "**"}),
        )
    ]
    events: list[Event] = []
    for number in asked:
        reply, before = answer_among_events(hearer, number)
        assert reply.kind in ("granted", "listing")
        reply.close()
        events += before
    while len([event for event in events if event.kind == Kind.LEASED]) < 50:
        events.append(next_event(hearer))
        if events[-1].kind == Kind.LOST:
            break
    assert maker.remove(NAME).kind == "done"


def test_stopped_watcher(world: World) -> None:
    """Whoever watches and stands still is lost nothing but events, and costs nobody anything."""

    def work(pipe: ChildPipe) -> None:
        with RawPeer(world.broker.socket) as peer:
            watch(peer, "**")
            pipe.send("watches")
            pipe.recv()
            _, events = answer_among_events(peer, peer.send("list", pattern="none"))
            while not any(event.kind == Kind.LOST for event in events):
                events.append(next_event(peer))
            pipe.send(len(events))

    maker = world.connect()
    memory = maker.allocate(1)
    with Child(work) as child:
        child.receive()
        child.freeze()
        for number in range(4000):
            maker.publish(NAME, memory.id, 1, replace=number > 0)
        world.serves()
        child.thaw()
        child.send("read")
        assert EVENTS_PER_WATCH < child.receive() < 4000
    assert maker.remove(NAME).kind == "done"


@pytest.mark.parametrize("what", ["events", "descriptors"])
def test_no_work_for_what_nobody_reads(
    start_broker: Callable[..., Broker], make_world: Callable[..., World], what: str
) -> None:
    """Nor for what was given up before it could be sent."""
    broker = start_broker(*QUOTA_OPTIONS)
    world = make_world(broker)
    maker, hearer = world.connect(), world.connect()
    number = watch(hearer, "**")
    memory = maker.allocate(1)
    if what == "events":
        for turn in range(2000):
            maker.publish(NAME, memory.id, 1, replace=turn > 0)
        sleeps(broker)
    else:
        asked = hearer.send("get", name=WITNESS, attach=Attach.READ)  # and LEASED behind it
        assert eventually(lambda: len(world.client.inspect(WITNESS).holders) == 2)
    hearer.send("unwatch", number=0, watch_id=number)
    world.serves()
    if what == "events":
        hearer.socket.setblocking(False)
        with suppress(BlockingIOError):
            while hearer.receive():
                pass
        hearer.socket.setblocking(True)
    sleeps(broker)
    if what == "descriptors":
        assert hearer.answer(asked).kind == "granted"
    maker.remove(NAME)


def sleeps(broker: Broker) -> None:
    """Checks that the broker does nothing for a while."""
    before = broker.switches()
    select.select([], [], [], 0.3)
    assert broker.switches() - before <= 4


def test_a_lease_of_ones_own_for_each_event(peer: RawPeer) -> None:
    """Descriptors and events take turns on one connection."""
    watch(peer, "**")
    for _ in range(200):
        reply = peer.must_get(WITNESS)
        peer.release(leases=[reply.packet.granted.lease_id])
        reply.close()
        assert next_event(peer).kind == Kind.LEASED
        assert next_event(peer).kind == Kind.RELEASED


# ---- limits ----


def test_limit_of_watches(world: World, peer: RawPeer) -> None:
    ids = [watch(peer, f"seen/{number}/**") for number in range(WATCHES_PER_CONNECTION)]
    sentence = f"may have at most {WATCHES_PER_CONNECTION} watches, has {WATCHES_PER_CONNECTION}"
    peer.refuses(Code.QUOTA, sentence, "watch", pattern="x")
    peer.refuses(Code.QUOTA, sentence, "watch", pattern="**")
    peer.send("unwatch", number=0, watch_id=ids[7])
    assert watch(peer, NAME)
    peer.refuses(Code.QUOTA, sentence, "watch", pattern="x")
    maker = world.connect()
    maker.must_publish(NAME, b"x")
    assert next_event(peer).name == NAME
    assert maker.remove(NAME).kind == "done"


def test_watches_and_unwatches_without_end(world: World, peer: RawPeer) -> None:
    before = world.broker.resident_bytes()
    for _ in range(100):
        ids = [watch(peer, f"a/{number}*") for number in range(100)]
        for number in ids:
            peer.send("unwatch", number=0, watch_id=number)
    peer.goes_on()
    assert world.broker.resident_bytes() < before + GROWTH_BYTES


def test_costly_patterns_of_others(world: World) -> None:
    """They are at the cost of who has them: everybody else is served, and hears all."""
    evil = [world.connect() for _ in range(4)]
    pattern = ("*a" * 127) + "b"
    for peer in evil:
        for _ in range(WATCHES_PER_CONNECTION):
            watch(peer, pattern)
    maker = world.connect()
    name = "a" * 255
    memory = maker.allocate(1)
    for number in range(200):
        assert maker.publish(name, memory.id, 1, replace=number > 0).kind == "published"
    world.serves()
    assert maker.remove(name).kind == "done"


@as_root
def test_costly_patterns_of_another_user(world: World) -> None:
    """One's own events are not lost to what others cannot pay for."""

    def work(pipe: ChildPipe) -> None:
        become(STRANGER.uid, STRANGER.gid, ())
        with RawPeer(world.broker.socket) as peer:
            for _ in range(WATCHES_PER_CONNECTION):
                watch(peer, ("*a" * 127) + "b", any_owner=True)
            pipe.send("watches")
            pipe.block()

    maker, hearer = world.connect(), world.connect()
    watch(hearer, "**", kinds=bits(Kind.PUBLISHED, Kind.REPLACED))
    memory = maker.allocate(1)
    with Child(work) as child:
        child.receive()
        for number in range(300):
            reply = maker.publish(
                "a" * 255, memory.id, 1, replace=number > 0, mode=0o644, expose=True
            )
            assert reply.kind == "published"
            event = next_event(hearer)
            assert event.generation == reply.packet.published.generation
    assert maker.remove("a" * 255).kind == "done"


@pytest.mark.parametrize(
    ("fields", "code", "sentence"),
    [
        ({"pattern": ""}, Code.NAME_INVALID, "."),
        ({"pattern": "a//b"}, Code.NAME_INVALID, "."),
        ({"pattern": "a:b"}, Code.NAME_INVALID, "."),
        ({"pattern": "x" * 256}, Code.NAME_INVALID, "."),
        ({"pattern": "**", "kinds": 0}, Code.INVALID_ARGUMENT, "no kind of event"),
        ({"pattern": "**", "kinds": 1}, Code.INVALID_ARGUMENT, "no kind of event"),
        ({"pattern": "**", "kinds": 1 << 30}, Code.INVALID_ARGUMENT, "no kind of event"),
    ],
)
def test_watches_that_cannot_be(
    peer: RawPeer, fields: dict[str, object], code: Code, sentence: str
) -> None:
    peer.refuses(code, sentence, "watch", **fields)


# ---- deaths ----


@pytest.mark.parametrize("reads", [True, False])
def test_watchers_that_die_while_events_come(
    start_broker: Callable[..., Broker], make_world: Callable[..., World], reads: bool
) -> None:
    broker = start_broker(*QUOTA_OPTIONS)
    world = make_world(broker)

    def work(pipe: ChildPipe) -> None:
        with RawPeer(broker.socket) as peer:
            watch(peer, "**")
            watch(peer, NAME)
            pipe.send("watches")
            while reads:
                next_event(peer)
            pipe.block()

    with world.unharmed():
        maker = world.connect()
        memory = maker.allocate(1)
        for number in range(10):
            with Child(work) as child:
                child.receive()
                for turn in range(50 * number):
                    maker.publish(NAME, memory.id, 1, replace=turn > 0)
                child.kill()
            maker.remove(NAME)
        assert eventually(lambda: len(world.client.inspect(WITNESS).holders) == 1)
