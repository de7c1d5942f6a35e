# SPDX-License-Identifier: Apache-2.0
"""Three users at one broker: an owner, a member of the owner's group, and a stranger."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from child import Child, ChildPipe, as_user, become
from raw_peer import RawPeer, Reply
from tidl_wire import Attach, Code
from world import World

as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can be several users")

NAME = "shared/x"
GROUP = 70001


@dataclass(frozen=True)
class User:
    uid: int
    gid: int
    groups: tuple[int, ...] = ()

    def does(self, work: Callable[[], Any]) -> Any:
        return as_user(self.uid, work, gid=self.gid, groups=self.groups)


OWNER = User(70010, GROUP)
MEMBER = User(70020, 70020, (70002, GROUP))
STRANGER = User(70030, 70030, (70002,))


class Publisher:
    """A process of another user that has published, and has its connection still."""

    def __init__(self, world: World, user: User, **fields: Any) -> None:
        self.user = user

        def work(pipe: ChildPipe) -> None:
            become(user.uid, user.gid, user.groups)
            with RawPeer(world.broker.socket) as peer:
                memory = peer.must_publish(NAME, b"abc", **fields)
                pipe.send(memory.id)
                while True:
                    name = pipe.recv()
                    pipe.send(peer.remove(name).kind)

        self.child = Child(work)
        self.segment_id = self.child.receive()

    def __enter__(self) -> Publisher:
        return self

    def __exit__(self, *exception: object) -> None:
        self.child.__exit__(None, None, None)


def attempt(world: World, ask: Callable[[RawPeer], Reply]) -> str:
    """What a user gets: the kind of the reply, or the code of the failure and its sentence."""
    with RawPeer(world.broker.socket) as peer:
        reply = ask(peer)
        if reply.kind != "failure":
            return reply.kind
        return f"{Code(reply.packet.failure.code).name}: {reply.packet.failure.message.decode()}"


def may(world: World, user: User, ask: Callable[[RawPeer], Reply]) -> str:
    return str(user.does(lambda: attempt(world, ask)))


def read(peer: RawPeer) -> Reply:
    return peer.get(NAME, owner_uid=OWNER.uid)


def write(peer: RawPeer) -> Reply:
    return peer.get(NAME, Attach.WRITE, owner_uid=OWNER.uid)


def inspect(peer: RawPeer) -> Reply:
    return peer.ask("inspect", name=NAME, owner_uid=OWNER.uid)


def remove(peer: RawPeer) -> Reply:
    return peer.remove(NAME, owner_uid=OWNER.uid)
