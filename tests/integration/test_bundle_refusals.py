# SPDX-License-Identifier: Apache-2.0
"""Bundles that are refused: bad rows among good ones, limits, quotas met half way, floods.

Whatever is wrong, nothing is published and nothing is left behind: the fixture `world` sees to it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import tidl_wire
from raw_bundles import (
    INLINE_ROWS_MAX_BYTES,
    TENSORS_PER_PUBLICATION,
    manifest_fields,
    members,
    memfd,
    publish_lists,
    publish_manifest,
    rows,
)
from raw_peer import Memory, RawPeer, Reply, publication, tensor
from tidl_wire import Attach, Code, pack_manifest
from tidld_process import Broker
from world import QUOTA_BYTES, World

NAME = "bad/x"


@pytest.fixture
def memory(peer: RawPeer) -> Memory:
    return peer.allocate(100)


@pytest.fixture
def lists(memory: Memory) -> dict[str, Any]:
    return rows([memory], members(3))


# ---- bad rows, in lists and in manifests ----


@pytest.fixture(params=[publish_lists, publish_manifest], ids=["lists", "manifest"])
def publish(request: pytest.FixtureRequest) -> Callable[..., Reply]:
    way: Callable[..., Reply] = request.param
    return way


def refuses(peer: RawPeer, reply: Reply, code: Code, sentence: str) -> None:
    reply.fails_with(code, sentence)
    assert peer.names("bad/**") == []
    peer.goes_on()


KEYS: dict[str, tuple[list[str | None], str]] = {
    "none": (["a", None], "a key is empty: give each tensor of a bundle one"),
    "empty": (["a", ""], "a key is empty"),
    "empty_level": (["a//b"], 'the key "a//b" is not valid: it has an empty level'),
    "leading": (["/a"], "it has an empty level"),
    "trailing": (["a/"], "it has an empty level"),
    "tilde": (["a~"], "'~' stands only before '0' or '1'"),
    "tilde_2": (["a~2"], "'~' stands only before '0' or '1'"),
    "twice": (["a", "b", "a"], 'the key "a" comes twice'),
    "leaf_and_mapping": (
        ["a/b", "c", "a"],
        'the key "a" is a tensor or an empty mapping, and also',
    ),
    "mapping_and_leaf": (["a", "c", "a/b/c"], 'the key "a" is a tensor or an empty mapping'),
    "deep": (["a/b/c", "a/b/c/d"], 'the key "a/b/c" is a tensor'),
}


@pytest.mark.parametrize(("keys", "sentence"), KEYS.values(), ids=KEYS)
def test_keys(
    peer: RawPeer,
    memory: Memory,
    publish: Callable[..., Reply],
    keys: list[str | None],
    sentence: str,
) -> None:
    tensors = [tensor(1) if key is None else tensor(1, key=key) for key in keys]
    reply = publish(peer, NAME, rows([memory], tensors))
    refuses(peer, reply, Code.INVALID_ARGUMENT, sentence)


MAPPINGS: dict[str, tuple[list[tuple[str, int]], str]] = {
    "beyond": ([("m", 4)], 'the empty mapping "m" stands before tensor 4 of 3'),
    "falling": ([("m", 2), ("n", 1)], 'the empty mapping "n" stands before tensor 1 of 3'),
    "twice": ([("m", 1), ("m", 1)], 'the key "m" comes twice'),
    "tensor": ([("t1", 1)], 'the key "t1" comes twice'),
    "in_a_tensor": ([("t1/m", 1)], 'the key "t1" is a tensor'),
    "in_another": ([("m", 1), ("m/n", 1)], 'the key "m" is a tensor or an empty mapping'),
    "empty_key": ([("", 1)], "a key is empty"),
    "far": ([("m", 2**32 - 1)], "stands before tensor 4294967295 of 3"),
}


@pytest.mark.parametrize(("mappings", "sentence"), MAPPINGS.values(), ids=MAPPINGS)
def test_empty_mappings(
    peer: RawPeer,
    memory: Memory,
    publish: Callable[..., Reply],
    mappings: list[tuple[str, int]],
    sentence: str,
) -> None:
    reply = publish(peer, NAME, rows([memory], members(3), *mappings))
    refuses(peer, reply, Code.INVALID_ARGUMENT, sentence)


BAD_TENSORS: dict[str, tuple[dict[str, Any], Code, str]] = {
    "beyond": ({"byte_offset": 1 << 20}, Code.LAYOUT, "reaches beyond its memory"),
    "control_page": ({"byte_offset": 4096}, Code.LAYOUT, "reaches beyond its memory"),
    "overflow": ({"shape": [2**62], "strides": [2**62]}, Code.LAYOUT, "elements|strides|reaches"),
    "negative": ({"shape": [-1]}, Code.LAYOUT, "extents cannot be negative"),
    "dtype": ({"dtype": {"code": 2, "bits": 31, "lanes": 1}}, Code.DTYPE, "is not known"),
    "segment": ({"segment_index": 1}, Code.LAYOUT, "lies in segment 1 of 1: count from 0"),
    "segment_far": ({"segment_index": 2**32 - 1}, Code.LAYOUT, "lies in segment 4294967295 of 1"),
    "empty_with_segment": ({"shape": [0]}, Code.LAYOUT, "has no elements, but a segment"),
}


@pytest.mark.parametrize(("fields", "code", "sentence"), BAD_TENSORS.values(), ids=BAD_TENSORS)
def test_one_bad_tensor(
    peer: RawPeer,
    memory: Memory,
    publish: Callable[..., Reply],
    fields: dict[str, Any],
    code: Code,
    sentence: str,
) -> None:
    tensors = [tensor(1, key="good"), tensor(1, key="the/bad", **fields), tensor(1, key="late")]
    reply = publish(peer, NAME, rows([memory], tensors))
    refuses(peer, reply, code, f'tensor "the/bad": .*{sentence}|{sentence}')


@pytest.mark.parametrize("place", [0, 5000, 15999])
def test_one_bad_tensor_among_thousands(peer: RawPeer, place: int) -> None:
    memory = peer.allocate(16000)
    tensors = members(16000)
    tensors[place]["byte_offset"] = 1 << 30
    reply = publish_manifest(peer, NAME, rows([memory], tensors))
    refuses(peer, reply, Code.LAYOUT, f'tensor "t{place}": the tensor reaches beyond its memory')


def test_one_foreign_segment_among_many(
    world: World, peer: RawPeer, publish: Callable[..., Reply]
) -> None:
    foreign = world.connect().allocate(1)
    memories = [peer.allocate(1) for _ in range(50)]
    memories.insert(40, foreign)
    tensors = [tensor(1, key=f"t{i}", segment_index=i) for i in range(51)]
    reply = publish(peer, NAME, rows(memories, tensors))
    refuses(peer, reply, Code.PERMISSION, f"segment {foreign.id} is not this connection's")


def test_segment_twice(peer: RawPeer, memory: Memory, publish: Callable[..., Reply]) -> None:
    tensors = [*members(1), *members(1, segment_index=1, prefix="u")]
    reply = publish(peer, NAME, rows([memory, memory], tensors))
    refuses(peer, reply, Code.INVALID_ARGUMENT, f"segment {memory.id} is listed twice")


def test_segment_that_no_tensor_uses(peer: RawPeer, publish: Callable[..., Reply]) -> None:
    memories = [peer.allocate(1) for _ in range(3)]
    tensors = [tensor(1, key="a", segment_index=0), tensor(1, key="b", segment_index=2)]
    reply = publish(peer, NAME, rows(memories, tensors))
    refuses(peer, reply, Code.LAYOUT, f"segment {memories[1].id} of .* is used by no tensor")


@pytest.mark.parametrize("kind", [2, 3])
def test_mixed_devices(
    peer: RawPeer, memory: Memory, publish: Callable[..., Reply], kind: int
) -> None:
    lists = rows([memory], members(2))
    lists["segments"].append({"kind": kind, "id": 7})
    lists["tensors"][1]["segment_index"] = 1
    refuses(peer, publish(peer, NAME, lists), Code.UNSUPPORTED, "device memory is not built")


def test_another_access_of_one_segment(
    peer: RawPeer, memory: Memory, publish: Callable[..., Reply]
) -> None:
    assert peer.publish("held/x", memory.id, 1).kind == "published"
    other = peer.allocate(1)
    tensors = [tensor(1, key="a", segment_index=0), tensor(1, key="b", segment_index=1)]
    reply = publish(peer, NAME, rows([other, memory], tensors), access=2)
    refuses(peer, reply, Code.ACCESS, "access")
    peer.remove("held/x")


# ---- numbers beyond their limits ----


def test_too_many_tensors(peer: RawPeer) -> None:
    memory = peer.allocate(TENSORS_PER_PUBLICATION + 1)
    reply = publish_manifest(peer, NAME, rows([memory], members(TENSORS_PER_PUBLICATION + 1)))
    refuses(peer, reply, Code.LIMIT, "has 16385 tensors and empty mappings and may have 16384")
    lists = rows([memory], members(TENSORS_PER_PUBLICATION), ("m", 0))
    reply = publish_manifest(peer, NAME, lists)
    refuses(peer, reply, Code.LIMIT, "has 16385 tensors and empty mappings and may have 16384")


def test_lists_that_need_a_manifest(peer: RawPeer) -> None:
    memory = peer.allocate(1500)
    lists = rows([memory], members(1500))
    assert len(pack_manifest(**lists)) > INLINE_ROWS_MAX_BYTES
    reply = publish_lists(peer, NAME, lists)
    refuses(peer, reply, Code.LIMIT, "is more than 32768: send them as a manifest")


@pytest.mark.parametrize("short", [0, 1])
def test_lists_of_exactly_the_limit(peer: RawPeer, short: int) -> None:
    memory = peer.allocate(1)
    lists = rows([memory], [tensor(1, key=f"{i:04}{'k' * 200}") for i in range(136)])
    spare = INLINE_ROWS_MAX_BYTES - len(pack_manifest(**lists))
    while spare < 0:
        lists["tensors"].pop()
        spare = INLINE_ROWS_MAX_BYTES - len(pack_manifest(**lists))
    for row in lists["tensors"]:
        more = min(spare, 50)
        row["key"] += "k" * more
        spare -= more
    assert len(pack_manifest(**lists)) == INLINE_ROWS_MAX_BYTES
    if short:
        assert publish_lists(peer, NAME, lists).kind == "published"
        assert peer.must_get_bundle(NAME)
        peer.remove(NAME)
        return
    lists["tensors"][-1]["key"] += "k"
    refuses(peer, publish_lists(peer, NAME, lists), Code.LIMIT, "have 32769 bytes")


# ---- quotas met half way ----


def test_quota_met_by_the_rows(world: World, peer: RawPeer) -> None:
    """The segment is allocated, and the manifest is too much."""
    left = QUOTA_BYTES - world.used_bytes()
    memory = peer.allocate(left - 2 * 4096 - left % 4096)
    lists = rows([memory], members(2000))
    for _ in range(3):
        reply = publish_manifest(peer, NAME, lists)
        refuses(peer, reply, Code.QUOTA, "bytes of shared memory")
    peer.release(segments=[memory.id])


def test_quota_of_holds_met_by_a_lease(start_broker: Callable[..., Broker]) -> None:
    """A lease counts each of its segments; the one too many leaves nothing behind."""
    broker = start_broker("--quota-uid", str(1 << 30), "--quota-total", str(1 << 30))
    with RawPeer(broker.socket) as peer, RawPeer(broker.socket) as reader:
        memories = []
        for _ in range(4000):
            memory = peer.allocate(1)
            memory.close()
            memories.append(memory)
        tensors = [tensor(1, key=f"t{i}", segment_index=i) for i in range(4000)]
        assert publish_manifest(peer, NAME, rows(memories, tensors)).kind == "published"
        held = []
        while (reply := reader.get(NAME)).kind == "granted":
            held.append(reply.packet.granted.lease_id)
            reply.close()
        reply.fails_with(Code.QUOTA, "leases and allocations, has 64000 and would need 4000 more")
        assert len(held) == 16
        assert reader.get(NAME, keys=["t17", "t3999"]).kind == "granted"
        reader.release(leases=held)
        assert reader.get(NAME).kind == "granted"


# ---- rights ----


def test_exposure_is_that_of_all_tensors(peer: RawPeer, publish: Callable[..., Reply]) -> None:
    two_pages, page = peer.allocate(8192), peer.allocate(4096)
    half = [tensor(4096, key="a"), tensor(4096, key="b", segment_index=1)]
    reply = publish(peer, NAME, rows([two_pages, page], half), mode=0o644)
    refuses(peer, reply, Code.COPY_NEEDED, "would show 12288 bytes to others, while the")
    twice = [tensor(4096, key="a"), tensor(4096, key="a2"), tensor(4096, key="b", segment_index=1)]
    reply = publish(peer, NAME, rows([two_pages, page], twice), mode=0o644)
    refuses(peer, reply, Code.COPY_NEEDED, "would show 12288 bytes to others")
    strided = [*half, tensor(4096, key="c", byte_offset=0, strides=[2])]
    reply = publish(peer, NAME, rows([two_pages, page], strided), mode=0o644)
    assert reply.kind == "published", reply.packet
    peer.remove(NAME)


def test_gaps_between_packed_members_show_nothing(
    peer: RawPeer, publish: Callable[..., Reply]
) -> None:
    memory = peer.allocate(8192)
    packed = [tensor(1, key=f"t{i}", byte_offset=256 * i) for i in range(32)]
    reply = publish(peer, NAME, rows([memory], packed), mode=0o644)
    assert reply.kind == "published", reply.packet
    peer.remove(NAME)
    apart = [tensor(1, key=f"t{i}", byte_offset=512 * i) for i in range(16)]
    reply = publish(peer, NAME, rows([memory], apart), mode=0o644)
    refuses(peer, reply, Code.COPY_NEEDED, "would show 8192 bytes")
    reply = publish(peer, NAME, rows([memory], apart), mode=0o644, expose=True)
    assert reply.kind == "published", reply.packet
    peer.remove(NAME)


# ---- floods ----


def test_flood_of_manifests(world: World, peer: RawPeer) -> None:
    """Many at once, good and bad; all are answered, and others are served meanwhile."""
    memory = peer.allocate(16000)
    good = pack_manifest(**rows([memory], members(16000)))
    bad = pack_manifest(**rows([memory], [*members(15999), tensor(1, key="t0")]))
    for round_number in range(10):
        numbers = []
        for content in (good, bad):
            with memfd(content) as fd:
                name = f"flood/{round_number}"
                numbers.append(
                    peer.send("publish", fds=[fd], **manifest_fields(name, replace=True))
                )
        world.serves()
        assert peer.answer(numbers[0]).kind == "published"
        peer.answer(numbers[1]).fails_with(Code.INVALID_ARGUMENT, 'the key "t0" comes twice')
    for round_number in range(10):
        peer.remove(f"flood/{round_number}")


def test_flood_of_parts(world: World, peer: RawPeer) -> None:
    """Who asks for more parts than it reads is dropped, and nobody else."""
    memories = []
    for _ in range(300):
        memory = peer.allocate(1)
        memory.close()
        memories.append(memory)
    tensors = [tensor(1, key=f"t{i}", segment_index=i) for i in range(300)]
    assert publish_manifest(peer, NAME, rows(memories, tensors)).kind == "published"
    greedy = world.connect()
    cursor = greedy.must_get_bundle(NAME).packet.granted.next_cursor
    packet = tidl_wire.pack("get_more", 9, cursor=cursor)
    greedy.socket.settimeout(None)
    deadline = time.monotonic() + 20
    with pytest.raises((BrokenPipeError, ConnectionResetError)):
        while time.monotonic() < deadline:
            greedy.send_bytes(packet)
    world.serves()
    peer.remove(NAME)


def test_single_tensors_are_served_beside(peer: RawPeer, lists: dict[str, Any]) -> None:
    """A bundle's refusal changes nothing for the memory that it named."""
    lists["tensors"][1]["key"] = "t0"
    refuses(peer, publish_manifest(peer, NAME, lists), Code.INVALID_ARGUMENT, "comes twice")
    memory_id = lists["segments"][0]["id"]
    assert peer.ask("publish", **publication(NAME, memory_id, 100)).kind == "published"
    assert peer.must_get(NAME, Attach.WRITE)
    peer.remove(NAME)
