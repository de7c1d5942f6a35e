# SPDX-License-Identifier: Apache-2.0
"""Descriptors that nobody asked for. The broker closes all that arrive, and never waits for it."""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from fuse_file import HangingFile, hanging_file
from python_brokers import eventually
from raw_peer import DEADLINE_S, RawPeer
from tidl_wire import PACKET_MAX_BYTES, PACKET_MAX_FDS, Attach, Code, pack
from tidld_process import Broker
from world import World

import tidl

REFUSAL = "descriptors came with a message that may not carry any: send none"
SUSPECTS_PER_UID = 2 * PACKET_MAX_FDS


class Tracer:
    """The write end of a pipe: the kernel tells when the last copy of it has been closed."""

    def __init__(self) -> None:
        self._read_fd, self.fd = os.pipe()

    def await_closed_elsewhere(self) -> None:
        os.close(self.fd)
        assert select.select([self._read_fd], [], [], DEADLINE_S)[0], "a descriptor stays open"
        assert os.read(self._read_fd, 1) == b""
        os.close(self._read_fd)


@pytest.fixture
def tracer() -> Tracer:
    return Tracer()


LIST = pack("list", 3, pattern="**")
RELEASE = pack("release", 0, lease_ids=[1])


@pytest.mark.parametrize("count", [1, 2, 100, PACKET_MAX_FDS])
@pytest.mark.parametrize("says_hello", [True, False])
@pytest.mark.parametrize(
    "packet",
    [LIST, RELEASE, pack("list", 3, 1, pattern="**"), b"\xff", b"", bytes(PACKET_MAX_BYTES)],
    ids=["request", "one_way", "announced", "garbage", "empty", "large"],
)
def test_unasked_descriptors(
    world: World, tracer: Tracer, packet: bytes, says_hello: bool, count: int
) -> None:
    peer = world.connect(says_hello=says_hello)
    peer.send_bytes(packet, [tracer.fd] * count)
    peer.ends_with(Code.PROTOCOL, REFUSAL, request_id=0)
    tracer.await_closed_elsewhere()


def test_descriptors_with_too_large_a_packet(peer: RawPeer, tracer: Tracer) -> None:
    peer.send_bytes(bytes(PACKET_MAX_BYTES + 1), [tracer.fd])
    peer.ends_with(Code.PROTOCOL, ": send", request_id=0)
    tracer.await_closed_elsewhere()


@contextmanager
def too_many_in_flight() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno != errno.ETOOMANYREFS:
            raise


def test_descriptors_behind_a_broken_packet(peer: RawPeer, tracer: Tracer) -> None:
    """The connection ends with the first packet; what is queued behind it is closed, too."""
    peer.send_bytes(b"\xff")
    # An ordinary user's descriptors in flight are limited: one packet then fills the allowance.
    with suppress(BrokenPipeError, ConnectionResetError), too_many_in_flight():
        for _ in range(20):
            peer.send_bytes(LIST, [tracer.fd] * PACKET_MAX_FDS)
    peer.ends_with(Code.PROTOCOL, "is not a tidl message")
    tracer.await_closed_elsewhere()


def test_descriptors_of_one_who_leaves(peer: RawPeer, tracer: Tracer) -> None:
    peer.send_bytes(LIST, [tracer.fd] * PACKET_MAX_FDS)
    peer.close()
    tracer.await_closed_elsewhere()


@pytest.mark.parametrize("count", [1, PACKET_MAX_FDS])
def test_announced_and_missing(peer: RawPeer, count: int) -> None:
    peer.send_bytes(pack("list", 3, count, pattern="**"))
    sentence = f"LIST announced {count} descriptors and brought none"
    peer.ends_with(Code.PROTOCOL, sentence, request_id=3)


def sockets() -> list[int]:
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("")
    listener.listen()
    return [ends[0].detach(), ends[1].detach(), listener.detach()]


def polls() -> list[int]:
    """An epoll descriptor that watches another one."""
    with select.epoll() as inner, select.epoll() as outer:
        outer.register(inner.fileno())
        return [os.dup(inner.fileno()), os.dup(outer.fileno())]


def files() -> list[int]:
    paths = ("/dev/null", "/dev/zero", "/proc/self/mem", "/", "/dev/ptmx")
    return [os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY) for path in paths]


@pytest.mark.parametrize(
    "make",
    [
        sockets,
        polls,
        files,
        lambda: [os.memfd_create("tidl:1", os.MFD_ALLOW_SEALING)],
        lambda: [os.pidfd_open(os.getpid())],
        lambda: [os.eventfd(0)],
    ],
    ids=["sockets", "polls", "files", "memfd", "pidfd", "eventfd"],
)
def test_all_kinds_of_descriptors(
    peer: RawPeer, tracer: Tracer, make: Callable[[], list[int]]
) -> None:
    fds = make()
    peer.send_bytes(LIST, [*fds, tracer.fd])
    for fd in fds:
        os.close(fd)
    peer.ends_with(Code.PROTOCOL, REFUSAL)
    tracer.await_closed_elsewhere()


def test_ones_own_connection(world: World) -> None:
    """A socket that lies in its own queue, and two that lie in each other's."""
    alone, left, right = (world.connect() for _ in range(3))
    alone.send_bytes(LIST, [alone.socket.fileno()])
    left.send_bytes(LIST, [right.socket.fileno(), left.socket.fileno()])
    right.send_bytes(LIST, [left.socket.fileno(), right.socket.fileno()])
    for peer in (alone, left, right):
        peer.ends_with(Code.PROTOCOL, REFUSAL)


def test_own_connection_of_one_who_leaves(world: World) -> None:
    """Only the broker's end keeps these sockets alive."""
    for _ in range(20):
        peer = world.connect()
        peer.send_bytes(LIST, [peer.socket.fileno()] * 10)
        peer.close()


def test_credentials_are_ignored(world: World) -> None:
    """The broker has not asked for them, so the kernel keeps them back."""
    credentials = struct.pack("3i", os.getpid(), os.getuid(), os.getgid())
    peer = world.connect()
    peer.socket.sendmsg([LIST], [(socket.SOL_SOCKET, socket.SCM_CREDENTIALS, credentials)])
    assert peer.answer(3).kind == "listing"


def test_credentials_with_descriptors(peer: RawPeer, tracer: Tracer) -> None:
    credentials = struct.pack("3i", os.getpid(), os.getuid(), os.getgid())
    rights = struct.pack("2i", tracer.fd, tracer.fd)
    peer.socket.sendmsg(
        [LIST],
        [
            (socket.SOL_SOCKET, socket.SCM_CREDENTIALS, credentials),
            (socket.SOL_SOCKET, socket.SCM_RIGHTS, rights),
        ],
    )
    peer.ends_with(Code.PROTOCOL, REFUSAL)
    tracer.await_closed_elsewhere()


# ---- descriptors whose close() hangs ----


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[HangingFile]:
    try:
        context = hanging_file(tmp_path)
        file = context.__enter__()
    except OSError as error:
        pytest.skip(f"no file system in user space can be mounted here: {error}")
    try:
        yield file
    finally:
        context.__exit__(None, None, None)


@pytest.mark.parametrize(
    "packet",
    [LIST, b"\xff", b"", bytes(PACKET_MAX_BYTES + 1)],
    ids=["request", "garbage", "empty", "too_large"],
)
def test_close_that_hangs_holds_up_nobody(
    world: World, hanging: HangingFile, packet: bytes
) -> None:
    peer = world.connect()
    fd = hanging.open()
    peer.send_bytes(packet, [fd])
    os.close(fd)
    peer.ends_with(Code.PROTOCOL, ": send")
    hanging.await_close()
    world.serves()
    assert world.connect().must_get("witness/x", Attach.WRITE)
    hanging.go()


def test_queue_of_descriptors_that_hang(world: World, hanging: HangingFile) -> None:
    """What is behind the packet that ended the connection is thrown away without a close()."""
    peer = world.connect()
    fd = hanging.open()
    world.broker.freeze()
    for _ in range(5):
        peer.send_bytes(LIST, [fd])
    os.close(fd)
    world.broker.thaw()
    peer.ends_with(Code.PROTOCOL, REFUSAL)
    hanging.await_close()
    world.serves()
    hanging.go()


def test_uid_whose_descriptors_hang_is_refused_in_time(world: World, hanging: HangingFile) -> None:
    fd = hanging.open()
    for _ in range(SUSPECTS_PER_UID // PACKET_MAX_FDS):
        peer = world.connect()
        peer.send_bytes(LIST, [fd] * PACKET_MAX_FDS)
        peer.ends_with(Code.PROTOCOL, REFUSAL)
        hanging.await_close()
    os.close(fd)
    late = world.connect(says_hello=False)
    late.ends_with(Code.LIMIT, "descriptors that uid 0 sent cannot be closed: end what makes", 0)
    assert world.client.get("witness/x").shape == (1000,)  # who is connected stays
    for _ in range(20):
        with pytest.raises(tidl.LimitError, match="cannot be closed"):
            tidl.connect(world.broker.socket, autostart=False)
    hanging.go()
    assert eventually(world.is_welcoming)


def test_stopping_while_a_close_hangs(
    start_broker: Callable[..., Broker], hanging: HangingFile
) -> None:
    # The leak check at the end would wait for the thread that hangs.
    broker = start_broker(environment={"ASAN_OPTIONS": "detect_leaks=0"})
    fd = hanging.open()
    with RawPeer(broker.socket) as peer:
        peer.send_bytes(LIST, [fd])
        os.close(fd)
        peer.ends_with(Code.PROTOCOL, REFUSAL)
        hanging.await_close()
        other = RawPeer(broker.socket)
        broker.signal(signal.SIGTERM)
        other.has_ended()
        other.close()
    assert not broker.socket.exists()
    hanging.go()
    assert broker.await_end() == 0
