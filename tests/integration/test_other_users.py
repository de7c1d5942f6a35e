# SPDX-License-Identifier: Apache-2.0
"""What other users can do with descriptors they were given, and users that are none."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from child import as_user, become
from ctl_support import run
from raw_peer import RawPeer, Reply
from tidl_wire import Attach, Code, Retention
from tidld_process import Broker
from users import NAME, OWNER, STRANGER, Publisher, as_root, may
from world import PAGE_BYTES, WITNESS, World

import tidl

pytestmark = as_root

OVERFLOW = 65534
CLONE_NEWUSER = 0x10000000


# ---- what descriptors let one do ----


def reopened(fd: int, flags: int) -> str:
    try:
        os.close(os.open(f"/proc/self/fd/{fd}", flags))
    except PermissionError:
        return "refused"
    return "opened"


def test_read_only_descriptor_stays_so(world: World) -> None:
    """A memfd is born open to all; through /proc anybody could have it writable."""

    def work() -> dict[str, str]:
        own = os.memfd_create("own")
        with RawPeer(world.broker.socket) as peer:
            fd = peer.must_get(NAME, owner_uid=OWNER.uid).fds[0]
            found = {
                "own": reopened(own, os.O_RDWR),  # the way is open as such
                "writable": reopened(fd, os.O_RDWR),
                "write_only": reopened(fd, os.O_WRONLY),
                "truncated": reopened(fd, os.O_WRONLY | os.O_TRUNC),
            }
            calls: dict[str, Callable[[], object]] = {
                "mode": lambda: os.fchmod(fd, 0o666),
                "owner": lambda: os.fchown(fd, STRANGER.uid, STRANGER.gid),
                "write": lambda: os.pwrite(fd, b"X", 0),
                "size": lambda: os.ftruncate(fd, 0),
                "seal": lambda: fcntl.fcntl(fd, fcntl.F_ADD_SEALS, 8),
                "map": lambda: mmap.mmap(fd, PAGE_BYTES, mmap.MAP_SHARED, mmap.PROT_WRITE),
            }
            for name, call in calls.items():
                try:
                    call()
                    found[name] = "done"
                except OSError:
                    found[name] = "refused"
            return found

    with Publisher(world, OWNER, mode=0o644, retention=Retention.OWNER):
        found = STRANGER.does(work)
        assert found.pop("own") == "opened"
        assert set(found.values()) == {"refused"}, found
        array = world.client.get(f"{OWNER.uid}:{NAME}").to_numpy()
        assert bytes(array) == b"abc"
        del array


def test_writer_by_right_cannot_change_mode_or_size(world: World) -> None:
    def work() -> list[str]:
        with RawPeer(world.broker.socket) as peer:
            fd = peer.must_get(NAME, Attach.WRITE, owner_uid=OWNER.uid).fds[0]
            os.pwrite(fd, b"A", 0)
            refused = []
            calls: tuple[Callable[[], object], ...] = (
                lambda: os.fchmod(fd, 0o666),
                lambda: os.ftruncate(fd, 0),
                lambda: os.ftruncate(fd, 1 << 20),
                lambda: fcntl.fcntl(fd, fcntl.F_ADD_SEALS, 8),
            )
            for call in calls:
                try:
                    call()
                except PermissionError as error:
                    refused.append(type(error).__name__)
            return refused

    with Publisher(world, OWNER, mode=0o666, retention=Retention.OWNER):
        assert STRANGER.does(work) == ["PermissionError"] * 4
        array = world.client.get(f"{OWNER.uid}:{NAME}").to_numpy()
        assert bytes(array) == b"Abc"
        del array


def test_segment_of_another_uid_cannot_be_published(world: World) -> None:
    """Whoever has it by a lease may use it, and not hand it on as his own."""
    with Publisher(world, OWNER, mode=0o666, retention=Retention.OWNER) as owner:

        def publish(peer: RawPeer) -> Reply:
            granted = peer.must_get(NAME, Attach.WRITE, owner_uid=OWNER.uid).packet.granted
            assert not granted.HasField("segment_owner_uid")  # the owner's, as a rule
            assert granted.segments[0].id == owner.segment_id
            return peer.publish("mine", owner.segment_id, 1, mode=0o666)

        refusal = may(world, STRANGER, publish)
        assert refusal.startswith(
            f"PERMISSION: segment {owner.segment_id} is not this connection's to publish: allocate"
        )
        assert "under its creator's uid, or publish a copy" in refusal


def test_real_client_of_another_user(world: World) -> None:
    """The package resolves owners, copies what is not its user's, and knows its rights."""

    def work() -> list[Any]:
        with tidl.connect(world.broker.socket, autostart=False) as client:
            tensor = client.get(f"{OWNER.uid}:{NAME}", access="write")
            tensor.to_numpy()[0] = ord("A")
            publication = client.publish("copy", tensor, retain="owner")
            names = [(entry.owner, entry.name) for entry in client.list("*:**")]
            try:
                client.get(f"0:{WITNESS}")
                hidden = ""
            except tidl.NotFoundError as error:
                hidden = error.code
            return [publication.copied, publication.reason, sorted(names), hidden]

    with Publisher(world, OWNER, mode=0o666, retention=Retention.OWNER):
        names = [(OWNER.uid, NAME), (STRANGER.uid, "copy")]
        assert STRANGER.does(work) == [True, "not_owner", names, "NOT_FOUND"]


# ---- users that the broker cannot tell apart ----

REFUSED = "the broker does not serve this uid: run the client in a user namespace that the broker"


def refused_at_hello(broker: Broker) -> None:
    with RawPeer(broker.socket, says_hello=False) as peer:
        peer.send("hello", number=4, min_version=1, max_version=1)
        peer.ends_with(Code.PEER_REFUSED, REFUSED, request_id=4)
    with RawPeer(broker.socket, says_hello=False) as peer:
        peer.send("list", number=4, pattern="**")
        peer.ends_with(Code.PEER_REFUSED, REFUSED, request_id=4)
    with pytest.raises(tidl.PeerRefusedError) as caught:
        tidl.connect(broker.socket, autostart=False)
    assert caught.value.code == "PEER_REFUSED"


def test_overflow_uid_is_refused(world: World) -> None:
    """Whoever is nobody to the kernel is nobody here."""
    overflow = int(Path("/proc/sys/kernel/overflowuid").read_text())
    as_user(overflow, lambda: refused_at_hello(world.broker))


def test_unmapped_uid_is_refused(folder: Path, start_broker: Callable[..., Broker]) -> None:
    """A broker in a user namespace that has a single user."""
    command = ["unshare", "--user", "--map-root-user"]
    if run(Path("/usr/bin/unshare"), ("--user", "--map-root-user", "true"), {}).status != 0:
        pytest.skip("user namespaces are not allowed here")
    folder.chmod(0o777)
    broker = start_broker(command=command)
    with RawPeer(broker.socket) as peer:
        assert peer.welcome.packet.welcome.uid == 0
        peer.must_publish("x", b"abc")
        assert os.pread(peer.must_get("x").fds[0], 3, 0) == b"abc"
        as_user(STRANGER.uid, lambda: refused_at_hello(broker))
        peer.goes_on()


def test_client_in_a_namespace_of_its_own(world: World) -> None:
    """The kernel says who it is outside of it."""

    def work() -> int:
        become(STRANGER.uid, STRANGER.gid)
        try:
            unshare_user()
        except OSError as error:
            return -(error.errno or 1)
        assert os.getuid() == OVERFLOW
        with RawPeer(world.broker.socket) as peer:
            return int(peer.welcome.packet.welcome.uid)

    uid = as_user(0, work)
    if uid < 0:
        pytest.skip(f"user namespaces are not allowed here: {os.strerror(-uid)}")
    assert uid == STRANGER.uid


def unshare_user() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWUSER) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
