# SPDX-License-Identifier: Apache-2.0
"""Bundles over the wire: lists and manifests, parts of them, answers in parts, their ends."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import tidl_wire
from raw_bundles import (
    SEGMENTS_PER_PUBLICATION,
    TENSORS_PER_PUBLICATION,
    bundle,
    get_all,
    keys_of,
    members,
    publish_content,
    publish_lists,
    publish_manifest,
    read_manifest,
    rows,
)
from raw_peer import Memory, RawPeer, Reply, tensor
from tidl_wire import PACKET_MAX_FDS, Attach, Code
from tidld_process import Broker
from world import World

NAME = "bundle/x"
Publish = Callable[..., Reply]


@pytest.fixture(params=[publish_lists, publish_manifest], ids=["lists", "manifest"])
def publish(request: pytest.FixtureRequest) -> Publish:
    way: Publish = request.param
    return way


def must(reply: Reply) -> Reply:
    assert reply.kind == "published", reply.packet
    return reply


def rows_of(reply: Reply) -> Any:
    """Tensors and empty mappings, wherever they travel."""
    granted = reply.packet.granted
    return read_manifest(reply.fds[0]) if granted.has_manifest else granted


def inodes(fds: list[int]) -> list[int]:
    return [os.fstat(fd).st_ino for fd in fds]


# ---- what goes in comes out ----


def test_round_trip(peer: RawPeer, publish: Publish) -> None:
    first, second = peer.allocate(100), peer.allocate(100)
    os.pwrite(second.write_fd, b"here", 0)
    lists = rows(
        [second, first],
        [
            tensor(4, key="b/weight", segment_index=0),
            tensor(8, key="b/bias", segment_index=1, byte_offset=7),
            {
                "key": "none",
                "byte_offset": 0,
                "dtype": tidl_wire.UINT8,
                "shape": [0],
                "strides": [1],
            },
            tensor(4, key="a~1b/tied", segment_index=0),
        ],
        ("optimizer", 0),
        ("a/ä", 3),
        ("last", 4),
    )
    published = must(publish(peer, NAME, lists)).packet.published
    assert published.exposed_bytes == first.data_bytes + second.data_bytes

    reply = peer.must_get_bundle(NAME)
    granted = reply.packet.granted
    content = rows_of(reply)
    assert [row.key.decode() for row in content.tensors] == [
        "b/weight",
        "b/bias",
        "none",
        "a~1b/tied",
    ]
    assert [row.segment_index for row in content.tensors if row.shape[0]] == [0, 1, 0]
    assert not content.tensors[2].HasField("segment_index")
    assert content.tensors[1].byte_offset == 7
    assert [(row.key.decode(), row.position) for row in content.empty_mappings] == [
        ("optimizer", 0),
        ("a/ä", 3),
        ("last", 4),
    ]
    assert [segment.id for segment in granted.segments] == [second.id, first.id]
    fds = reply.fds[bool(granted.has_manifest) :]
    assert inodes(fds) == inodes([second.read_fd, first.read_fd])
    assert os.pread(fds[0], 4, 0) == b"here"
    assert not granted.next_cursor
    assert not granted.segment_numbers
    peer.remove(NAME)


@pytest.mark.parametrize("count", [0, 1])
def test_small_ones_are_bundles_too(peer: RawPeer, count: int) -> None:
    memories = [peer.allocate(1)] * count
    must(publish_lists(peer, NAME, rows(memories, members(count))))
    granted = peer.must_get_bundle(NAME).packet.granted
    assert keys_of(granted) == ["t0"] * count
    (entry,) = peer.ask("list", pattern=NAME).packet.listing.entries
    assert entry.is_bundle
    assert entry.tensor_count == count
    peer.remove(NAME)


def test_nothing_but_empty_mappings(peer: RawPeer, publish: Publish) -> None:
    must(publish(peer, NAME, rows([], [], ("a", 0), ("b/c", 0))))
    reply = peer.must_get_bundle(NAME)
    assert [row.key.decode() for row in rows_of(reply).empty_mappings] == ["a", "b/c"]
    peer.remove(NAME)


def test_the_largest(peer: RawPeer) -> None:
    memory = peer.allocate(TENSORS_PER_PUBLICATION)
    lists = rows([memory], members(TENSORS_PER_PUBLICATION, prefix="model/layers/"))
    must(publish_manifest(peer, NAME, lists))
    reply = peer.must_get_bundle(NAME)
    assert len(read_manifest(reply.fds[0]).tensors) == TENSORS_PER_PUBLICATION
    assert len(reply.packet.granted.segments) == 1
    peer.remove(NAME)


def test_the_manifest_is_handed_on_as_it_came(world: World, peer: RawPeer) -> None:
    memory = peer.allocate(1)
    before = len(world.broker.descriptors())
    must(publish_manifest(peer, NAME, rows([memory], members(1))))
    assert len(world.broker.descriptors()) == before + 1
    first, second = peer.must_get_bundle(NAME), world.connect().must_get_bundle(NAME)
    assert inodes(first.fds[:1]) == inodes(second.fds[:1])
    for fd in (first.fds[0], second.fds[0]):
        with pytest.raises(PermissionError):
            os.pwrite(fd, b"x", 0)
        with pytest.raises(PermissionError):
            os.ftruncate(fd, 0)
    peer.remove(NAME)


def test_replaced_and_aliased(peer: RawPeer, publish: Publish) -> None:
    shared, other = peer.allocate(1), peer.allocate(1)
    must(publish(peer, NAME, rows([shared], members(1))))
    lists = rows([other, shared], [*members(1), *members(1, segment_index=1, prefix="u")])
    published = must(publish(peer, NAME, lists, replace=True)).packet.published
    assert published.aliases_previous
    lists = rows([], [], ("nothing", 0))
    published = must(publish(peer, NAME, lists, replace=True)).packet.published
    assert not published.aliases_previous
    peer.remove(NAME)


def test_handed_over(peer: RawPeer, world: World, publish: Publish) -> None:
    """Nobody who waits for the name finds a writer of any of its segments."""
    waiting = world.connect()
    number = waiting.send("get", name=NAME, attach=Attach.COPY_ON_WRITE, wait=True)
    memories = [peer.allocate(1) for _ in range(3)]
    lists = rows(memories, [tensor(1, key=f"t{i}", segment_index=i) for i in range(3)])
    must(publish(peer, NAME, lists, hands_over=True))
    assert waiting.answer(number).kind == "granted"
    peer.remove(NAME)


# ---- more segments than a packet has descriptors ----


def many_segments(peer: RawPeer, count: int) -> list[Memory]:
    found = []
    for _ in range(count):
        memory = peer.allocate(1)
        memory.close()
        found.append(memory)
    return found


@pytest.mark.parametrize("count", [252, 253, 254, 600])
def test_segments_in_parts(peer: RawPeer, publish: Publish, count: int) -> None:
    memories = many_segments(peer, count)
    lists = rows(memories, [tensor(1, key=f"t{i}", segment_index=i) for i in range(count)])
    must(publish(peer, NAME, lists))
    granted, segments, fds = get_all(peer, NAME)
    assert [segment.id for segment in segments] == [memory.id for memory in memories]
    assert len(set(inodes(fds))) == len(fds) == count + bool(granted.has_manifest)
    peer.remove(NAME)
    for fd in fds:
        assert os.fstat(fd).st_size > 0  # whatever becomes of the name


def test_parts_may_be_asked_for_again_and_ahead(peer: RawPeer) -> None:
    memories = many_segments(peer, 600)
    lists = rows(memories, [tensor(1, key=f"t{i}", segment_index=i) for i in range(600)])
    must(publish_manifest(peer, NAME, lists))
    granted = peer.must_get_bundle(NAME).packet.granted
    numbers = [peer.send("get_more", cursor=granted.next_cursor) for _ in range(2)]
    parts = [peer.answer(number) for number in numbers]
    assert parts[0].packet.more == parts[1].packet.more
    assert len(parts[0].fds) == PACKET_MAX_FDS
    assert inodes(parts[0].fds) == inodes(parts[1].fds)
    peer.remove(NAME)


@pytest.mark.parametrize("cursor", [0, 1, 4095, 4096, 2**63, 2**64 - 1])
def test_cursors_that_nobody_gave(peer: RawPeer, cursor: int) -> None:
    peer.refuses(Code.NOT_FOUND, f"nothing behind cursor {cursor} ", "get_more", cursor=cursor)


def test_cursors_end_with_the_lease_and_are_ones_own(world: World, peer: RawPeer) -> None:
    memories = many_segments(peer, 300)
    lists = rows(memories, [tensor(1, key=f"t{i}", segment_index=i) for i in range(300)])
    must(publish_manifest(peer, NAME, lists))
    granted = peer.must_get_bundle(NAME).packet.granted
    cursor = granted.next_cursor
    other = world.connect()
    other.refuses(Code.NOT_FOUND, "nothing behind cursor", "get_more", cursor=cursor)
    for wrong in (cursor - 252, cursor + 300, cursor + 4096):
        peer.refuses(Code.NOT_FOUND, "nothing behind cursor", "get_more", cursor=wrong)
    peer.remove(NAME)
    assert len(peer.ask("get_more", cursor=cursor).fds) == 300 - 252
    peer.release(leases=[granted.lease_id])
    peer.refuses(Code.NOT_FOUND, "nothing behind cursor", "get_more", cursor=cursor)


def test_one_who_leaves_between_the_parts(world: World, peer: RawPeer) -> None:
    memories = many_segments(peer, 300)
    lists = rows(memories, [tensor(1, key=f"t{i}", segment_index=i) for i in range(300)])
    must(publish_manifest(peer, NAME, lists))
    for _ in range(20):
        leaving = world.connect()
        leaving.must_get_bundle(NAME)
        leaving.close()
    peer.remove(NAME)  # the world is as it was before: memory, descriptors, holders


# ---- some of it ----

TREE = {
    "encoder/0/weight": 0,
    "encoder/0/bias": 1,
    "encoder/1/weight": 2,
    "encoder": None,
    "head": 1,
    "encoders/x": 3,
}


def publish_tree(peer: RawPeer, publish: Publish) -> list[Memory]:
    memories = [peer.allocate(1) for _ in range(4)]
    tensors = [
        tensor(1, key=key, segment_index=index) for key, index in TREE.items() if index is not None
    ]
    lists = rows(memories, tensors, ("optimizer", 0), ("encoder/2", 3), ("state/a", 5))
    must(publish(peer, NAME, lists))
    return memories


@pytest.mark.parametrize(
    ("keys", "found", "mappings", "numbers"),
    [
        (["head"], ["head"], [], [1]),
        (["encoders/x", "encoder/0/weight"], ["encoder/0/weight", "encoders/x"], [], [0, 3]),
        (
            ["encoder"],
            ["encoder/0/weight", "encoder/0/bias", "encoder/1/weight"],
            [("encoder/2", 3)],
            [0, 1, 2],
        ),
        (["encoder/0", "head"], ["encoder/0/weight", "encoder/0/bias", "head"], [], [0, 1]),
        (["optimizer"], [], [("optimizer", 0)], []),
        (["state", "encoders"], ["encoders/x"], [("state/a", 1)], [3]),
        (["head", "head"], ["head"], [], [1]),
        (
            ["encoder", "encoders", "head", "encoder/0"],
            ["encoder/0/weight", "encoder/0/bias", "encoder/1/weight", "head", "encoders/x"],
            [("encoder/2", 3)],
            [0, 1, 2, 3],
        ),
    ],
)
def test_subsets(
    peer: RawPeer,
    publish: Publish,
    keys: list[str],
    found: list[str],
    mappings: list[tuple[str, int]],
    numbers: list[int],
) -> None:
    memories = publish_tree(peer, publish)
    granted = peer.must_get_bundle(NAME, keys=keys).packet.granted
    assert [segment.id for segment in granted.segments] == [memories[i].id for i in numbers]
    if granted.has_manifest:
        assert list(granted.segment_numbers) == (numbers if len(numbers) < 4 else [])
    else:
        assert keys_of(granted) == found
        assert [(row.key.decode(), row.position) for row in granted.empty_mappings] == mappings
        places = [numbers.index(TREE[key]) for key in found]  # type: ignore[arg-type]
        assert [row.segment_index for row in granted.tensors] == places
    peer.remove(NAME)


@pytest.mark.parametrize(
    "key", ["nothing", "encoder/0/w", "encoder/0/weight/x", "encoder/9", "heads"]
)
def test_keys_that_name_nothing(peer: RawPeer, publish: Publish, key: str) -> None:
    publish_tree(peer, publish)
    peer.refuses(
        Code.NOT_FOUND,
        f'"{NAME}" has nothing with the key "{key}"',
        "get",
        name=NAME,
        attach=Attach.READ,
        keys=["head", key],
    )
    peer.remove(NAME)


@pytest.mark.parametrize("key", ["", "/", "a/", "a//b", "~", "~2"])
def test_keys_that_are_none(peer: RawPeer, publish: Publish, key: str) -> None:
    publish_tree(peer, publish)
    peer.refuses(
        Code.INVALID_ARGUMENT, "key", "get", name=NAME, attach=Attach.READ, keys=["head", key]
    )
    peer.remove(NAME)


def test_a_part_of_many_segments_in_parts(peer: RawPeer, publish: Publish) -> None:
    memories = many_segments(peer, 700)
    tensors = [
        tensor(1, key=f"{'even' if i % 2 == 0 else 'odd'}/{i}", segment_index=i) for i in range(700)
    ]
    must(publish(peer, NAME, rows(memories, tensors)))
    granted, segments, fds = get_all(peer, NAME, keys=["odd"])
    assert [segment.id for segment in segments] == [memory.id for memory in memories[1::2]]
    assert len(fds) == 350 + bool(granted.has_manifest)
    peer.remove(NAME)


def test_a_lease_on_a_part_holds_that_part(world: World, peer: RawPeer, publish: Publish) -> None:
    """The rest of the bundle is not its to write or to publish."""
    memories = publish_tree(peer, publish)
    peer.release(segments=[memory.id for memory in memories])
    writer = world.connect()
    assert writer.must_get_bundle(NAME, Attach.WRITE, keys=["head"])
    assert peer.must_get_bundle(NAME, Attach.COPY_ON_WRITE, keys=["encoder/1"])
    peer.refuses(
        Code.BUSY, "can write", "get", name=NAME, attach=Attach.COPY_ON_WRITE, keys=["encoder"]
    )
    lists = rows([memories[0]], members(1))
    writer.refuses(Code.PERMISSION, "not this connection's", "publish", **bundle("bundle/y", lists))
    must(publish_lists(writer, "bundle/y", rows([memories[1]], members(1))))
    peer.remove("bundle/y")
    peer.remove(NAME)


def test_a_wait_for_a_part(world: World, peer: RawPeer, publish: Publish) -> None:
    waiting = world.connect()
    good = waiting.send("get", name=NAME, attach=Attach.READ, wait=True, keys=["head", "encoder/1"])
    bad = waiting.send("get", name=NAME, attach=Attach.READ, wait=True, keys=["missing"])
    waiting.goes_on()
    memories = publish_tree(peer, publish)
    granted = waiting.answer(good).packet.granted
    assert [segment.id for segment in granted.segments] == [memories[1].id, memories[2].id]
    waiting.answer(bad).fails_with(Code.NOT_FOUND, 'nothing with the key "missing"')
    peer.remove(NAME)


def test_waits_with_many_keys_are_charged(world: World, peer: RawPeer) -> None:
    before = world.used_bytes()
    number = peer.send(
        "get", name=NAME, attach=Attach.READ, wait=True, keys=[f"key/{i:05}" for i in range(3000)]
    )
    peer.goes_on()
    assert world.used_bytes() > before + 30000
    peer.cancel(number)
    peer.answer(number).fails_with(Code.CANCELLED, "cancelled")
    assert world.used_bytes() == before


# ---- what administrators see ----


def inspect_all(peer: RawPeer, name: str) -> tuple[Any, list[Any], list[Any], list[Any]]:
    page = peer.inspection(name)
    found: dict[str, list[Any]] = {"tensor": [], "segment": [], "holder": []}
    for what, rows_found in found.items():
        rows_found += getattr(page, f"{what}s")
        cursor = getattr(page, f"next_{what}_cursor")
        while cursor:
            more = peer.inspection(name, generation=page.generation, **{f"{what}_cursor": cursor})
            others = [getattr(more, f"{other}s") for other in found if other != what]
            assert not any(others), "a page that goes on with one list leaves the others out"
            rows_found += getattr(more, f"{what}s")
            cursor = getattr(more, f"next_{what}_cursor")
    return page, found["tensor"], found["segment"], found["holder"]


def test_inspection_in_pages(world: World, peer: RawPeer, publish: Publish) -> None:
    memories = many_segments(peer, 60)
    other = world.connect()
    lists = rows(memories, [tensor(1, key=f"t{i}", segment_index=i) for i in range(60)])
    must(publish(peer, NAME, lists))
    for _ in range(3):
        other.must_get_bundle(NAME)
    page, tensors, segments, holders = inspect_all(peer, NAME)
    assert page.is_bundle
    assert (page.all_tensor_count, page.all_segment_count) == (60, 60)
    assert [row.key.decode() for row in tensors] == [f"t{i}" for i in range(60)]
    assert [segment.id for segment in segments] == [memory.id for memory in memories]
    assert all(segment.inode for segment in segments)
    assert [holder.kind for holder in holders] == [2] * 60 + [1] * 3
    (entry,) = peer.ask("list", pattern=NAME).packet.listing.entries
    assert entry.is_bundle
    assert entry.tensor_count == 60
    assert entry.holder_count == 63
    assert list(entry.shape) == [1]
    peer.remove(NAME)


# ---- memory and its charge ----


def test_rows_are_charged(world: World, peer: RawPeer, publish: Publish) -> None:
    memory = peer.allocate(400)
    before = world.used_bytes()
    must(publish(peer, NAME, rows([memory], members(400))))
    used = world.used_bytes() - before
    assert 400 * 20 < used < 400 * 600
    peer.remove(NAME)
    assert world.used_bytes() == before


def test_a_million_tensors(start_broker: Callable[..., Broker]) -> None:
    """In bundles: the broker remembers little of them."""
    broker = start_broker("--quota-uid", str(4 << 30), "--quota-total", str(4 << 30))
    with RawPeer(broker.socket) as peer:
        memory = peer.allocate(TENSORS_PER_PUBLICATION)
        lists = rows([memory], members(TENSORS_PER_PUBLICATION, prefix="model/layers/"))
        content = tidl_wire.pack_manifest(**lists)
        before = broker.resident_bytes()
        for i in range(62):
            must(publish_content(peer, f"bundle/{i}", content))
        count = 62 * TENSORS_PER_PUBLICATION
        assert count > 1_000_000
        assert (broker.resident_bytes() - before) / count < 600
        assert len(peer.names("bundle/*")) == 62


def test_as_many_segments_as_there_may_be(start_broker: Callable[..., Broker]) -> None:
    broker = start_broker("--quota-uid", str(1 << 30), "--quota-total", str(1 << 30))
    with RawPeer(broker.socket) as peer:
        memories = many_segments(peer, SEGMENTS_PER_PUBLICATION)
        tensors = [tensor(1, key=f"t{i}", segment_index=i) for i in range(len(memories))]
        must(publish_manifest(peer, NAME, rows(memories, tensors)))
        cursor = peer.must_get_bundle(NAME).packet.granted.next_cursor
        count = PACKET_MAX_FDS - 1
        while cursor:
            more = peer.ask("get_more", cursor=cursor)
            count += len(more.fds)
            cursor = more.packet.more.next_cursor
            more.close()
        assert count == SEGMENTS_PER_PUBLICATION
        one_more = peer.allocate(1)
        one_more.close()
        tensors.append(tensor(1, key="one more", segment_index=len(memories)))
        publish_manifest(peer, "bundle/y", rows([*memories, one_more], tensors)).fails_with(
            Code.LIMIT, "has 4097 segments and may have 4096"
        )
