# SPDX-License-Identifier: Apache-2.0
"""Mappings across processes: nesting, order, sharing, and parts."""

from __future__ import annotations

import os
import re
import subprocess
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from python_brokers import is_let_go
from python_bundles import charged, inodes, mapped_inodes
from python_peer import Peer, PeerError

import tidl

NESTED: dict[str, Any] = {
    "z": np.arange(6, dtype=np.int64).reshape(2, 3),
    "encoder": {
        "block": {"weight": np.full((2, 2), 1.5, np.float32), "bias": np.zeros(0, np.float32)},
        "nothing": {},
        "scalar": np.float32(2.5).reshape(()),
    },
    "a/b~c": {"x/y": np.ones(3, np.uint8), "deep": {"empty": {}}},
    "last": {},
}


def test_nesting_and_order_are_kept(client: tidl.Client, peer: Peer, name: str) -> None:
    publication = client.publish(name, NESTED, metadata={"step": 3})
    assert publication.tensor_count == 5
    assert publication.copied_count == 4  # one has no elements
    assert (publication.copied, publication.path, publication.reason) == (True, "copied", "foreign")
    peer.do(f"b = client.get({name!r})\nd = b.to_numpy()")
    peer.do(
        "def shape(d): return {k: shape(v) if isinstance(v, dict) else v.tolist()"
        " for k, v in d.items()}"
    )
    found = peer.ask("shape(d)")

    def shape(d: dict[str, Any]) -> dict[str, Any]:
        return {k: shape(v) if isinstance(v, dict) else v.tolist() for k, v in d.items()}

    assert found == shape(NESTED)
    assert peer.ask("list(b)") == ["z", "encoder", "a/b~c", "last"]
    assert peer.ask("list(b['encoder'])") == ["block", "nothing", "scalar"]
    assert peer.ask("b.metadata") == {"step": 3}
    assert peer.ask("b.generation") == publication.generation
    assert peer.ask("list(b.flat)") == [
        "z",
        "encoder/block/weight",
        "encoder/block/bias",
        "encoder/scalar",
        "a~1b~0c/x~1y",
    ]


def test_a_bundle_is_a_mapping(client: tidl.Client, name: str) -> None:
    client.publish(name, NESTED)
    bundle = client.get(name)
    assert isinstance(bundle, tidl.Bundle)
    assert len(bundle) == 4
    assert "z" in bundle
    assert "encoder/block" not in bundle
    assert bundle["z"] is bundle["z"]
    assert bundle["z"] is bundle.flat["z"]
    block = bundle["encoder"]["block"]
    assert isinstance(block, tidl.Bundle)
    assert list(block.flat) == ["weight", "bias"]
    assert block["weight"].to_numpy()[1, 1] == 1.5
    assert dict(bundle["last"]) == {}
    assert bundle.get("missing") is None
    with pytest.raises(KeyError):
        bundle["missing"]
    assert bundle.nbytes == sum(tensor.nbytes for tensor in bundle.flat.values())
    assert bundle.readonly
    assert "4 keys" in repr(bundle)
    assert bundle["encoder"]["scalar"].key == "encoder/scalar"
    assert "['encoder/scalar']" in repr(bundle["encoder"]["scalar"])
    assert client.empty(1).key is None
    with pytest.raises(TypeError):
        bundle["z"] = 1  # type: ignore[index]


def test_keys_with_slashes(client: tidl.Client, name: str) -> None:
    path = tidl.join_key("a/b~c", "x/y")
    assert path == "a~1b~0c/x~1y"
    assert tidl.split_key(path) == ("a/b~c", "x/y")
    client.publish(name, NESTED)
    part = client.get(name, keys=[path])
    assert part["a/b~c"]["x/y"].to_numpy().tolist() == [1, 1, 1]


@pytest.mark.parametrize("mapping", [{}, {"only": np.ones(2)}, {"a": {"b": {}}}])
def test_small_bundles_stay_bundles(
    client: tidl.Client, name: str, mapping: dict[str, Any]
) -> None:
    publication = client.publish(name, mapping)
    bundle = client.get(name)
    assert isinstance(bundle, tidl.Bundle)
    assert publication.tensor_count == len(bundle.flat)
    assert str(bundle.to_numpy()) == str(mapping)


def test_allocated_members_are_not_copied(client: tidl.Client, peer: Peer, name: str) -> None:
    one = client.empty((4, 8), dtype="float32")
    two = client.empty(3, dtype="int16")
    array = one.to_numpy()
    array[:] = np.arange(32).reshape(4, 8)
    publication = client.publish(
        name, {"rows": array[1:3], "transposed": array.T, "whole": one, "two": two}, copy=False
    )
    assert (publication.copied_count, publication.path) == (0, "allocated")
    assert set(inodes(client, name)) <= mapped_inodes()
    peer.do(f"b = client.get({name!r}, access='write')\nd = b.to_numpy()")
    assert peer.ask("b.segment_count") == 2
    assert peer.ask("d['transposed'].tolist()") == array.T.tolist()
    peer.do("d['rows'][0, 0] = -1; d['two'][:] = 7")
    assert array[1, 0] == -1
    assert two.to_numpy().tolist() == [7, 7, 7]
    assert peer.ask("float(d['whole'][1, 0])") == -1


def test_mixed_members(client: tidl.Client, peer: Peer, name: str) -> None:
    mine = client.full(4, 2.0, dtype="float32")
    foreign = np.arange(4.0)
    publication = client.publish(name, {"mine": mine, "foreign": foreign, "again": mine})
    assert (publication.tensor_count, publication.copied_count) == (3, 1)
    assert (publication.path, publication.reason) == ("copied", "foreign")
    mine.to_numpy()[:] = 9  # followed
    foreign[:] = 0  # a snapshot was copied
    peer.do(f"d = client.get({name!r}).to_numpy()")
    assert peer.ask("d['mine'].tolist()") == [9.0] * 4
    assert peer.ask("d['foreign'].tolist()") == [0.0, 1.0, 2.0, 3.0]
    assert peer.ask("d['mine'] is d['again']")
    with pytest.raises(tidl.CopyNeededError, match=r"^'foreign': "):
        client.publish(f"{name}/2", {"mine": mine, "foreign": foreign}, copy=False)


def test_copies_lie_in_one_segment_aligned(client: tidl.Client, name: str) -> None:
    publication = client.publish(
        name, {f"t{i}": np.full(i + 1, i, np.int8) for i in range(50)}, access="shared"
    )
    inspection = client.inspect(name)
    assert len(inspection.segments) == 1
    assert all(tensor.byte_offset % 256 == 0 for tensor in inspection.tensors)
    assert [tensor.key for tensor in inspection.tensors] == [f"t{i}" for i in range(50)]
    assert publication.exposed_bytes == inspection.segments[0].data_size_bytes
    bundle = client.get(name)
    for i in range(50):
        assert bundle[f"t{i}"].to_numpy().tolist() == [i] * (i + 1)


def test_what_shared_memory_shares_it_again(client: tidl.Client, peer: Peer, name: str) -> None:
    weight = np.arange(24, dtype=np.float32).reshape(4, 6)
    publication = client.publish(
        name,
        {"head": weight, "embedding": weight, "transposed": weight.T, "row": weight[2]},
    )
    assert publication.copied_count == 4
    assert publication.exposed_bytes == os.sysconf("SC_PAGE_SIZE")
    peer.do(f"b = client.get({name!r}, access='write')\nd = b.to_numpy()")
    assert peer.ask("d['head'] is d['embedding']")
    peer.do("d['head'][2, 1] = -7")
    assert peer.ask("float(d['transposed'][1, 2])") == -7
    assert peer.ask("float(d['row'][1])") == -7
    assert peer.ask("b['row']._address - b['head']._address") == 2 * 6 * 4


def test_a_part_maps_only_what_it_needs(client: tidl.Client, peer: Peer, name: str) -> None:
    tensors = {f"t{i}": client.full(5, i, dtype="int32") for i in range(6)}
    client.publish(name, {"first": {"x": tensors["t0"], "y": tensors["t1"]}, "rest": tensors})
    before = mapped_inodes(peer.pid)
    peer.do(f"b = client.get({name!r}, keys=['rest/t4', 'first'])")
    assert peer.ask("list(b.flat)") == ["first/x", "first/y", "rest/t4"]
    assert peer.ask("b['rest']['t4'].to_numpy().tolist()") == [4] * 5
    info = client.inspect(name)
    wanted = {
        info.segments[tensor.segment_index].inode
        for tensor in info.tensors
        if tensor.segment_index is not None and tensor.key in ("first/x", "first/y", "rest/t4")
    }
    assert mapped_inodes(peer.pid) - before == wanted
    assert peer.ask("b.segment_count") == 3


@pytest.mark.parametrize("count", [100, 3000])
def test_a_part_of_many(client: tidl.Client, name: str, count: int) -> None:
    """With and without a manifest."""
    mapping = {
        "a": {f"layer.{i}": np.full(2, i, np.int32) for i in range(count)},
        "empty": {"in": {}},
        "b": {"c": np.ones(1)},
    }
    client.publish(name, mapping)
    part = client.get(name, keys=["a/layer.7", "empty", "a/layer.70"])
    assert list(part.flat) == ["a/layer.7", "a/layer.70"]
    assert list(part) == ["a", "empty"]
    assert part["a"]["layer.70"].to_numpy().tolist() == [70, 70]
    assert dict(part["empty"]["in"]) == {}
    with pytest.raises(tidl.NotFoundError, match=r"a/layer\.x"):
        client.get(name, keys=["a/layer.7", "a/layer.x"])
    with pytest.raises(tidl.NotFoundError):
        client.get(name, keys=["a/layer."])


def test_more_segments_than_a_packet_has(client: tidl.Client, peer: Peer, name: str) -> None:
    tensors = {f"t{i}": client.full(3, i, dtype="int32") for i in range(600)}
    publication = client.publish(name, tensors)
    assert publication.copied_count == 0
    peer.do(f"b = client.get({name!r})\nd = b.to_numpy()")
    assert peer.ask("b.segment_count") == 600
    assert peer.ask("[int(d[f't{i}'][2]) for i in range(600)]") == list(range(600))
    assert set(inodes(client, name)) <= mapped_inodes(peer.pid)
    open_files = len(os.listdir(f"/proc/{peer.pid}/fd"))
    assert open_files < 50  # none of the segments' descriptors was kept
    peer.do("d.clear(); b.release()")
    assert not set(inodes(client, name)) & mapped_inodes(peer.pid)
    part = client.get(name, keys=[f"t{i}" for i in range(0, 600, 2)])
    assert part.segment_count == 300
    assert part["t598"].to_numpy().tolist() == [598] * 3


def test_the_lease_ends_with_the_last(client: tidl.Client, peer: Peer, name: str) -> None:
    client.publish(name, {"x": np.ones(4), "y": np.zeros(4)})
    peer.do(f"b = client.get({name!r})\na = b['x'].to_numpy()\nt = b['y']")
    assert len(client.inspect(name).holders) == 1
    peer.do("b.release()")
    with pytest.raises(PeerError) as refused:
        peer.do("t.to_numpy()")
    assert refused.value.code == "RELEASED"
    with pytest.raises(PeerError) as refused:
        peer.do("b['x']")
    assert refused.value.code == "RELEASED"
    assert peer.ask("a.tolist()") == [1.0] * 4
    assert len(client.inspect(name).holders) == 1
    peer.do("del a; client.list()")
    assert is_let_go(client, name)


def test_a_tensor_outlives_its_bundle(client: tidl.Client, peer: Peer, name: str) -> None:
    client.publish(name, {"x": np.ones(4), "y": np.zeros(4)})
    peer.do(f"t = client.get({name!r})['x']\nimport gc; gc.collect()")
    client.publish(name, {"x": np.zeros(4)}, replace=True)
    assert peer.ask("t.to_numpy().tolist()") == [1.0] * 4


def test_replacing_leaves_readers_alone(client: tidl.Client, peer: Peer, name: str) -> None:
    first = client.publish(name, {"x": np.ones(4)})
    peer.do(f"b = client.get({name!r})")
    second = client.publish(name, np.zeros(2), replace=True)
    assert second.generation > first.generation
    assert peer.ask("b['x'].to_numpy().tolist()") == [1.0] * 4
    assert isinstance(client.get(name), tidl.Tensor)


def test_waiting_for_a_bundle(client: tidl.Client, peer: Peer, name: str) -> None:
    peer.start(f"list(client.get({name!r}, timeout=60).flat)", is_expression=True)
    client.publish(name, OrderedDict(b=np.ones(1), a={"c": np.ones(2)}))
    assert peer.finish() == ["b", "a/c"]


def test_a_bundle_can_be_published_again(client: tidl.Client, peer: Peer, name: str) -> None:
    peer.do(f"p = client.publish({name!r}, {{'w': np.ones(3), 'n': {{'v': np.zeros(2)}}}})")
    bundle = client.get(name)
    again = client.publish(f"{name}/again", bundle, copy=False)
    assert (again.path, again.copied_count) == ("attached", 0)
    assert inodes(client, f"{name}/again") == inodes(client, name)
    renamed = client.publish(f"{name}/one", {"only": bundle["w"]}, copy=False)
    assert renamed.path == "attached"


def test_copy_on_write(client: tidl.Client, name: str) -> None:
    client.publish(name, {"x": np.ones(4), "y": np.ones(4)})
    own = client.get(name, access="copy_on_write").to_numpy()
    own["x"][0] = 5
    assert client.get(name)["x"].to_numpy()[0] == 1


@pytest.mark.parametrize("copies", [False, True])
def test_immutable(client: tidl.Client, peer: Peer, name: str, copies: bool) -> None:
    one, two = client.full(3, 1.0), client.full(4, 2.0)
    mapping = {"a": one, "b": {"c": two, "tied": two}}
    publication = client.publish(name, mapping, access="immutable", copy=copies or None)
    assert publication.copied is copies
    assert (one.readonly, two.readonly) == (not copies, not copies)
    peer.do(f"b = client.get({name!r})")
    with pytest.raises(PeerError) as refused:
        peer.do(f"client.get({name!r}, access='write')")
    assert refused.value.code == "ACCESS"
    assert peer.ask("[t.to_numpy().tolist() for t in b.flat.values()]") == [
        [1.0] * 3,
        [2.0] * 4,
        [2.0] * 4,
    ]
    assert peer.ask("{t.published_as for t in b.flat.values()}") == {"immutable"}
    own = client.get(name, access="copy_on_write").to_numpy()
    own["a"][0] = 9
    assert peer.ask("float(b['a'].to_numpy()[0])") == 1.0


def test_live(client: tidl.Client, peer: Peer, name: str) -> None:
    one, two = client.zeros(3), client.zeros(4)
    client.publish(name, {"a": one, "b": two}, access="live")
    peer.do(f"d = client.get({name!r}).to_numpy()")
    one.to_numpy()[:] = 3
    two.to_numpy()[:] = 4
    assert peer.ask("(d['a'].tolist(), d['b'].tolist())") == ([3.0] * 3, [4.0] * 4)
    with pytest.raises(PeerError) as refused:
        peer.do(f"client.get({name!r}, access='write')")
    assert refused.value.code == "ACCESS"


def test_for_asyncio(client: tidl.Client, peer: Peer, name: str) -> None:
    peer.start(f"import asyncio\nb = asyncio.run(client.aget({name!r}, timeout=60, keys=['a']))\n")
    client.publish(name, {"a": {"b": np.ones(2)}, "c": np.ones(1)})
    peer.finish()
    assert peer.ask("list(b.flat)") == ["a/b"]


def test_parts_for_asyncio(client: tidl.Client, peer: Peer, name: str) -> None:
    """The descriptors that do not fit into the first answer are asked for, too."""
    client.publish(name, {f"t{i}": client.full(3, i, dtype="int32") for i in range(300)})
    peer.do(f"import asyncio\nb = asyncio.run(client.aget({name!r}))")
    assert peer.ask("b.segment_count") == 300
    assert peer.ask("int(b['t299'].to_numpy()[0])") == 299


def test_too_few_descriptors(client: tidl.Client, peer: Peer, name: str) -> None:
    """Nothing is left of an attach that could not have all of its memory."""
    client.publish(name, {f"t{i}": client.full(3, i, dtype="int32") for i in range(300)})
    peer.do(
        "import resource\n"
        "limits = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (100, limits[1]))"
    )
    with pytest.raises(PeerError) as refused:
        peer.do(f"client.get({name!r})")
    assert refused.value.code == "DESCRIPTORS"
    assert peer.pid not in {holder.pid for holder in client.inspect(name).holders}
    assert not set(inodes(client, name)) & mapped_inodes(peer.pid)
    peer.do("resource.setrlimit(resource.RLIMIT_NOFILE, limits)")
    assert peer.ask(f"client.get({name!r}).segment_count") == 300


def test_after_fork(client: tidl.Client, peer: Peer, name: str) -> None:
    client.publish(name, {"a": np.full(4, 7.0), "b": {"c": np.full(2, 8.0)}})
    peer.do(
        f"b = client.get({name!r})\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    old = b['b']['c'].to_numpy().sum()\n"
        f"    new = client.get({name!r})['a'].to_numpy().sum()\n"
        "    os._exit(int(old + new))\n"
        "status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])"
    )
    assert peer.ask("status") == 16 + 28
    assert peer.ask("float(b['a'].to_numpy()[0])") == 7.0


READER = """
import numpy as np
client = tidl.connect()

def read(name):
    seen, last = 0, 0
    while True:
        with client.get(name, timeout=60) as bundle:
            found = {float(value) for array in bundle.to_numpy().values() for value in array}
            assert len(found) == 1, found
            assert bundle.generation >= last
            last = bundle.generation
            seen += 1
            if found == {-1.0}:
                return seen
"""


def test_a_thousand_replacements_under_eight_readers(
    client: tidl.Client, start_peer: Callable[..., Peer], name: str
) -> None:
    """No reader ever sees tensors of two generations, and all memory comes back."""
    readers = [start_peer(READER) for _ in range(8)]
    before = charged(client)
    arrays = {f"t{i}": np.zeros(64) for i in range(20)}
    client.publish(name, arrays)
    for reader in readers:
        reader.start(f"read({name!r})", is_expression=True)
    for step in range(1, 1001):
        for array in arrays.values():
            array[:] = step
        client.publish(name, arrays, replace=True)
    for array in arrays.values():
        array[:] = -1
    client.publish(name, arrays, replace=True)
    assert all(reader.finish() > 0 for reader in readers)
    assert is_let_go(client, name)
    client.remove(name)
    assert charged(client) == before


# ---- administration ----


def test_listing_and_inspection(client: tidl.Client, name: str) -> None:
    client.publish(name, {f"t{i}": np.full(i + 1, i) for i in range(40)})
    (entry,) = [entry for entry in client.list() if entry.name == name]
    assert (entry.tensor_count, entry.dtype, entry.shape) == (40, "int64", (1,))
    inspection = client.inspect(name)
    assert entry.bundle
    assert inspection.bundle
    assert [tensor.shape for tensor in inspection.tensors] == [(i + 1,) for i in range(40)]


def test_listing_an_empty_bundle(client: tidl.Client, name: str) -> None:
    client.publish(name, {})
    (entry,) = [entry for entry in client.list() if entry.name == name]
    assert (entry.bundle, entry.tensor_count, entry.dtype, entry.shape) == (True, 0, None, ())
    inspection = client.inspect(name)
    assert (inspection.bundle, inspection.tensors, inspection.segments) == (True, (), ())


def test_tidlctl_shows_bundles(client: tidl.Client, name: str) -> None:
    client.publish(name, {"a": {"b": np.ones(3), "none": {}}, "c": np.zeros(0)})
    tidlctl = Path(tidl.__file__).parent / "bin/tidlctl"

    def run(*arguments: str) -> str:
        done = subprocess.run([tidlctl, *arguments], capture_output=True, text=True, check=True)
        return done.stdout

    assert re.search(rf"^{name} +bundle +2 tensors +24 ", run("list"), re.MULTILINE)
    text = run("inspect", name)
    assert "bundle: tensors: 2, segments: 1" in text
    assert re.search(r"^  a/b +float64 +\(3,\)", text, re.MULTILINE)
