# SPDX-License-Identifier: Apache-2.0
"""A raw peer that watches."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from raw_peer import RawPeer, Reply
from tidl_wire import Packet


class Kind(IntEnum):
    PUBLISHED = 1
    REPLACED = 2
    REMOVED = 3
    LEASED = 4
    RELEASED = 5
    OWNER_DIED = 6
    LOST = 7


def bits(*kinds: Kind) -> int:
    return sum(1 << kind for kind in kinds)


@dataclass(frozen=True)
class Event:
    kind: Kind
    name: str = ""
    generation: int = 0


def event_of(reply: Reply) -> Event:
    assert reply.kind == "event", reply.packet
    assert reply.request_id == 0
    event = reply.packet.event
    return Event(Kind(event.kind), event.name.decode(), event.generation)


def watch(peer: RawPeer, pattern: str, **fields: Any) -> int:
    """Returns the watch's id."""
    reply = peer.ask("watch", pattern=pattern, **fields)
    assert reply.kind == "watching", reply.packet
    return int(reply.packet.watching.watch_id)


def next_event(peer: RawPeer) -> Event:
    reply = peer.receive()
    assert reply, "the broker ended the connection"
    return event_of(reply)


def next_packet(peer: RawPeer) -> Packet:
    reply = peer.receive()
    assert reply
    assert reply.kind == "event", reply.packet
    return reply.packet.event


def has_no_event(peer: RawPeer) -> None:
    """What happened before has all been heard: an answer comes after it."""
    peer.goes_on()


def answer_among_events(peer: RawPeer, request_id: int) -> tuple[Reply, list[Event]]:
    """The answer, and the events that came before it."""
    events = []
    while True:
        reply = peer.receive()
        assert reply, "the broker ended the connection"
        if reply.request_id == request_id:
            return reply, events
        events.append(event_of(reply))
