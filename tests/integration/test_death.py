# SPDX-License-Identifier: Apache-2.0
"""Clients that die: at each step of their life, at random ones, and with a child that lives on."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from child import Child, ChildPipe
from python_brokers import eventually
from raw_peer import DEADLINE_S, RawPeer
from tidl_wire import Attach, Code, Retention
from watcher import watch
from world import CONTENT, WITNESS, World

import tidl

NAME = "dead/x"
SYS_PIDFD_GETFD = 438

# What a client has done when it dies. Each step is given a connection that has said hello.
Step = Callable[[RawPeer], Any]


def pipeline(peer: RawPeer) -> None:
    """Answers with descriptors lie in its queue, and wait behind it."""
    for _ in range(10):
        peer.send("get", name=WITNESS, attach=Attach.WRITE)
        peer.send("allocate", data_size_bytes=1 << 16)


def half_of_everything(peer: RawPeer) -> None:
    peer.must_publish(NAME, b"x", retention=Retention.OWNER)
    peer.must_get(NAME, Attach.WRITE)
    peer.must_get(WITNESS, Attach.WRITE)
    peer.allocate(1 << 20)
    peer.send("get", name="never", attach=Attach.READ, wait=True)
    pipeline(peer)


def publish_owned(peer: RawPeer) -> None:
    peer.must_publish(NAME, b"x", retention=Retention.OWNER)


def watch_all(peer: RawPeer) -> None:
    for pattern in ("**", WITNESS, "dead/*", NAME):
        watch(peer, pattern)


def events_unread(peer: RawPeer) -> None:
    """Its own end is an event, too."""
    watch_all(peer)
    for _ in range(500):
        peer.send("get", name=WITNESS, attach=Attach.READ)


STEPS: dict[str, Step] = {
    "hello": lambda peer: None,
    "allocate": lambda peer: peer.allocate(1 << 20),
    "allocate_unread": lambda peer: peer.send("allocate", data_size_bytes=1 << 20),
    "publish_owned": publish_owned,
    "replace_owned": lambda peer: [
        peer.must_publish(NAME, b"x", retention=Retention.OWNER, replace=True) for _ in range(3)
    ],
    "get": lambda peer: peer.must_get(WITNESS),
    "get_write": lambda peer: peer.must_get(WITNESS, Attach.WRITE),
    "get_unread": lambda peer: peer.send("get", name=WITNESS, attach=Attach.READ),
    "wait": lambda peer: peer.send("get", name="never", attach=Attach.READ, wait=True),
    "wait_newer": lambda peer: peer.send("wait", name=WITNESS, newer_than=2**62),
    "wait_released": lambda peer: peer.send("wait", name=WITNESS, released=True),
    "watch": lambda peer: watch_all(peer),
    "events_unread": events_unread,
    "goodbye": lambda peer: [publish_owned(peer), peer.send("goodbye", number=0)],
    "keep": lambda peer: [
        peer.must_publish(NAME, b"x", retention=Retention.OWNER, replace=True, keep=3)
        for _ in range(4)
    ],
    "seconds": lambda peer: peer.must_publish(NAME, b"x", retention=Retention.SECONDS, ttl_ms=500),
    "pipeline": pipeline,
    "half_of_everything": half_of_everything,
}


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_killed_after_each_step(world: World, step: Step) -> None:
    def work(pipe: ChildPipe) -> None:
        with RawPeer(world.broker.socket) as peer:
            step(peer)
            pipe.send("done")
            pipe.block()

    with Child(work) as child:
        assert child.receive() == "done"


def test_killed_before_the_broker_looks(world: World) -> None:
    """It finds the requests and the end of their sender at the same time."""

    def work(pipe: ChildPipe) -> None:
        with RawPeer(world.broker.socket) as peer:
            pipe.send("connected")
            pipe.recv()
            pipeline(peer)
            peer.send("get", name="never", attach=Attach.READ, wait=True)
            pipe.send("done")
            pipe.block()

    with Child(work) as child:
        assert child.receive() == "connected"
        world.broker.freeze()
        child.send("go on")
        assert child.receive() == "done"
        child.kill()
        world.broker.thaw()


def test_killed_before_hello(world: World) -> None:
    def work(pipe: ChildPipe) -> None:
        with RawPeer(world.broker.socket, says_hello=False) as peer:
            pipe.send(peer.socket.fileno())
            pipe.block()

    with Child(work) as child:
        child.receive()


def test_persistent_tensor_of_a_dead_publisher(world: World) -> None:
    def work(pipe: ChildPipe) -> None:
        with RawPeer(world.broker.socket, name="mortal") as peer:
            peer.must_publish(NAME, b"abc")
            pipe.send("published")
            pipe.block()

    with Child(work) as child:
        child.receive()
        child.kill()
        assert eventually(lambda: not world.client.inspect(NAME).publisher.connected)
        inspection = world.client.inspect(NAME)
        assert inspection.publisher.pid == child.pid
        assert inspection.publisher.name == "mortal"
        assert inspection.holders == ()
    writer = world.client.get(NAME, access="write").to_numpy()
    assert bytes(writer) == b"abc"
    writer[0] = ord("A")
    assert bytes(world.client.get(NAME).to_numpy()) == b"Abc"
    del writer
    world.client.remove(NAME)
    world.client.dispatch()


def test_owned_tensor_goes_with_the_connection_alone(world: World) -> None:
    """Not with the memory's release, not with the end of a reader."""
    peer, reader = world.connect(), world.connect()
    memory = peer.must_publish(NAME, b"abc", retention=Retention.OWNER)
    peer.release(segments=[memory.id])
    peer.goes_on()
    kept = reader.must_get(NAME)
    with RawPeer(world.broker.socket) as other:
        other.must_get(NAME)
    assert world.client.get(NAME).shape == (3,)
    peer.close()
    assert eventually(lambda: world.client.list(NAME) == [])
    assert os.pread(kept.fds[0], 3, 0) == b"abc"
    reader.get(NAME).fails_with(Code.NOT_FOUND, "nothing that you may read")


def test_reader_of_memory_whose_owner_is_killed(world: World) -> None:
    """A real client keeps its map, and its name is told apart from a new one's."""

    def work(pipe: ChildPipe) -> None:
        with tidl.connect(world.broker.socket, autostart=False) as client:
            client.publish(NAME, np.arange(1000), retain="owner")
            pipe.send("published")
            pipe.block()

    with Child(work) as child:
        child.receive()
        array = world.client.get(NAME).to_numpy()
        child.kill()
    assert eventually(lambda: world.client.list(NAME) == [])
    assert array.tolist() == list(range(1000))
    with pytest.raises(tidl.NotFoundError):
        world.client.get(NAME)
    del array
    world.client.dispatch()


def test_forked_child_keeps_the_socket_of_a_dead_parent(world: World) -> None:
    """The connection ends with the process that made it, although the socket stays open."""

    def work(pipe: ChildPipe) -> None:
        with RawPeer(world.broker.socket) as peer:
            peer.must_publish(NAME, b"x", retention=Retention.OWNER)
            peer.must_get(WITNESS, Attach.WRITE)
            peer.allocate(1 << 20)
            child = os.fork()
            if child == 0:
                pipe.block()
                os._exit(0)
            pipe.send(child)
            pipe.block()

    with Child(work) as parent:
        orphan = parent.receive()
        assert NAME in [entry.name for entry in world.client.list("**")]
        parent.kill()
        assert eventually(lambda: world.client.list(NAME) == [])
        assert eventually(lambda: len(world.client.inspect(WITNESS).holders) == 1)
        os.kill(orphan, 0)  # it lives
        os.kill(orphan, signal.SIGKILL)


def test_forked_child_that_speaks_for_a_dead_parent(world: World) -> None:
    def work(pipe: ChildPipe) -> None:
        with RawPeer(world.broker.socket) as peer:
            child = os.fork()
            if child == 0:
                pipe.recv()
                peer.has_ended()
                pipe.send("ended")
                os._exit(0)
            pipe.send("forked")
            os.kill(os.getpid(), signal.SIGKILL)

    with Child(work) as parent:
        assert parent.receive() == "forked"
        assert parent.await_end() == -signal.SIGKILL
        parent.send("speak")
        assert parent.receive() == "ended"


def socket_of(pidfd: int, number: int) -> socket.socket:
    """Another process's socket."""
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.syscall(SYS_PIDFD_GETFD, pidfd, number, 0)
    if fd < 0:
        pytest.skip(f"no descriptor can be taken from a process: {os.strerror(ctypes.get_errno())}")
    taken = socket.socket(fileno=fd)
    taken.settimeout(DEADLINE_S)
    return taken


def test_socket_that_was_handed_over(world: World) -> None:
    """A connection is its maker's, whoever speaks on it, and ends with its maker."""

    def work(pipe: ChildPipe) -> None:
        with RawPeer(world.broker.socket) as peer:
            pipe.send(peer.socket.fileno())
            pipe.block()

    peer = world.connect()
    with Child(work) as child:
        number = child.receive()
        pidfd = os.pidfd_open(child.pid)
        peer.socket.close()
        peer.socket = socket_of(pidfd, number)
        os.close(pidfd)
        peer.goes_on()
        child.kill()
        peer.has_ended()


def test_a_thousand_random_deaths(world: World) -> None:
    """While others go about their work. The fifty thousandth packet is as good as the first."""
    environment = {name: text for name, text in os.environ.items() if name != "LD_PRELOAD"}
    program = Path(__file__).with_name("storm.py")
    command = [sys.executable, str(program), str(world.broker.socket)]
    storm = subprocess.Popen(
        [*command, "4711", "1000"], env=environment, stdout=subprocess.PIPE, text=True
    )
    rounds = 0
    with tidl.connect(world.broker.socket, autostart=False) as client:
        while storm.poll() is None:
            client.publish("calm/x", np.full(100, rounds), replace=True)
            assert world.client.get("calm/x").to_numpy().tolist() == [rounds] * 100
            assert world.client.get(WITNESS).to_numpy().tolist() == CONTENT
            rounds += 1
        client.remove("calm/x")
    assert storm.communicate()[0] == "1000\n"
    assert rounds > 10
    world.client.dispatch()
    for name in world.probe.names("storm/*"):
        assert world.probe.remove(name).kind in ("done", "failure")
