# SPDX-License-Identifier: Apache-2.0
"""What calls give back: plain, frozen records. Ages are seconds, sizes bytes, shapes elements."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

# Bits of F_GET_SEALS, in the kernel's numbering.
_SEALS = {
    0x01: "seal",
    0x02: "shrink",
    0x04: "grow",
    0x08: "write",
    0x10: "future_write",
    0x20: "exec",
}


@dataclass(frozen=True, slots=True)
class Publication:
    """What became of a `Client.publish()`.

    Attributes:
        name: the name as it was given.
        generation: number that this content of the name got; never repeats at one broker.
        copied: whether any bytes were copied into shared memory (a snapshot).
        path: how they came to lie there: "allocated", "attached", "copied", "in-place" (shared
            where they lay, under their framework's pointer) or "empty".
        reason: why they were copied ("foreign", "requested", "not_owner", ...), None if not.
        tensor_bytes: bytes of all tensors, elements times element size.
        exposed_bytes: bytes that a reader can reach, which is the whole memory they lie in.
        survives_restart: whether a restart of the broker keeps it.
        retention: how long it lives: "persist", "owner", "seconds", or "until-idle", which is
            what a private broker makes of "persist".
        aliases_previous: whether the replaced generation had the same memory.
        tensor_count: tensors of a bundle; 1 for a single tensor.
        copied_count: how many of them were copied.
        access: as it was published: "live" for constants that were shared in place.
        moved_bytes: bytes of whole pages that this call has shared in place.
        neighbour_bytes: of those, other content of the same memory that readers can see, too: the
            rest of a storage that a view was published of. 0: nothing but padding.
    """

    name: str
    generation: int
    copied: bool
    path: str
    reason: str | None
    tensor_bytes: int
    exposed_bytes: int
    survives_restart: bool
    retention: str
    aliases_previous: bool
    tensor_count: int
    copied_count: int
    access: str
    moved_bytes: int
    neighbour_bytes: int


@dataclass(frozen=True, slots=True)
class Broker:
    """The broker at the other end of a connection.

    Attributes:
        address: path of its socket.
        version: version of tidld.
        id: its random 128-bit identity; a new one at each start.
        epoch: counts the restarts of this identity: always 1 today.
        uid: the caller's user id as the broker sees it.
        protocol: protocol version agreed on.
        private: whether it is a private broker, which exits when idle.
    """

    address: str
    version: str
    id: bytes
    epoch: int
    uid: int
    protocol: int
    private: bool


@dataclass(frozen=True, slots=True)
class Process:
    """A process with a connection. uid, gid and pid are the kernel's word, the rest its own.

    Attributes:
        pid: in the broker's pid namespace; 0 outside it.
        connected: whether it still is.
    """

    uid: int
    gid: int
    pid: int
    name: str
    command: str
    cgroup: str
    connected: bool


@dataclass(frozen=True, slots=True)
class Holder:
    """Somebody who keeps memory alive.

    Attributes:
        kind: "lease" (got it by name), "allocation" (made it and still has it) or "pin" (keeps
            it for a tensor that is being handed over).
        access: "read", "write" or "copy_on_write".
        age: seconds since then.
        process: who.
        left: seconds until it ends, of a pin; None for the others.
    """

    kind: str
    access: str
    age: float
    process: Process
    left: float | None

    @property
    def pid(self) -> int:
        """The holder's process id."""
        return self.process.pid


@dataclass(frozen=True, slots=True)
class Segment:
    """One block of shared memory.

    Attributes:
        size_bytes: as charged to its owner, control page included.
        data_size_bytes: what a reader can reach, from `data_offset_bytes` on.
        seals: names of the F_SEAL_ flags that the kernel reported just now.
        inode: of the memfd, as in /proc/PID/maps.
        huge_bytes: what of it lies in huge pages, as the publisher has it mapped.
        step: how many steps are complete, as its writers count them.
        updating: whether an update is open just now, or was left open by who has died.
    """

    id: int
    size_bytes: int
    data_offset_bytes: int
    data_size_bytes: int
    seals: tuple[str, ...]
    inode: int
    huge_bytes: int
    step: int
    updating: bool


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor of a publication.

    Attributes:
        key: path inside a bundle, "" for a single tensor.
        segment_index: which of the segments it lies in; None when it has no elements.
        byte_offset: of its first element from the segment's start.
        strides: in elements.
    """

    key: str
    segment_index: int | None
    byte_offset: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    nbytes: int


@dataclass(frozen=True, slots=True)
class ListEntry:
    """One line of `Client.list()`.

    Attributes:
        bundle: whether it is a bundle; tensor_count says of how many.
        dtype: of the first tensor; None if there is none.
        shape: of the first tensor; () if there is none.
        owner: uid of the owner.
        age: seconds since publishing.
        mode: permission bits.
    """

    name: str
    owner: int
    generation: int
    access: str
    retention: str
    mode: int
    tensor_count: int
    bundle: bool
    dtype: str | None
    shape: tuple[int, ...]
    tensor_bytes: int
    segment_bytes: int
    holder_count: int
    age: float
    publisher_pid: int


@dataclass(frozen=True, slots=True)
class Inspection:
    """Everything about one name, as `Client.inspect()` found it.

    Attributes:
        owner: uid of the owner.
        access: who may write: "shared", "live" or "immutable", as in `Client.publish()`.
        age: seconds since publishing.
        bundle: whether it is a bundle.
        write_protected: whether other users cannot write without a grant.
        same_uid_write_protected: whether not even processes of the broker's own user can.
        metadata: what the publisher attached, or None.
        publisher: who published it; `publisher.connected` tells whether it is still there.
        holders: who keeps it alive now.
        left: seconds until it ends by itself (it has seconds to live, or its owner died); None:
            it does not.
        kept: generations before this one that `get(generation=)` can still have, newest first.
    """

    name: str
    owner: int
    generation: int
    access: str
    retention: str
    path: str
    mode: int
    group: int
    age: float
    exposed_bytes: int
    bundle: bool
    survives_restart: bool
    write_protected: bool
    same_uid_write_protected: bool
    metadata: dict[str, Any] | None
    publisher: Process
    holders: tuple[Holder, ...]
    tensors: tuple[TensorInfo, ...]
    segments: tuple[Segment, ...]
    left: float | None
    kept: tuple[int, ...]


def parse_metadata(text: str | None) -> dict[str, Any] | None:
    """The metadata object of a tensor or publication; libtidl checked that it is one."""
    if text is None:
        return None
    parsed: dict[str, Any] = json.loads(text)
    return parsed


def _pop_age(fields: dict[str, Any]) -> float:
    milliseconds: int = fields.pop("age_ms")
    return milliseconds / 1000


def _pop_left(fields: dict[str, Any]) -> float | None:
    milliseconds: int = fields.pop("left_ms")
    return None if milliseconds < 0 else milliseconds / 1000


def _holder(fields: dict[str, Any]) -> Holder:
    process = Process(**fields.pop("process"))
    return Holder(age=_pop_age(fields), left=_pop_left(fields), process=process, **fields)


def _segment(fields: dict[str, Any]) -> Segment:
    bits = fields.pop("seals")
    return Segment(seals=tuple(name for bit, name in _SEALS.items() if bits & bit), **fields)


def _tensor(fields: dict[str, Any]) -> TensorInfo:
    index = fields.pop("segment_index")
    return TensorInfo(segment_index=None if index < 0 else index, **fields)


def list_entry(fields: dict[str, Any]) -> ListEntry:
    """One record of the extension's list()."""
    return ListEntry(age=_pop_age(fields), **fields)


def inspection(fields: dict[str, Any]) -> Inspection:
    """The record of the extension's inspect()."""
    return Inspection(
        age=_pop_age(fields),
        left=_pop_left(fields),
        kept=tuple(fields.pop("kept")),
        metadata=parse_metadata(fields.pop("metadata")),
        publisher=Process(**fields.pop("publisher")),
        holders=tuple(_holder(holder) for holder in fields.pop("holders")),
        tensors=tuple(_tensor(tensor) for tensor in fields.pop("tensors")),
        segments=tuple(_segment(segment) for segment in fields.pop("segments")),
        **fields,
    )
