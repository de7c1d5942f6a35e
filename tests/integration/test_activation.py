# SPDX-License-Identifier: Apache-2.0
"""A broker whose socket a service manager has made and passes on."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest
from raw_peer import RawPeer
from tidld_process import Broker
from world import WITNESS, World

# Puts descriptor $0 at 3 and says what service managers say. `$$` is tidld's own pid, since exec
# keeps it.
ACTIVATE = 'export LISTEN_PID=$$ LISTEN_FDS={count} LISTEN_FDNAMES=tidld; exec "$@" 3<&"$0"'


@pytest.fixture
def listener(folder: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(folder / "tidld.sock"))
        listener.listen()
        yield listener


Activate = Callable[..., Broker]
Passed = socket.socket | IO[str]


@pytest.fixture
def activate(start_broker: Callable[..., Broker]) -> Activate:
    def start(passed: Passed, *options: str, count: int = 1, is_ready: bool = True) -> Broker:
        number = str(passed.fileno())
        return start_broker(
            *options,
            command=["bash", "-c", ACTIVATE.format(count=count), number],
            pass_fds=[passed.fileno()],
            has_socket=False,
            is_ready=is_ready,
        )

    return start


def test_serves_at_the_passed_socket(
    listener: socket.socket, activate: Activate, make_world: Callable[..., World]
) -> None:
    """Clients that came before the broker are served, too."""
    early = RawPeer(Path(listener.getsockname()), says_hello=False)
    early.send("hello", number=1, min_version=1, max_version=1)
    broker = activate(listener)
    assert b"serves at the socket it was passed" in broker.log
    assert early.answer(1).kind == "welcome"
    early.close()
    world = make_world(broker, quota_bytes=1 << 62)
    world.serves()
    with RawPeer(broker.socket) as peer:
        assert peer.must_get(WITNESS)
    environment = Path(f"/proc/{broker.pid}/environ").read_bytes()
    assert b"LISTEN_FDS=1" in environment  # it was activated


def test_leaves_the_socket_to_its_maker(
    folder: Path, listener: socket.socket, activate: Activate
) -> None:
    """Who waits there is served by the next one. There is no lock: nobody else starts brokers."""
    for signum in (signal.SIGTERM, signal.SIGKILL, signal.SIGTERM):
        broker = activate(listener)
        with RawPeer(broker.socket) as peer:
            peer.goes_on()
            broker.signal(signum)
            peer.has_ended()
        assert broker.await_end() in (0, -signal.SIGKILL)
        assert [entry.name for entry in folder.iterdir()] == ["tidld.sock"]
        late = RawPeer(broker.socket, says_hello=False)
        late.send("hello", number=1, min_version=1, max_version=1)
        following = activate(listener)
        assert late.answer(1).kind == "welcome"
        late.close()
        following.stop()


def test_given_path_goes_first(folder: Path, listener: socket.socket, activate: Activate) -> None:
    other = folder / "other.sock"
    activate(listener, "--socket", str(other))
    with RawPeer(other) as peer:
        peer.goes_on()


def test_idle_broker_with_a_passed_socket(listener: socket.socket, activate: Activate) -> None:
    broker = activate(listener, "--empty-exit", "0.01")
    with RawPeer(broker.socket) as peer:
        peer.goes_on()
    assert broker.await_end() == 0
    assert broker.socket.exists()


def refused(broker: Broker, sentence: str) -> None:
    assert broker.await_end() == 1
    assert broker.log.decode().startswith("tidld: ")
    assert sentence in broker.log.decode()


@pytest.mark.parametrize("count", [2, 100])
def test_too_many_sockets(listener: socket.socket, activate: Activate, count: int) -> None:
    refused(
        activate(listener, count=count, is_ready=False),
        f"the service manager passed {count} sockets: give exactly one",
    )


WRONG = "the service manager passed no listening Unix socket for packets: use ListenSequential"


def test_sockets_of_another_kind(folder: Path, activate: Activate) -> None:
    with socket.socket(socket.AF_UNIX) as stream:
        stream.bind(str(folder / "stream.sock"))
        stream.listen()
        refused(activate(stream, is_ready=False), WRONG)
    with socket.socket(socket.AF_INET) as internet:
        internet.bind(("127.0.0.1", 0))
        internet.listen()
        refused(activate(internet, is_ready=False), WRONG)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as idle:
        idle.bind(str(folder / "idle.sock"))
        refused(activate(idle, is_ready=False), WRONG)


def test_file_instead_of_a_socket(folder: Path, activate: Activate) -> None:
    with (folder / "file").open("w") as file:
        refused(activate(file, is_ready=False), WRONG)
