# SPDX-License-Identifier: Apache-2.0
"""Waiting for a later generation of a name, and for the end of all leases on one."""

from __future__ import annotations

from typing import Any

import pytest
from child import Child, ChildPipe, become
from raw_peer import RawPeer
from tidl_wire import Attach, Code
from users import OWNER, STRANGER, Publisher, as_root
from world import WITNESS, World

NAME = "waited/x"


def publish(peer: RawPeer, content: bytes = b"x", **fields: Any) -> int:
    """Returns the generation."""
    memory = peer.allocate(len(content))
    reply = peer.publish(NAME, memory.id, len(content), replace=True, **fields)
    assert reply.kind == "published", reply.packet
    memory.close()
    peer.release(segments=[memory.id])
    return int(reply.packet.published.generation)


def waited(peer: RawPeer, number: int) -> int:
    reply = peer.answer(number)
    assert reply.kind == "waited", reply.packet
    return int(reply.packet.waited.generation)


def lease_of(peer: RawPeer, **fields: Any) -> int:
    reply = peer.must_get(NAME, **fields)
    reply.close()
    return int(reply.packet.granted.lease_id)


# ---- newer ----


def test_a_later_generation_that_is_there(world: World) -> None:
    maker, waiter = world.connect(), world.connect()
    first = publish(maker)
    second = publish(maker)
    for fields in ({}, {"newer_than": 0}, {"newer_than": first}, {"newer_than": second - 1}):
        assert waited(waiter, waiter.send("wait", name=NAME, **fields)) == second
        granted = waiter.must_get(NAME, **fields).packet.granted
        assert granted.generation == second
    maker.remove(NAME)


def test_a_later_generation_that_comes(world: World) -> None:
    maker, waiter = world.connect(), world.connect()
    first = publish(maker, b"1")
    number = waiter.send("wait", name=NAME, newer_than=first)
    getting = waiter.send("get", name=NAME, attach=Attach.READ, wait=True, newer_than=first)
    beyond = waiter.send("wait", name=NAME, newer_than=first + 1)
    waiter.goes_on()
    second = publish(maker, b"2")
    assert waited(waiter, number) == second
    granted = waiter.answer(getting)
    assert granted.packet.granted.generation == second
    waiter.goes_on()
    third = publish(maker, b"3")
    assert waited(waiter, beyond) == third
    maker.remove(NAME)


def test_waiting_goes_on_when_the_name_goes(world: World) -> None:
    maker, waiter = world.connect(), world.connect()
    number = waiter.send("wait", name=NAME)
    first = publish(maker)
    assert waited(waiter, number) == first
    number = waiter.send("wait", name=NAME, newer_than=first)
    maker.remove(NAME)
    waiter.goes_on()
    second = publish(maker)
    assert waited(waiter, number) == second
    maker.remove(NAME)


def test_nothing_newer_without_waiting(world: World) -> None:
    maker, waiter = world.connect(), world.connect()
    generation = publish(maker)
    waiter.refuses(
        Code.NOT_FOUND,
        f'"{NAME}" has no generation later than {generation} yet: wait for one with a time-out',
        "get",
        name=NAME,
        attach=Attach.READ,
        newer_than=generation,
    )
    maker.remove(NAME)


def test_waits_are_cancelled(world: World) -> None:
    maker, waiter, reader = world.connect(), world.connect(), world.connect()
    generation = publish(maker)
    lease_of(reader)
    for fields in ({"newer_than": generation}, {"released": True}):
        number = waiter.send("wait", name=NAME, **fields)
        waiter.cancel(number)
        waiter.answer(number).fails_with(Code.CANCELLED, "cancelled")
        waiter.cancel(number)
        waiter.goes_on()
    maker.remove(NAME)


@as_root
def test_what_one_may_not_see_is_not_waited_for(world: World) -> None:
    """A generation that is not for the waiting one wakes it not, and the next that is does."""

    def work(pipe: ChildPipe) -> None:
        become(STRANGER.uid, STRANGER.gid, ())
        with RawPeer(world.broker.socket) as peer:
            number = peer.send("wait", name="shared/x", owner_uid=OWNER.uid)
            peer.goes_on()
            pipe.send("waits")
            pipe.recv()
            peer.goes_on()
            pipe.send("still")
            pipe.send(waited(peer, number))

    with Child(work) as child:
        assert child.receive() == "waits"
        with Publisher(world, OWNER, mode=0o600):
            child.send("look")
            assert child.receive() == "still"
        with Publisher(world, OWNER, mode=0o604, replace=True, expose=True):
            generation = world.probe.inspection("shared/x", owner_uid=OWNER.uid).generation
            assert child.receive() == generation
    assert world.probe.remove("shared/x", owner_uid=OWNER.uid).kind == "done"


# ---- released ----


def test_released_at_once(world: World) -> None:
    maker, waiter = world.connect(), world.connect()
    generation = publish(maker)
    lease_of(waiter)  # one's own
    for fields in ({}, {"generation": generation}):
        number = waiter.send("wait", name=NAME, released=True, **fields)
        assert waited(waiter, number) == generation
    maker.remove(NAME)


def test_released_by_the_last_of_the_others(world: World) -> None:
    maker, one, two = world.connect(), world.connect(), world.connect()
    generation = publish(maker)
    lease_of(maker)
    leases = [lease_of(one), lease_of(one)]
    lease_of(two)
    number = maker.send("wait", name=NAME, released=True)
    maker.goes_on()
    one.release(leases=leases[:1])
    one.goes_on()
    two.close()
    maker.goes_on()
    one.release(leases=leases[1:])
    assert waited(maker, number) == generation
    maker.remove(NAME)


def test_each_waits_for_the_others(world: World) -> None:
    """Of two that hold it and wait, the one that lets go wakes the other."""
    maker, one, two = world.connect(), world.connect(), world.connect()
    generation = publish(maker)
    first, second = lease_of(one), lease_of(two)
    waits = [peer.send("wait", name=NAME, released=True) for peer in (one, two)]
    one.goes_on()
    two.goes_on()
    one.release(leases=[first])
    assert waited(two, waits[1]) == generation
    two.release(leases=[second])
    assert waited(one, waits[0]) == generation
    maker.remove(NAME)


def test_replaced_and_removed_while_waiting(world: World) -> None:
    """The wait is for the generation that was current when it began."""
    maker, reader = world.connect(), world.connect()
    first = publish(maker)
    lease = lease_of(reader)
    number = maker.send("wait", name=NAME, released=True)
    second = publish(maker)
    by_number = maker.send("wait", name=NAME, released=True, generation=first)
    assert waited(maker, maker.send("wait", name=NAME, released=True)) == second
    maker.remove(NAME)
    maker.goes_on()
    reader.release(leases=[lease])
    assert waited(maker, number) == first
    assert waited(maker, by_number) == first
    # It is gone for good.
    number = maker.send("wait", name=NAME, released=True, generation=first)
    assert waited(maker, number) == first


def test_released_by_death(world: World) -> None:
    maker = world.connect()
    generation = publish(maker)

    def work(pipe: ChildPipe) -> None:
        with RawPeer(world.broker.socket) as peer:
            for _ in range(100):
                lease_of(peer)
            pipe.send("holds")
            pipe.block()

    with Child(work) as child:
        child.receive()
        number = maker.send("wait", name=NAME, released=True)
        maker.goes_on()
        child.kill()
        assert waited(maker, number) == generation
    maker.remove(NAME)


def test_release_of_what_is_not_there(world: World, peer: RawPeer) -> None:
    there = "nothing that you may read is published as"
    peer.refuses(Code.NOT_FOUND, there, "wait", name=NAME, released=True)
    generation = peer.inspection(WITNESS).generation
    peer.refuses(
        Code.GENERATION_GONE,
        "has not been published yet",
        "wait",
        name=NAME,
        released=True,
        generation=2**62,
    )
    # Of another name, so nothing that this one waits for.
    number = peer.send("wait", name=NAME, released=True, generation=generation)
    assert waited(peer, number) == generation


@pytest.mark.parametrize(
    "fields", [{"generation": 1}, {"released": True, "newer_than": 1, "generation": 1}]
)
def test_waits_that_cannot_be(peer: RawPeer, fields: dict[str, Any]) -> None:
    peer.refuses(Code.INVALID_ARGUMENT, "choose", "wait", name=NAME, **fields)
    peer.refuses(Code.NAME_INVALID, ".", "wait", name="a//b")


def test_get_of_a_number_and_of_what_is_newer(peer: RawPeer) -> None:
    peer.refuses(
        Code.INVALID_ARGUMENT,
        "by generation 1 and by what is newer: choose one",
        "get",
        name=WITNESS,
        attach=Attach.READ,
        generation=1,
        newer_than=1,
    )


@pytest.mark.parametrize("fields", [{"released": True}, {"newer_than": 2**62}, {}])
def test_killed_while_waiting(world: World, fields: dict[str, Any]) -> None:
    name = WITNESS if fields else "never"
    holder = world.connect()
    holder.must_get(WITNESS)

    def work(pipe: ChildPipe) -> None:
        with RawPeer(world.broker.socket) as peer:
            for _ in range(100):
                peer.send("wait", name=name, **fields)
            peer.goes_on()
            pipe.send("waits")
            pipe.block()

    with Child(work) as child:
        child.receive()
        child.kill()
    holder.goes_on()


def test_limit_of_waits_for_releases(world: World) -> None:
    holder, waiter = world.connect(), world.connect()
    lease = holder.must_get(WITNESS).packet.granted.lease_id
    waits = [waiter.send("wait", name=WITNESS, released=True) for _ in range(1023)]
    # The honest client's is never given back, so these wait for ever.
    sentence = "may have at most 1024 waiting requests"
    waits.append(waiter.send("wait", name=WITNESS, released=True))
    waiter.refuses(Code.QUOTA, sentence, "wait", name=WITNESS, released=True)
    waiter.cancel(waits[3])
    waiter.answer(waits[3]).fails_with(Code.CANCELLED, "cancelled")
    holder.release(leases=[lease])
    for number in waits[:3] + waits[4:]:
        assert waited(waiter, number)
