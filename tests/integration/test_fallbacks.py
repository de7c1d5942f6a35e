# SPDX-License-Identifier: Apache-2.0
"""The oldest kernel: what newer ones have is forced off, and all goes on the same."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from child import Child, ChildPipe
from python_brokers import eventually
from raw_peer import RawPeer
from tidl_wire import Attach, Code, Retention
from tidld_process import Broker
from world import WITNESS, World

import tidl

WITHOUT = [
    "noexec-seal",
    "peerpidfd",
    "sealed-shared-map",
    "noexec-seal,peerpidfd,sealed-shared-map",
]
F_SEAL_EXEC = 0x20


@pytest.fixture(params=WITHOUT)
def without(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def world(
    start_broker: Callable[..., Broker],
    make_world: Callable[..., World],
    monkeypatch: pytest.MonkeyPatch,
    without: str,
) -> Iterator[World]:
    monkeypatch.setenv("TIDL_WITHOUT", without)  # for clients in other processes
    world = make_world(start_broker(environment={"TIDL_WITHOUT": without}))
    with world.unharmed():
        yield world


def test_the_hook_works(world: World, without: str) -> None:
    """Where the kernel has it, the seal tells whether it was asked for."""
    seals = world.probe.inspection(WITNESS).segments[0].seals
    if "noexec-seal" in without:
        assert not seals & F_SEAL_EXEC
    elif kernel_has_noexec_seal():
        assert seals & F_SEAL_EXEC


def kernel_has_noexec_seal() -> bool:
    try:
        os.close(os.memfd_create("probe", 0x0008))
    except OSError:
        return False
    return True


def test_publish_get_write(world: World) -> None:
    def work(pipe: ChildPipe) -> None:
        with tidl.connect(world.broker.socket, autostart=False) as client:
            array = client.get("x", access="write").to_numpy()
            array[::2] = -1
            pipe.send(client.publish("y", array).copied)
            del array

    world.client.publish("x", np.arange(10))
    with Child(work) as child:
        assert child.receive() is False
        assert child.await_end() == 0
    for name in ("x", "y"):
        assert world.client.get(name).to_numpy().tolist() == [-1, 1, -1, 3, -1, 5, -1, 7, -1, 9]
        world.client.remove(name)
    world.client.dispatch()


def test_immutable_and_live(world: World) -> None:
    """A reader that maps sealed memory in the one way that its kernel knows."""

    def work(pipe: ChildPipe) -> None:
        with tidl.connect(world.broker.socket, autostart=False) as client:
            x, y = client.get("x"), client.get("y")
            private = x.to_taichi()
            private[0] = -1
            pipe.send([x.to_numpy().tolist(), private.tolist(), y.to_numpy().tolist()])

    x, y = world.client.full((3,), 1), world.client.full((3,), 2)
    assert not world.client.publish("x", x, access="immutable").copied
    assert not world.client.publish("y", y, access="live").copied
    with Child(work) as child:
        assert child.receive() == [[1, 1, 1], [-1, 1, 1], [2, 2, 2]]
        assert child.await_end() == 0
    for tensor, name in ((x, "x"), (y, "y")):
        world.client.remove(name)
        tensor.release()
    world.client.dispatch()


def test_memory_is_private_to_its_owner(world: World) -> None:
    with RawPeer(world.broker.socket) as peer:
        memory = peer.allocate(1)
        assert os.fstat(memory.read_fd).st_mode & 0o7777 == 0o400
        with pytest.raises(PermissionError):
            os.ftruncate(memory.write_fd, 0)


@pytest.mark.parametrize("attach", Attach)
def test_killed_client(world: World, attach: Attach) -> None:
    def work(pipe: ChildPipe) -> None:
        with RawPeer(world.broker.socket) as peer:
            memory = peer.must_publish("dead", b"x", retention=Retention.OWNER)
            peer.release(segments=[memory.id])
            peer.must_get("dead", attach)
            peer.must_get(WITNESS)
            peer.send("get", name="never", attach=attach, wait=True)
            pipe.send("ready")
            pipe.block()

    with Child(work) as child:
        assert child.receive() == "ready"
        assert len(world.client.inspect(WITNESS).holders) == 2
        child.kill()
        assert eventually(lambda: world.client.list("dead") == [])
    with RawPeer(world.broker.socket) as peer:
        peer.get("dead").fails_with(Code.NOT_FOUND, "nothing that you may read")


def test_forked_child_keeps_the_socket_of_a_dead_parent(world: World) -> None:
    def work(pipe: ChildPipe) -> None:
        with RawPeer(world.broker.socket) as peer:
            peer.must_get(WITNESS, Attach.WRITE)
            child = os.fork()
            if child == 0:
                pipe.block()
                os._exit(0)
            pipe.send(child)
            pipe.block()

    with Child(work) as parent:
        orphan = parent.receive()
        parent.kill()
        assert eventually(lambda: len(world.client.inspect(WITNESS).holders) == 1)
        os.kill(orphan, 0)  # it lives
        os.kill(orphan, signal.SIGKILL)


def test_client_that_died_before_it_was_accepted(world: World) -> None:
    """Its number says nothing any more: the connection has hung up, too."""

    def work(pipe: ChildPipe) -> None:
        pipe.send("ready")
        pipe.recv()
        peer = RawPeer(world.broker.socket, says_hello=False)
        peer.send("hello", min_version=1, max_version=1)
        pipe.send("connected")
        pipe.block()

    with Child(work) as child:
        assert child.receive() == "ready"
        world.broker.freeze()
        child.send("connect")
        assert child.receive() == "connected"
        child.kill()
        world.broker.thaw()
    world.serves()


def test_orphan_whose_parent_died_before_it_was_accepted(world: World) -> None:
    """A forked child holds the socket, and the process that made it is no more."""

    def work(pipe: ChildPipe) -> None:
        pipe.send("ready")
        pipe.recv()
        peer = RawPeer(world.broker.socket, says_hello=False)
        child = os.fork()
        if child == 0:
            peer.send("hello", min_version=1, max_version=1)
            pipe.send(os.getpid())
            while peer.receive():
                pass
            pipe.send("ended")
            pipe.block()
        os.waitpid(child, 0)

    with Child(work) as parent:
        assert parent.receive() == "ready"
        world.broker.freeze()
        parent.send("connect")
        orphan = parent.receive()
        parent.kill()
        world.broker.thaw()
        assert parent.receive() == "ended"
        os.kill(orphan, signal.SIGKILL)
    world.serves()
