# SPDX-License-Identifier: Apache-2.0
"""list() and inspect()."""

from __future__ import annotations

import dataclasses
import os
import select
from pathlib import Path

import numpy as np
import pytest
from python_brokers import await_end, broker_pids, memfd_inode
from python_peer import Peer

import tidl


def test_list(client: tidl.Client, name: str) -> None:
    for number in range(3):
        client.publish(f"{name}/{number}", np.zeros((2, number + 1), dtype="int16"))
    entries = client.list(f"{name}/*")
    assert [entry.name for entry in entries] == [f"{name}/{i}" for i in range(3)]  # oldest first
    entry = entries[1]
    assert (entry.dtype, entry.shape, entry.tensor_bytes) == ("int16", (2, 2), 8)
    assert (entry.owner, entry.publisher_pid, entry.mode) == (os.getuid(), os.getpid(), 0o600)
    assert (entry.access, entry.tensor_count, entry.holder_count) == ("shared", 1, 0)
    assert entry.age >= 0
    assert client.list(f"{name}*") == []  # one star stays within one part
    assert len(client.list(f"{name}/**")) == 3
    assert len(client.list(f"*:{name}/*")) == 3
    (again,) = client.list(f"{os.getuid()}:{name}/1")
    assert again.generation == entry.generation


def test_a_long_list(client: tidl.Client, name: str) -> None:
    """More than one packet has room for."""
    count = 700
    for number in range(count):
        client.publish(f"{name}/{number:04}{'x' * 150}", b"")
    names = [entry.name for entry in client.list(f"{name}/*")]
    assert [entry.rpartition("/")[2][:4] for entry in names] == [f"{i:04}" for i in range(count)]
    for entry_name in names:
        client.remove(entry_name)


def test_inspect(client: tidl.Client, peer: Peer, name: str) -> None:
    x = client.empty((4, 6), dtype="float32")
    publication = client.publish(name, x.to_numpy()[1:, ::2], metadata={"a": 1})
    peer.do(f"y = client.get({name!r}, access='write')")
    info = client.inspect(name)
    assert (info.name, info.owner, info.generation) == (name, os.getuid(), publication.generation)
    assert (info.access, info.retention, info.path) == ("shared", "until-idle", "allocated")
    assert (info.mode, info.metadata, info.survives_restart) == (0o600, {"a": 1}, False)
    assert info.exposed_bytes == info.segments[0].data_size_bytes == 4096
    assert info.publisher.pid == os.getpid()
    assert info.publisher.connected
    (tensor,) = info.tensors
    assert (tensor.key, tensor.segment_index, tensor.byte_offset) == ("", 0, 24)
    assert (tensor.shape, tensor.strides, tensor.dtype) == ((3, 3), (6, 2), "float32")
    assert tensor.nbytes == 36
    (segment,) = info.segments
    assert segment.inode == memfd_inode(x.to_numpy().ctypes.data)
    assert {"shrink", "grow"} <= set(segment.seals)
    holders = {(holder.kind, holder.access, holder.pid) for holder in info.holders}
    assert holders == {
        ("allocation", "write", os.getpid()),
        ("lease", "write", peer.pid),
    }
    assert all(holder.age >= 0 for holder in info.holders)
    assert all(holder.process.command for holder in info.holders)


def test_inspect_shows_steps(client: tidl.Client, peer: Peer, name: str) -> None:
    def steps() -> tuple[int, bool]:
        (segment,) = client.inspect(name).segments
        return segment.step, segment.updating

    peer.do(f"x = client.zeros(3)\nclient.publish({name!r}, x, access='live')")
    assert steps() == (0, False)
    peer.do("x.commit()\nupdate = x.update()\nupdate.__enter__()")
    assert steps() == (1, True)
    peer.do("update.__exit__(None, None, None)")
    assert steps() == (2, False)
    peer.do("update = x.update()\nupdate.__enter__()")
    peer.kill()
    assert steps() == (2, True)


def test_inspect_says_what_stays_and_what_ends(client: tidl.Client, name: str) -> None:
    made = [client.publish(name, b"x", replace=True, keep=3).generation for _ in range(4)]
    info = client.inspect(name)
    assert info.kept == (made[2], made[1])
    assert info.left is None
    client.publish(name, b"x", replace=True, retain=1000)
    info = client.inspect(name)
    assert info.kept == ()
    assert info.retention == "seconds"
    assert info.left is not None
    assert 900 < info.left <= 1000


def test_seal_is_added_before_others_may_write(client: tidl.Client, peer: Peer, name: str) -> None:
    client.publish(name, client.empty((4,)))
    assert "seal" not in client.inspect(name).segments[0].seals
    peer.do(f"y = client.get({name!r}, access='write')")
    assert "seal" in client.inspect(name).segments[0].seals


def test_remove_leaves_holders_alone(client: tidl.Client, peer: Peer, name: str) -> None:
    client.publish(name, np.arange(3))
    peer.do(f"y = client.get({name!r})")
    client.remove(name)
    assert client.list(name) == []
    assert peer.ask("y.to_numpy().tolist()") == [0, 1, 2]


def test_records_are_frozen(client: tidl.Client, name: str) -> None:
    publication = client.publish(name, b"x")
    with pytest.raises(dataclasses.FrozenInstanceError):
        publication.copied = False  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        client.inspect(name).holders = ()  # type: ignore[misc]


def test_broker(client: tidl.Client) -> None:
    broker = client.broker
    assert (len(broker.id), broker.uid, broker.private) == (16, os.getuid(), True)
    assert broker.address.endswith("/tidl/private.sock")
    assert broker.version == tidl.__version__


def test_descriptor_can_be_watched(client: tidl.Client, name: str) -> None:
    client.dispatch()
    assert select.select([client.fileno()], [], [], 0)[0] == []
    client.publish(name, b"x")
    client.dispatch()
    assert select.select([client], [], [], 0)[0] == []


def test_shutdown(own_runtime: Path) -> None:
    with tidl.connect() as client:
        (pid,) = broker_pids(own_runtime)
        client.shutdown()
        assert await_end(pid)
        with pytest.raises(tidl.BrokerGoneError):
            client.list()
