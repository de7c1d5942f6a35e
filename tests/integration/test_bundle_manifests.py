# SPDX-License-Identifier: Apache-2.0
"""Hostile manifests: descriptors that are none, and content that is none.

The connection ends, nothing is published and nothing is left behind: `world` sees to it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tidl_wire
from fuse_file import HangingFile, hanging_file
from raw_bundles import (
    MANIFEST_MAX_BYTES,
    SEALS,
    bundle,
    manifest_fields,
    members,
    memfd,
    publish_content,
    publish_lists,
    publish_manifest,
    rows,
)
from raw_peer import Memory, RawPeer, tensor
from tidl_wire import MEMFD, PACKET_MAX_FDS, UINT8, Code, field, pack_manifest, varint
from world import World

NAME = "bad/x"
NOT_SEALED = "a manifest is not sealed memory: send a memfd with the seals"
MALFORMED = "the manifest is malformed"


@pytest.fixture
def memory(peer: RawPeer) -> Memory:
    return peer.allocate(100)


@pytest.fixture
def lists(memory: Memory) -> dict[str, Any]:
    return rows([memory], members(3))


def ends(peer: RawPeer, sentence: str, number: int = 3) -> None:
    peer.ends_with(Code.PROTOCOL, sentence, request_id=number)


# ---- descriptors that are no manifests ----


@pytest.mark.parametrize(
    "missing",
    [fcntl.F_SEAL_SHRINK, fcntl.F_SEAL_GROW, fcntl.F_SEAL_WRITE, fcntl.F_SEAL_SEAL, SEALS],
)
def test_unsealed(peer: RawPeer, lists: dict[str, Any], missing: int) -> None:
    with memfd(pack_manifest(**lists), SEALS & ~missing) as fd:
        peer.send("publish", number=3, fds=[fd], **manifest_fields(NAME))
    ends(peer, NOT_SEALED)


def test_growing(peer: RawPeer, lists: dict[str, Any]) -> None:
    """It grows while the broker looks at it, or would: without the seal nothing is read."""
    with memfd(pack_manifest(**lists), fcntl.F_SEAL_SHRINK) as fd:
        peer.send("publish", number=3, fds=[fd], **manifest_fields(NAME))
        os.ftruncate(fd, 1 << 40)
        ends(peer, NOT_SEALED)


@pytest.mark.parametrize(
    "make",
    [
        lambda: os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC),
        lambda: os.open("/proc/self/exe", os.O_RDONLY | os.O_CLOEXEC),
        lambda: os.eventfd(0),
        lambda: os.pidfd_open(os.getpid()),
    ],
    ids=["device", "file", "eventfd", "pidfd"],
)
def test_no_memory_at_all(peer: RawPeer, make: Callable[[], int]) -> None:
    fd = make()
    peer.send("publish", number=3, fds=[fd], **manifest_fields(NAME))
    os.close(fd)
    ends(peer, NOT_SEALED)


def test_a_segment_of_the_brokers_own(peer: RawPeer, memory: Memory) -> None:
    peer.send("publish", number=3, fds=[memory.read_fd], **manifest_fields(NAME))
    ends(peer, NOT_SEALED)


def test_ones_own_connection(peer: RawPeer) -> None:
    peer.send("publish", number=3, fds=[peer.socket.fileno()], **manifest_fields(NAME))
    ends(peer, NOT_SEALED)


def test_file_that_hangs(world: World, peer: RawPeer, tmp_path: Path) -> None:
    """A FUSE file hangs fstat(), read() and close() for ever: the broker does none of them."""
    try:
        context = hanging_file(tmp_path)
        hanging: HangingFile = context.__enter__()
    except OSError as error:
        pytest.skip(f"no file system in user space can be mounted here: {error}")
    try:
        fd = hanging.open()
        peer.send("publish", number=3, fds=[fd], **manifest_fields(NAME))
        os.close(fd)
        ends(peer, NOT_SEALED)
        hanging.await_close()
        world.serves()
        hanging.go()
    finally:
        context.__exit__(None, None, None)


@pytest.mark.parametrize("size", [0, MANIFEST_MAX_BYTES + 1, 1 << 40])
def test_size_out_of_range(peer: RawPeer, size: int) -> None:
    fd = os.memfd_create("x", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
    peer.send("publish", number=3, fds=[fd], **manifest_fields(NAME))
    os.close(fd)
    ends(peer, f"a manifest has {size} bytes and may have 1 to {MANIFEST_MAX_BYTES}")


def test_nothing_but_zeros(peer: RawPeer) -> None:
    fd = os.memfd_create("x", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, MANIFEST_MAX_BYTES)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
    peer.send("publish", number=3, fds=[fd], **manifest_fields(NAME))
    os.close(fd)
    ends(peer, MALFORMED)


# ---- as many as announced, with the message that wants one ----


def test_manifest_that_does_not_come(peer: RawPeer) -> None:
    peer.send("publish", number=3, **manifest_fields(NAME))
    ends(peer, "PUBLISH came without the descriptor of its manifest")


def test_manifest_announced_and_missing(peer: RawPeer) -> None:
    peer.send_bytes(tidl_wire.pack("publish", 3, 1, **manifest_fields(NAME)))
    ends(peer, "PUBLISH announced 1 descriptors and brought none")


def test_manifest_that_is_not_announced(peer: RawPeer, lists: dict[str, Any]) -> None:
    with memfd(pack_manifest(**lists)) as fd:
        peer.send_bytes(tidl_wire.pack("publish", 3, 0, **manifest_fields(NAME)), [fd])
    ends(peer, "PUBLISH brought a descriptor that it did not announce")


@pytest.mark.parametrize("count", [2, PACKET_MAX_FDS])
def test_more_than_one(peer: RawPeer, lists: dict[str, Any], count: int) -> None:
    with memfd(pack_manifest(**lists)) as fd:
        peer.send("publish", number=3, fds=[fd] * count, **manifest_fields(NAME))
    ends(peer, "descriptors came with a message that may not carry any", 0)


@pytest.mark.parametrize(
    "fields", [{"has_manifest": None}, {"has_manifest": False}], ids=["absent", "false"]
)
def test_manifest_that_nobody_speaks_of(
    peer: RawPeer, lists: dict[str, Any], fields: dict[str, Any]
) -> None:
    with memfd(pack_manifest(**lists)) as fd:
        request = {k: v for k, v in bundle(NAME, lists, **fields).items() if v is not None}
        peer.send("publish", number=3, fds=[fd], **request)
    ends(peer, "descriptors came with a message that may not carry any", 0)


def test_manifest_before_hello(world: World) -> None:
    peer = world.connect(says_hello=False)
    with memfd(b"x") as fd:
        peer.send("publish", number=3, fds=[fd], **manifest_fields(NAME))
    ends(peer, "descriptors came with a message that may not carry any", 0)


@pytest.mark.parametrize(
    "fields",
    [
        {"is_bundle": False},
        {"segments": [{"kind": MEMFD, "id": 1}]},
        {"tensors": [tensor(1)]},
        {"empty_mappings": [{"key": "a", "position": 0}]},
    ],
    ids=["no_bundle", "segments", "tensors", "mappings"],
)
def test_lists_in_two_places(peer: RawPeer, lists: dict[str, Any], fields: dict[str, Any]) -> None:
    reply = publish_manifest(peer, NAME, lists, **fields)
    reply.fails_with(Code.INVALID_ARGUMENT, "send the lists in one place")
    peer.goes_on()


# ---- content that is none ----


def test_cut_anywhere(world: World, lists: dict[str, Any]) -> None:
    """Each piece is no manifest, or one with rows that do not fit together."""
    content = pack_manifest(**lists)
    for size in range(1, len(content)):
        peer = world.connect()
        reply = publish_content(peer, NAME, content[:size])
        assert reply.packet.failure.code in (Code.PROTOCOL, Code.LAYOUT, Code.PERMISSION), size
        peer.close()


@pytest.mark.parametrize(
    "content",
    [
        b"\xff" * 100,
        b"\x12\x05abc",
        field(2, b""),
        field(1, b""),
        field(3, b"\x10\x00"),
        b"\x00\x00",
        b"\x0b\x0c",
        field(2, b"\x18\x00" + field(4, b"\x08\x01\x10\x08")),
        field(2, b"\x18\x00" + field(4, b"\x08\x01\x10\x08\x18\x01") + field(5, b"\x01" * 65)),
    ],
    ids=[
        "ones",
        "length_beyond_the_end",
        "empty_tensor",
        "empty_segment",
        "mapping_without_key",
        "field_0",
        "group",
        "dtype_without_lanes",
        "rank_65",
    ],
)
def test_malformed(peer: RawPeer, content: bytes) -> None:
    publish_content(peer, NAME, content).fails_with(Code.PROTOCOL, MALFORMED)
    peer.has_ended()


def test_rows_out_of_order(peer: RawPeer, lists: dict[str, Any]) -> None:
    lists["tensors"] = [
        {"key": "a", "byte_offset": 0, "dtype": UINT8, "shape": [0], "strides": [1]}
    ]
    parts = [pack_manifest(**{name: part}) for name, part in lists.items()]
    publish_content(peer, NAME, parts[1] + parts[0]).fails_with(Code.PROTOCOL, MALFORMED)
    peer.has_ended()


def test_texts_with_nul(peer: RawPeer, memory: Memory) -> None:
    lists = rows([memory], [tensor(1, key="a\0b")])
    publish_manifest(peer, NAME, lists).fails_with(Code.PROTOCOL, MALFORMED)
    peer.has_ended()


@pytest.mark.parametrize("key", ["a\nb", "\x7f", b"\xff", "k" * 256])
def test_keys_that_are_no_texts(world: World, memory: Memory, key: str | bytes) -> None:
    for way in (publish_lists, publish_manifest):
        peer = world.connect()
        way(peer, NAME, rows([], [tensor(1, key=key)])).fails_with(Code.PROTOCOL, r"\.key is ")
        peer.has_ended()


def test_varints_without_end(peer: RawPeer) -> None:
    content = field(2, b"\x18" + b"\x80" * 60) + varint(2 << 3 | 2)
    publish_content(peer, NAME, content).fails_with(Code.PROTOCOL, MALFORMED)
    peer.has_ended()
