# SPDX-License-Identifier: Apache-2.0
"""Bundles as a raw peer publishes and gets them: lists, manifests, answers in parts."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tidl_wire
from raw_peer import Memory, RawPeer, Reply, tensor
from tidl_wire import MEMFD, Access, Packet

SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
INLINE_ROWS_MAX_BYTES = 32768
MANIFEST_MAX_BYTES = 2 << 20
TENSORS_PER_PUBLICATION = 16384
SEGMENTS_PER_PUBLICATION = 4096


def rows(memories: Iterable[Memory], tensors: Sequence[Packet], *empties: Any) -> dict[str, Any]:
    """The lists of a bundle; empty mappings as pairs of key and position."""
    return {
        "segments": [{"kind": MEMFD, "id": memory.id} for memory in memories],
        "tensors": list(tensors),
        "empty_mappings": [{"key": key, "position": position} for key, position in empties],
    }


def bundle(name: str, lists: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """The fields of a PUBLISH of these lists."""
    return {"name": name, "access": Access.SHARED, "is_bundle": True, **lists, **fields}


def members(count: int, *, segment_index: int = 0, prefix: str = "t") -> list[dict[str, Any]]:
    """Tensors of one byte each, one behind the other."""
    return [
        tensor(1, key=f"{prefix}{i}", byte_offset=i, segment_index=segment_index)
        for i in range(count)
    ]


def publish_lists(peer: RawPeer, name: str, lists: dict[str, Any], **fields: Any) -> Reply:
    return peer.ask("publish", **bundle(name, lists, **fields))


@contextmanager
def memfd(content: bytes, seals: int = SEALS) -> Iterator[int]:
    fd = os.memfd_create("tidl:manifest", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.write(fd, content)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
        yield fd
    finally:
        os.close(fd)


def publish_content(peer: RawPeer, name: str, content: bytes, **fields: Any) -> Reply:
    """A PUBLISH whose manifest is these bytes."""
    with memfd(content) as fd:
        return peer.ask("publish", fds=[fd], **manifest_fields(name, **fields))


def manifest_fields(name: str, **fields: Any) -> dict[str, Any]:
    return bundle(name, {}, has_manifest=True, **fields)


def publish_manifest(peer: RawPeer, name: str, lists: dict[str, Any], **fields: Any) -> Reply:
    return publish_content(peer, name, tidl_wire.pack_manifest(**lists), **fields)


def read_manifest(fd: int) -> Packet:
    """What a reader makes of the descriptor that it got."""
    assert fcntl.fcntl(fd, fcntl.F_GET_SEALS) & SEALS == SEALS
    return tidl_wire.unpack_manifest(os.pread(fd, os.fstat(fd).st_size, 0))


def get_all(peer: RawPeer, name: str, **fields: Any) -> tuple[Packet, list[Packet], list[int]]:
    """A GET with all its parts: the GRANTED, the segments, and the descriptors."""
    reply = peer.must_get_bundle(name, **fields)
    granted = reply.packet.granted
    segments, fds = list(granted.segments), list(reply.fds)
    cursor = granted.next_cursor
    while cursor:
        more = peer.ask("get_more", cursor=cursor)
        assert more.kind == "more", more.packet
        assert len(more.fds) == len(more.packet.more.segments)
        segments += more.packet.more.segments
        fds += more.fds
        cursor = more.packet.more.next_cursor
    return granted, segments, fds


def keys_of(granted: Packet) -> list[str]:
    return [row.key.decode() for row in granted.tensors]
