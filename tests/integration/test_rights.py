# SPDX-License-Identifier: Apache-2.0
"""Several users at one broker: who sees, reads, writes and removes what.

The broker is root's, as the system's is.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from child import Child, ChildPipe, as_user, become
from ctl_support import program, run
from python_brokers import eventually
from raw_peer import RawPeer, Reply
from tidl_wire import Code, Retention
from tidld_process import Broker
from users import (
    GROUP,
    MEMBER,
    NAME,
    OWNER,
    STRANGER,
    Publisher,
    User,
    as_root,
    attempt,
    inspect,
    may,
    read,
    remove,
    write,
)
from world import PAGE_BYTES, WITNESS, World

import tidl

pytestmark = as_root


def sees(world: World, user: User) -> bool:
    def look() -> bool:
        with RawPeer(world.broker.socket) as peer:
            theirs = NAME in peer.names(owner_uid=OWNER.uid)
            assert (NAME in peer.names(any_owner=True)) == theirs
            assert NAME not in peer.names() or user == OWNER
            return theirs

    return bool(user.does(look))


READS, WRITES = "r", "w"

MODES: dict[int, tuple[str, str, str]] = {
    # owner, member, stranger
    0o600: ("rw", "", ""),
    0o640: ("rw", "r", ""),
    0o660: ("rw", "rw", ""),
    0o644: ("rw", "r", "r"),
    0o666: ("rw", "rw", "rw"),
    0o604: ("rw", "", "r"),
    0o606: ("rw", "", "rw"),
    0o400: ("r", "", ""),
    0o000: ("", "", ""),
}


@pytest.mark.parametrize("mode", MODES, ids=oct)
def test_modes(world: World, mode: int) -> None:
    with Publisher(world, OWNER, mode=mode, retention=Retention.OWNER):
        for user, rights in zip((OWNER, MEMBER, STRANGER), MODES[mode], strict=True):
            is_visible = READS in rights or user == OWNER
            assert sees(world, user) == is_visible, user
            got = {what.__name__: may(world, user, what) for what in (read, write, inspect)}
            if not is_visible:
                nothing = f'NOT_FOUND: nothing that you may read is published as "{OWNER.uid}:'
                assert all(text.startswith(nothing) for text in got.values()), got
                continue
            assert got["inspect"] == "inspection"
            assert (got["read"] == "granted") == (READS in rights), got
            assert (got["write"] == "granted") == (rights == "rw"), got
            if rights == "r":
                assert (
                    f'PERMISSION: "{NAME}" of uid {OWNER.uid} has mode {mode:04o}' in got["write"]
                )
                assert "which does not let you write it: attach it for reading" in got["write"]
            if rights == "":
                assert "which does not let you read it: ask its owner" in got["read"]


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o666], ids=oct)
def test_only_owner_and_root_remove(world: World, mode: int) -> None:
    with Publisher(world, OWNER, mode=mode):
        for user in (MEMBER, STRANGER):
            refusal = may(world, user, remove)
            if mode == 0o600:
                assert refusal.startswith("NOT_FOUND: ")
            else:
                sentence = f'"{NAME}" belongs to uid {OWNER.uid}: only its owner, root and members'
                assert refusal.startswith(f"PERMISSION: {sentence}")
        assert sees(world, OWNER)
        assert may(world, OWNER, remove) == "done"
        assert not sees(world, OWNER)


def test_root_sees_reads_writes_and_removes_all(world: World) -> None:
    with Publisher(world, OWNER, mode=0o600):
        everything = {(entry.owner, entry.name) for entry in world.client.list("*:**")}
        assert everything == {(OWNER.uid, NAME), (0, WITNESS)}
        assert [entry.name for entry in world.client.list("**")] == [WITNESS]
        array = world.client.get(f"{OWNER.uid}:{NAME}", access="write").to_numpy()
        array[0] = ord("A")
        assert world.client.inspect(f"{OWNER.uid}:{NAME}").owner == OWNER.uid
        del array
        world.client.dispatch()
        environment = {**os.environ, "TIDL_SOCKET": str(world.broker.socket)}
        listing = run(program("client/ctl/tidlctl"), ("list", "*:**"), environment)
        assert f"{OWNER.uid}:{NAME}" in listing.out
        world.client.remove(f"{OWNER.uid}:{NAME}")


def test_names_are_each_users_own(world: World) -> None:
    def publish_and_read() -> list[str]:
        with RawPeer(world.broker.socket) as peer:
            peer.must_publish(NAME, str(os.getuid()).encode(), retention=Retention.OWNER)
            return [os.pread(peer.must_get(NAME).fds[0], 5, 0).decode(), *peer.names()]

    with Publisher(world, OWNER, mode=0o666):
        for user in (MEMBER, STRANGER):
            assert user.does(publish_and_read) == [str(user.uid), NAME]
        assert may(world, OWNER, remove) == "done"


def test_stranger_waits_for_what_he_may_read(world: World) -> None:
    """What he may not is as if it were not there: he goes on waiting."""

    def wait(pipe: ChildPipe) -> None:
        become(STRANGER.uid, STRANGER.gid, STRANGER.groups)
        with RawPeer(world.broker.socket) as peer:
            number = peer.send("get", name=NAME, owner_uid=OWNER.uid, attach=1, wait=True)
            peer.goes_on()
            pipe.send("waits")
            pipe.recv()
            peer.goes_on()
            pipe.send("waits")
            pipe.send(os.pread(peer.answer(number).fds[0], 3, 0))

    with Child(wait) as waiting:
        assert waiting.receive() == "waits"
        with Publisher(world, OWNER, mode=0o640):
            waiting.send("still?")
            assert waiting.receive() == "waits"
        with Publisher(world, OWNER, mode=0o644, replace=True, retention=Retention.OWNER):
            assert waiting.receive() == b"abc"


# ---- groups ----


def test_group_of_the_publishers_choice(world: World) -> None:
    """Any of his groups, and no other; root may name any."""
    asked: dict[str, Any] = {"mode": 0o640, "segments": [], "tensors": [EMPTY]}

    def publish(gid: int) -> Callable[[RawPeer], Reply]:
        return lambda peer: peer.ask("publish", name=NAME, access=1, gid=gid, **asked)

    assert may(world, MEMBER, publish(GROUP)) == "published"
    assert may(world, MEMBER, lambda peer: peer.remove(NAME)) == "done"
    refusal = may(world, STRANGER, publish(GROUP))
    sentence = f'you are not in group {GROUP}, so "{NAME}" cannot be published for it'
    assert refusal == f"PERMISSION: {sentence}"
    assert publish(4711)(world.probe).kind == "published"
    assert world.probe.inspection(NAME).gid == 4711
    assert world.probe.remove(NAME).kind == "done"


EMPTY = {"byte_offset": 0, "dtype": {"code": 2, "bits": 32, "lanes": 1}, "shape": [0],
         "strides": [1]}  # fmt: skip


def test_many_groups(world: World) -> None:
    """The kernel knows up to 65536 of them."""
    user = User(70040, 70040, (*range(80000, 82000), GROUP))
    with Publisher(world, OWNER, mode=0o640, retention=Retention.OWNER):
        assert may(world, user, read) == "granted"


def test_groups_are_those_at_the_time_of_connecting(world: World) -> None:
    def work() -> list[str]:
        become(0, 0, (GROUP,))
        os.setresuid(MEMBER.uid, MEMBER.uid, 0)
        peer = RawPeer(world.broker.socket)
        os.setresuid(0, 0, 0)
        become(STRANGER.uid, STRANGER.gid)
        kept = read(peer).kind
        peer.close()
        return [kept, attempt(world, read).partition(":")[0]]

    with Publisher(world, OWNER, mode=0o640, retention=Retention.OWNER):
        assert as_user(0, work) == ["granted", "NOT_FOUND"]


# ---- quotas, stopping ----


def test_one_user_cannot_use_up_what_is_another_s(world: World) -> None:
    def fill(pipe: ChildPipe) -> None:
        become(STRANGER.uid, STRANGER.gid)
        with RawPeer(world.broker.socket) as peer:
            peer.allocate(world.quota_bytes - 2 * PAGE_BYTES)
            reply = peer.ask("allocate", data_size_bytes=4 * PAGE_BYTES)
            reply.fails_with(Code.QUOTA, f"all processes of uid {STRANGER.uid} may have at most")
            pipe.send("full")
            pipe.block()

    with Child(fill) as child:
        assert child.receive() == "full"
        assert may(world, STRANGER, large).startswith("QUOTA: ")
        assert may(world, OWNER, large) == "allocated"


def large(peer: RawPeer) -> Reply:
    return peer.ask("allocate", data_size_bytes=1 << 20)


def test_others_are_served_while_one_user_has_all_his_descriptors(
    start_broker: Callable[..., Broker], make_world: Callable[..., World]
) -> None:
    world = make_world(start_broker(command=["prlimit", "--nofile=600:600"]))

    def fill(pipe: ChildPipe) -> None:
        become(STRANGER.uid, STRANGER.gid)
        with RawPeer(world.broker.socket) as peer:
            while peer.ask("allocate", data_size_bytes=1).kind == "allocated":
                pass
            pipe.send("full")
            pipe.block()

    with Child(fill) as child:
        assert child.receive() == "full"
        world.serves()
        assert (
            may(world, MEMBER, lambda peer: peer.ask("allocate", data_size_bytes=1)) == "allocated"
        )
        assert (
            may(world, OWNER, lambda peer: peer.ask("allocate", data_size_bytes=1)) == "allocated"
        )


def test_only_the_brokers_user_and_root_stop_it(world: World) -> None:
    refusal = may(world, STRANGER, lambda peer: peer.ask("shutdown"))
    assert refusal == (
        "PERMISSION: this broker belongs to uid 0: only that user and root may stop it"
    )
    world.serves()


def test_private_broker_lets_nobody_else_in(
    folder: Path, start_broker: Callable[..., Broker]
) -> None:
    broker = start_broker("--private")
    assert broker.socket.stat().st_mode & 0o777 == 0o600

    def connect() -> str:
        try:
            tidl.connect(broker.socket, autostart=False)
        except tidl.PermissionDeniedError as error:
            return str(error)
        return "connected"

    assert "is refused: check the rights of the socket" in STRANGER.does(connect)


def test_system_broker_lets_everybody_in(world: World) -> None:
    assert world.broker.socket.stat().st_mode & 0o777 == 0o666


def test_broker_of_another_user_is_not_trusted(
    folder: Path, start_broker: Callable[..., Broker]
) -> None:
    folder.chmod(0o777)
    broker = start_broker(command=["setpriv", "--reuid=70030", "--regid=70030", "--clear-groups"])

    def connect() -> str:
        try:
            tidl.connect(broker.socket, autostart=False)
        except tidl.BrokerUntrustedError as error:
            return f"{error.code}: {error}"
        return "connected"

    assert STRANGER.does(connect) == "connected"
    for refusal in (OWNER.does(connect), connect()):
        assert refusal.startswith("BROKER_UNTRUSTED: ")
        assert "runs as uid 70030, which is neither you nor root" in refusal


def test_eventually_nothing_is_left(world: World) -> None:
    """Of users whose processes have all gone."""
    before = world.broker.descriptors()
    for number in range(20):
        user = User(71000 + number, 71000)
        assert may(world, user, lambda peer: peer.ask("allocate", data_size_bytes=1)) == "allocated"
    assert eventually(lambda: world.broker.descriptors() == before)
