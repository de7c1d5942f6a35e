# SPDX-License-Identifier: Apache-2.0
"""How brokers come, go, are killed, and come back at the same place."""

from __future__ import annotations

import os
import random
import select
import signal
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from child import Child, ChildPipe
from ctl_support import program, run
from python_brokers import await_end, broker_pids, end_brokers, eventually
from raw_peer import DEADLINE_S, RawPeer
from tidl_wire import Attach
from tidld_process import Broker, tidld_environment
from world import WITNESS, World

import tidl

LEFT = {"tidld.sock", "tidld.sock.lock"}


def in_folder(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()}


# ---- the end ----


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_stopping_by_signal(
    folder: Path, start_broker: Callable[..., Broker], number: signal.Signals
) -> None:
    broker = start_broker()
    peer = RawPeer(broker.socket)
    peer.must_publish("x", b"abc")
    peer.send("get", name="never", attach=Attach.READ, wait=True)
    peer.goes_on()
    broker.signal(number)
    peer.has_ended()
    peer.close()
    assert broker.await_end() == 0
    assert b"stopping on a signal" in broker.log
    assert in_folder(folder) == LEFT - {"tidld.sock"}


def test_signals_that_stop_nothing(start_broker: Callable[..., Broker]) -> None:
    broker = start_broker()
    broker.signal(signal.SIGPIPE)
    RawPeer(broker.socket).close()


def test_stopping_by_request(folder: Path, start_broker: Callable[..., Broker]) -> None:
    broker = start_broker()
    with RawPeer(broker.socket) as peer, RawPeer(broker.socket) as other:
        assert peer.ask("shutdown").kind == "done"
        peer.has_ended()
        other.has_ended()
    assert broker.await_end() == 0
    assert in_folder(folder) == LEFT - {"tidld.sock"}


def test_stopping_by_tidlctl(start_broker: Callable[..., Broker]) -> None:
    broker = start_broker()
    environment = {**os.environ, "TIDL_SOCKET": str(broker.socket)}
    assert run(program("client/ctl/tidlctl"), ("shutdown",), environment).status == 0
    assert broker.await_end() == 0
    assert run(program("client/ctl/tidlctl"), ("list",), environment).status == 3


def test_waiting_calls_end_with_the_broker(start_broker: Callable[..., Broker]) -> None:
    broker = start_broker()

    def work(pipe: ChildPipe) -> None:
        client = tidl.connect(broker.socket, autostart=False)
        pipe.send("connected")
        try:
            client.get("never", timeout=None)
        except tidl.BrokerGoneError as error:
            pipe.send((error.code, str(error)))

    with Child(work) as child, RawPeer(broker.socket) as peer:
        child.receive()
        # There is no telling when the other one waits; before that the end is just as good.
        assert peer.ask("shutdown").kind == "done"
        code, sentence = child.receive()
        assert code == "BROKER_GONE"
        assert "connect again" in sentence
    assert broker.await_end() == 0


# ---- killed, and started again ----


def test_killed_broker(
    folder: Path, start_broker: Callable[..., Broker], make_world: Callable[..., World]
) -> None:
    """What is mapped stays; what is left is a socket and an empty lock, which the next one uses."""
    shared_memory = sorted(os.listdir("/dev/shm"))
    broker = start_broker()
    with tidl.connect(broker.socket, autostart=False) as client:
        mine = client.empty((1000,), dtype="int32")
        mine.to_numpy()[:] = 7
        client.publish("x", mine)
        other = client.get("x", access="write").to_numpy()
        broker.kill()
        assert in_folder(folder) == LEFT
        lock = (folder / "tidld.sock.lock").stat()
        assert lock.st_size == 0
        other[0] = 1
        assert mine.to_numpy().tolist() == [1] + [7] * 999
        for call in (client.list, lambda: client.get("x"), lambda: client.publish("y", mine)):
            with pytest.raises(tidl.BrokerGoneError, match="connect again") as caught:
                call()
            assert caught.value.code == "BROKER_GONE"
        with pytest.raises(tidl.NoBrokerError, match="start tidld"):
            tidl.connect(broker.socket, autostart=False)

        again = start_broker()
        assert in_folder(folder) == LEFT
        assert (folder / "tidld.sock.lock").stat().st_ino == lock.st_ino
        with pytest.raises(tidl.BrokerGoneError):
            client.list()
        del other
        mine.release()
    world = make_world(again)
    assert [entry.name for entry in world.client.list("**")] == [WITNESS]
    world.serves()
    assert sorted(os.listdir("/dev/shm")) == shared_memory


def test_killed_again_and_again(folder: Path, start_broker: Callable[..., Broker]) -> None:
    for number in range(10):
        broker = start_broker()
        with tidl.connect(broker.socket, autostart=False) as client:
            client.publish("x", np.full(3, number))
            assert client.get("x").to_numpy().tolist() == [number] * 3
            broker.kill()
    assert in_folder(folder) == LEFT


@pytest.mark.parametrize("sign", [".", "tidld.sock.lock", "tidld.sock"])
def test_killed_while_it_starts(
    folder: Path, start_broker: Callable[..., Broker], sign: str
) -> None:
    """At whatever point that is, the next one starts."""
    for _ in range(5):
        broker = start_broker(is_ready=False)
        assert eventually((folder / sign).exists)
        broker.kill()
    assert in_folder(folder) <= LEFT
    start_broker()


# ---- one at a place ----


def start_many(folder: Path, count: int, *options: str) -> list[Broker]:
    return [Broker(folder, *options) for _ in range(count)]


@pytest.mark.parametrize("is_stale", [False, True], ids=["fresh", "stale"])
def test_many_brokers_started_at_once(
    folder: Path, start_broker: Callable[..., Broker], is_stale: bool
) -> None:
    if is_stale:
        start_broker().kill()
    brokers = start_many(folder, 8)
    try:
        pidfds = {os.pidfd_open(broker.pid): broker for broker in brokers}
        ended: list[int] = []
        while len(ended) < 7:
            ready, _, _ = select.select(pidfds.keys() - set(ended), [], [], DEADLINE_S)
            assert ready, "more than one broker stays"
            ended += ready
        for pidfd in ended:
            assert pidfds[pidfd].await_end() == 1
            assert f"a broker listens at {folder}/tidld.sock already".encode() in pidfds[pidfd].log
        [winner] = [broker for broker in brokers if broker.is_running]
        winner.await_ready()
        with RawPeer(winner.socket) as peer:
            peer.goes_on()
        winner.stop()
        for pidfd in pidfds:
            os.close(pidfd)
    finally:
        for broker in brokers:
            broker.check_reports()
            broker.dispose()


def test_detached_brokers_started_at_once(
    folder: Path, tmp_path: Path, start_broker: Callable[..., Broker]
) -> None:
    """Each starter is told that there is one; whose it is does not matter."""
    options = ["--private", "--detach", "--socket", str(folder / "tidld.sock")]
    command = [str(program("daemon/tidld")), *options]
    starts = [
        subprocess.Popen(
            command,
            env=tidld_environment(tmp_path),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        for _ in range(8)
    ]
    for start in starts:
        # To the end of the pipe: the broker that stays must not hold it open.
        assert start.communicate(timeout=DEADLINE_S)[0] == b"ready\n"
        assert start.returncode == 0
    [pid] = broker_pids(folder)
    is_well_detached(pid)
    with RawPeer(folder / "tidld.sock") as peer:
        assert kernel_pid(peer.socket) == pid, "not that of its starter, which has ended"
        assert peer.ask("shutdown").kind == "done"
    assert await_end(pid)
    assert list(tmp_path.iterdir()) == []  # no sanitizer had anything to say


def test_a_relative_path_is_where_the_starter_was(folder: Path, tmp_path: Path) -> None:
    """The broker leaves that folder, and cleans up in it nevertheless."""
    command = [str(program("daemon/tidld")), "--private", "--detach", "--socket", "tidld.sock"]
    environment = tidld_environment(tmp_path)
    subprocess.run(command, env=environment, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    assert in_folder(folder) == LEFT
    with RawPeer(folder / "tidld.sock") as peer:
        pid = kernel_pid(peer.socket)
        assert peer.ask("shutdown").kind == "done"
    assert await_end(pid)
    assert in_folder(folder) == LEFT - {"tidld.sock"}
    assert list(tmp_path.iterdir()) == []


def kernel_pid(connected: socket.socket) -> int:
    """Whom the kernel says that a socket is connected to."""
    size = struct.calcsize("3i")
    credentials = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    return int(struct.unpack("3i", credentials)[0])


def is_well_detached(pid: int) -> None:
    """Own session, at /, with nothing of its starter open, and signals as they are born."""
    process = Path(f"/proc/{pid}")
    opened = [os.readlink(entry) for entry in (process / "fd").iterdir()]
    status = dict(line.split(":\t") for line in (process / "status").read_text().splitlines())
    assert os.getsid(pid) != os.getsid(0)
    assert os.readlink(process / "cwd") == "/"
    assert os.readlink(process / "fd" / "2") == "/dev/null"
    assert {path.partition(":")[0] for path in opened} <= {
        "/dev/null", "socket", "pipe", "anon_inode"}  # fmt: skip
    assert int(status["SigBlk"], 16) == 0
    ignored = {number for number in range(1, 65) if int(status["SigIgn"], 16) >> (number - 1) & 1}
    assert ignored <= {signal.SIGPIPE, signal.SIGXFSZ}  # broken logs end no broker


# ---- what is in the way ----


def refused(broker: Broker, sentence: str) -> None:
    assert broker.await_end() == 1
    assert broker.log.startswith(b"tidld: ")
    assert sentence.encode() in broker.log


def test_file_in_the_way(folder: Path, start_broker: Callable[..., Broker]) -> None:
    (folder / "tidld.sock").write_text("precious")
    broker = start_broker(is_ready=False)
    refused(broker, "exists and is not a socket: remove it or choose another --socket")
    assert (folder / "tidld.sock").read_text() == "precious"


def test_dangling_link_in_the_way(folder: Path, start_broker: Callable[..., Broker]) -> None:
    (folder / "tidld.sock").symlink_to(folder / "elsewhere")
    assert start_broker(is_ready=False).await_end() == 1
    assert not (folder / "elsewhere").exists()


def test_another_program_at_the_place(folder: Path, start_broker: Callable[..., Broker]) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(folder / "tidld.sock"))
        other.listen()
        refused(start_broker(is_ready=False), "another program listens at")
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(folder / "tidld.sock"))


def test_lock_that_is_a_link(folder: Path, start_broker: Callable[..., Broker]) -> None:
    (folder / "precious").write_text("precious")
    (folder / "tidld.sock.lock").symlink_to(folder / "precious")
    refused(start_broker(is_ready=False), "cannot open the start lock")
    assert (folder / "precious").read_text() == "precious"


def test_folder_that_does_not_exist(folder: Path, start_broker: Callable[..., Broker]) -> None:
    folder.rmdir()
    refused(start_broker(is_ready=False), "cannot open the start lock")
    folder.mkdir()


def test_socket_that_was_taken_away(folder: Path, start_broker: Callable[..., Broker]) -> None:
    """Somebody removes the socket, and a second broker comes: the first leaves it alone."""
    first = start_broker()
    first.socket.unlink()
    second = start_broker()
    first.stop()
    with RawPeer(second.socket) as peer:
        peer.goes_on()


# ---- started by clients ----


@pytest.fixture
def runtime(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The runtime folder of clients that start brokers; what those leave behind is checked."""
    for name, text in tidld_environment(tmp_path).items():
        monkeypatch.setenv(name, text)
    monkeypatch.delenv("TIDL_SOCKET", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    monkeypatch.setenv("TIDL_DAEMON", str(program("daemon/tidld")))
    folder.chmod(0o700)
    yield folder
    pids = broker_pids(folder)
    end_brokers(folder, signal.SIGTERM)
    assert all(await_end(pid) for pid in pids)
    assert in_folder(folder / "tidl") == {"private.sock.lock"}
    assert list(tmp_path.iterdir()) == []  # no sanitizer had anything to say


def test_many_clients_that_start_a_broker_at_once(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDLD_EMPTY_EXIT", "30")

    def work(pipe: ChildPipe) -> None:
        pipe.send("forked")
        pipe.recv()
        with tidl.connect(timeout=DEADLINE_S) as client:
            pipe.send((client.broker.id, client.broker.address))
            pipe.recv()

    children = [Child(work) for _ in range(30)]
    try:
        for child in children:
            assert child.receive() == "forked"
        for child in children:
            child.send("connect")
        assert {child.receive() for child in children} == {
            (tidl.connect().broker.id, f"{runtime}/tidl/private.sock")
        }
        assert len(broker_pids(runtime)) == 1
        for child in children:
            child.send("close")
        assert [child.await_end() for child in children] == [0] * 30
    finally:
        for child in children:
            child.__exit__(None, None, None)


def test_broker_that_leaves_while_clients_come(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes as soon as nobody is there, and nobody who comes at that moment sees it."""
    monkeypatch.setenv("TIDLD_EMPTY_EXIT", "0.02")

    def work(pipe: ChildPipe) -> None:
        chance = random.Random(os.getpid())
        for number in range(50):
            with tidl.connect(timeout=DEADLINE_S) as client:
                client.publish("x", np.full(3, number), replace=True, retain="owner")
                pipe.send(client.broker.id)
            # The moment is what this is about: around the end of a broker, before it and after.
            select.select([], [], [], chance.random() * 0.06)

    with Child(work) as one, Child(work) as two:
        brokers = {child.receive() for _ in range(50) for child in (one, two)}
        assert one.await_end() == two.await_end() == 0
    assert len(brokers) > 5, "hardly any broker has left in this time"


def test_idle_broker_leaves(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With something published it stays; when that is gone, too, it goes by itself."""
    monkeypatch.setenv("TIDLD_EMPTY_EXIT", "0.01")
    with tidl.connect() as client:
        client.publish("x", np.ones(3))
    [pid] = broker_pids(runtime)
    with tidl.connect() as client:
        assert client.get("x").shape == (3,)
        assert broker_pids(runtime) == [pid]
        client.remove("x")
    assert await_end(pid)
    assert in_folder(runtime / "tidl") == {"private.sock.lock"}


def test_idle_broker_leaves_with_what_is_published(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDLD_IDLE_EXIT", "0.01")
    with tidl.connect() as client:
        client.publish("x", np.ones(3))
        mine = client.get("x").to_numpy()
        [pid] = broker_pids(runtime)
    assert await_end(pid)
    assert mine.tolist() == [1, 1, 1]
    with tidl.connect() as client:
        assert client.list() == []


def test_killed_private_broker_is_started_again(runtime: Path) -> None:
    for _ in range(3):
        with tidl.connect() as client:
            client.publish("x", np.ones(3))
            end_brokers(runtime)
            with pytest.raises(tidl.BrokerGoneError):
                client.list()
    tidl.connect().close()
    assert in_folder(runtime / "tidl") == {"private.sock", "private.sock.lock"}
