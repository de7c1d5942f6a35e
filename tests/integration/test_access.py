# SPDX-License-Identifier: Apache-2.0
"""Access as a promise of the kernel: hostile readers of another user, and of the broker's own.

The broker is root's, as the system's is, so its own user may open what it likes; only seals hold.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import hostile
import pytest
from child import Child, ChildPipe, as_user
from ctl_support import program, run
from raw_peer import Memory, RawPeer
from tidl_wire import Access, Attach, Code
from users import STRANGER, as_root
from world import PAGE_BYTES, World

NAME = "guarded/x"
CONTENT = b"as it was" + bytes(2 * PAGE_BYTES - 9)
READABLE = 0o644


@contextmanager
def published(
    world: World, access: Access, *, mode: int = READABLE
) -> Iterator[tuple[RawPeer, Memory]]:
    """A publication by a raw peer, which keeps what it had: descriptors, and a writable map."""
    with RawPeer(world.broker.socket) as producer:
        memory = producer.allocate(len(CONTENT))
        os.pwrite(memory.write_fd, CONTENT, 0)
        if access == Access.IMMUTABLE:
            fcntl.fcntl(memory.write_fd, fcntl.F_ADD_SEALS, hostile.SEALS["write"])
        reply = producer.publish(
            NAME, memory.id, len(CONTENT), access=access, mode=mode, expose=True
        )
        assert reply.kind == "published", reply.packet
        try:
            yield producer, memory
        finally:
            assert producer.remove(NAME).kind == "done"


def attack(world: World, *, owner_uid: int) -> dict[str, Any]:
    """All that a reader can try, with what it was given and with what it can open anew."""
    with RawPeer(world.broker.socket) as peer:
        fd = peer.must_get(NAME, owner_uid=owner_uid).fds[0]
        address = hostile.map_pages(fd, len(CONTENT), hostile.PROT_READ)
        found: dict[str, Any] = {
            "given": hostile.succeed(hostile.on_descriptor(fd)),
            "map": hostile.succeed(hostile.on_map(address)),
            "reopened": set(),
        }
        broker_fds = f"/proc/{world.broker.process.pid}/fd"
        paths = [f"/proc/self/fd/{fd}"]
        if os.getuid() == 0:
            inode = os.fstat(fd).st_ino
            paths += [
                path
                for path in (f"{broker_fds}/{name}" for name in os.listdir(broker_fds))
                if os.path.exists(path) and os.stat(path).st_ino == inode
            ]
        found["opened"] = 0
        for path in paths:
            writable = hostile.reopen(path)
            if writable is not None:
                found["opened"] += 1
                found["reopened"] |= hostile.succeed(hostile.on_descriptor(writable))
                os.close(writable)
        # The reader is still alive, and what it has mapped is what it was.
        found["content"] = hostile.bytes_at(address, len(CONTENT))
        return found


@as_root
@pytest.mark.parametrize("access", Access)
def test_another_user(world: World, access: Access) -> None:
    with published(world, access):
        found = as_user(STRANGER.uid, lambda: attack(world, owner_uid=0))
        assert found["given"] == set()
        assert found["map"] == set()
        assert found["opened"] == 0
        assert found["content"] == CONTENT


@as_root
@pytest.mark.parametrize("access", [Access.LIVE, Access.IMMUTABLE])
def test_the_brokers_own_user(world: World, access: Access) -> None:
    """Root opens everything for writing, and still writes nothing."""
    with published(world, access):
        found = as_user(0, lambda: attack(world, owner_uid=0))
        assert found["opened"] >= 2  # its own descriptor, and the broker's
        assert found["given"] == set()
        assert found["map"] == set()
        assert found["reopened"] == set()
        assert found["content"] == CONTENT


@as_root
def test_shared_memory_of_ones_own_user_is_not_protected(world: World) -> None:
    """What the same attack does where no seal is in its way: so much for the attack, and for
    what `inspect` says."""
    with published(world, Access.SHARED):
        assert not world.probe.inspection(NAME).same_uid_write_protected
        found = as_user(0, lambda: attack(world, owner_uid=0))
        assert found["given"] == set()
        assert {"pwrite", "write map", "protection", "hole"} <= found["reopened"]
        assert not {"shrink", "grow"} & found["reopened"]
        assert len(found["content"]) == len(CONTENT)  # and no SIGBUS


@pytest.mark.parametrize("access", Access)
def test_inspection_tells_the_guarantees(world: World, access: Access) -> None:
    with published(world, access):
        inspection = world.probe.inspection(NAME)
        assert inspection.access == access
        assert inspection.write_protected
        assert inspection.same_uid_write_protected == (access != Access.SHARED)
        seals = inspection.segments[0].seals
        wanted = {
            Access.SHARED: 0,
            Access.LIVE: hostile.SEALS["future_write"] | hostile.SEALS["final"],
            Access.IMMUTABLE: hostile.SEALS["write"] | hostile.SEALS["final"],
        }
        assert seals & (8 | 16 | 1) == wanted[access]


PROTECTION = {
    Access.SHARED: (
        "Processes of other users can write only after the broker granted it.\n"
        "  Nothing keeps processes of the broker's own user from writing: only the seals hold."
    ),
    Access.LIVE: (
        "Sealed for good: its producer can write, through the memory that it has mapped.\n"
        "  Nobody else can, not even processes of the broker's own user."
    ),
    Access.IMMUTABLE: (
        "Sealed for good: nobody can write, not even its producer or processes of the broker's "
        "own user."
    ),
}


@pytest.mark.parametrize("access", Access)
def test_tidlctl_tells_the_guarantees(world: World, access: Access) -> None:
    with published(world, access):
        environment = {**os.environ, "TIDL_SOCKET": str(world.broker.socket)}
        tidlctl = program("client/ctl/tidlctl")
        text = run(tidlctl, ("inspect", NAME), environment)
        assert f"access: {access.name.lower()}\n" in text.out
        assert text.out.endswith(f"protection:\n  {PROTECTION[access]}\n")
        assert ("future-write" in text.out) == (access == Access.LIVE)
        document = json.loads(run(tidlctl, ("--json", "inspect", NAME), environment).out)
        assert document["protection"] == {
            "write_protected": True,
            "same_uid_write_protected": access != Access.SHARED,
        }


def test_a_hostile_producer_cannot_take_the_memory_away(world: World) -> None:
    """The producer of live memory may write it, by the map that it had. It cannot make a reader
    fault, nor anything that is not a write."""
    with RawPeer(world.broker.socket) as producer, RawPeer(world.broker.socket) as reader:
        memory = producer.allocate(len(CONTENT))
        os.pwrite(memory.write_fd, CONTENT, 0)
        old = hostile.map_pages(memory.write_fd, len(CONTENT), hostile.PROT_READ | 2)
        assert producer.publish(NAME, memory.id, 9, access=Access.LIVE).kind == "published"
        fd = reader.must_get(NAME).fds[0]
        address = hostile.map_pages(fd, len(CONTENT), hostile.PROT_READ)
        assert hostile.succeed(hostile.on_descriptor(memory.write_fd)) == set()
        assert hostile.succeed({"hole": lambda: hostile.remove_pages(old, PAGE_BYTES)}) == set()
        assert hostile.bytes_at(address, len(CONTENT)) == CONTENT
        hostile.ctypes.memset(old, ord("L"), 1)
        assert hostile.bytes_at(address, 2) == b"Ls"
        assert producer.remove(NAME).kind == "done"


def test_immutable_memory_outlives_everybody(world: World) -> None:
    """Its producer is killed in the middle of everything, and the reader notices nothing."""

    def produce(pipe: ChildPipe) -> None:
        with RawPeer(world.broker.socket) as peer:
            memory = peer.allocate(len(CONTENT))
            os.pwrite(memory.write_fd, CONTENT, 0)
            fcntl.fcntl(memory.write_fd, fcntl.F_ADD_SEALS, hostile.SEALS["write"])
            assert peer.publish(NAME, memory.id, 9, access=Access.IMMUTABLE).kind == "published"
            pipe.send(True)
            pipe.block()

    with Child(produce) as child:
        assert child.receive()
        with RawPeer(world.broker.socket) as reader:
            fd = reader.must_get(NAME).fds[0]
            address = hostile.map_pages(fd, len(CONTENT), hostile.PROT_READ)
            child.kill()
            assert reader.remove(NAME).kind == "done"
            assert hostile.bytes_at(address, len(CONTENT)) == CONTENT
            private = hostile.map_pages(fd, PAGE_BYTES, hostile.PROT_READ | 2, 2)
            hostile.ctypes.memset(private, ord("P"), 1)
            assert hostile.bytes_at(address, 9) == CONTENT[:9]


# ---- the broker's word ----


@pytest.mark.parametrize("access", [Access.LIVE, Access.IMMUTABLE])
def test_nobody_is_granted_writing(world: World, access: Access) -> None:
    sentence = {
        Access.LIVE: "is live: its producer alone writes it; attach it for reading",
        Access.IMMUTABLE: "is immutable: nobody writes it; attach it copy-on-write",
    }[access]
    with published(world, access, mode=0o666) as (producer, _):
        for peer in (producer, world.probe):
            peer.get(NAME, Attach.WRITE).fails_with(Code.ACCESS, sentence)


def test_who_waits_for_a_name_to_write_it(world: World, peer: RawPeer) -> None:
    number = peer.send("get", name=NAME, attach=Attach.WRITE, wait=True)
    peer.goes_on()
    with published(world, Access.LIVE):
        peer.answer(number).fails_with(Code.ACCESS, "is live")


def test_copy_on_write(world: World, peer: RawPeer) -> None:
    with published(world, Access.IMMUTABLE):
        peer.must_get(NAME, Attach.COPY_ON_WRITE)
    with published(world, Access.LIVE) as (producer, memory):
        peer.get(NAME, Attach.COPY_ON_WRITE).fails_with(Code.BUSY, f"process {os.getpid()} can")
        producer.release(segments=[memory.id])
        producer.goes_on()
        peer.must_get(NAME, Attach.COPY_ON_WRITE)  # nobody is left who could write


@pytest.mark.parametrize("first", Access)
def test_the_first_publication_decides(world: World, first: Access) -> None:
    with published(world, first) as (producer, memory):
        for other in {*Access} - {first}:
            reply = producer.publish("guarded/y", memory.id, 9, access=other)
            reply.fails_with(
                Code.ACCESS,
                f'was published with access "{first.name.lower()}" before, which is for good',
            )
        assert producer.publish("guarded/y", memory.id, 9, access=first).kind == "published"
        assert producer.remove("guarded/y").kind == "done"


def test_immutable_wants_a_seal(peer: RawPeer) -> None:
    memory = peer.allocate(PAGE_BYTES)
    peer.publish(NAME, memory.id, 9, access=Access.IMMUTABLE).fails_with(
        Code.ACCESS, "can still be written: seal it against writing"
    )
    assert peer.publish(NAME, memory.id, 9, access=Access.IMMUTABLE, check_only=True).kind == "done"
    assert peer.names("guarded/**") == []
    fcntl.fcntl(memory.write_fd, fcntl.F_ADD_SEALS, hostile.SEALS["write"])
    for access in (Access.SHARED, Access.LIVE):
        peer.publish(NAME, memory.id, 9, access=access).fails_with(
            Code.ACCESS, "is sealed against writing: publish it as immutable"
        )


def test_immutable_memory_costs_the_broker_one_descriptor(world: World, peer: RawPeer) -> None:
    before = len(world.broker.descriptors())
    memory = peer.allocate(PAGE_BYTES)
    assert len(world.broker.descriptors()) == before + 2
    fcntl.fcntl(memory.write_fd, fcntl.F_ADD_SEALS, hostile.SEALS["write"])
    assert peer.publish(NAME, memory.id, 9, access=Access.IMMUTABLE).kind == "published"
    assert len(world.broker.descriptors()) == before + 1
    opened = peer.ask("open", segment_id=memory.id)
    assert [fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE for fd in opened.fds] == [os.O_RDONLY]
    assert peer.remove(NAME).kind == "done"


def test_check_only_leaves_nothing(world: World, peer: RawPeer) -> None:
    memory = peer.allocate(PAGE_BYTES)
    charged = world.used_bytes()
    calls: list[tuple[dict[str, Any], Code | None]] = [
        ({}, None),
        ({"access": Access.LIVE}, None),
        ({"metadata": "[]"}, Code.METADATA),
        ({"access": Access.LIVE, "mode": 0o777}, Code.INVALID_ARGUMENT),
    ]
    for fields, code in calls:
        reply = peer.publish(NAME, memory.id, 9, check_only=True, **fields)
        if code is None:
            assert reply.kind == "done", reply.packet
        else:
            reply.fails_with(code, "")
        assert peer.names("guarded/**") == []
        assert world.used_bytes() == charged
    assert not fcntl.fcntl(memory.write_fd, fcntl.F_GET_SEALS) & (1 | 8 | 16)
