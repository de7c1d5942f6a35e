# SPDX-License-Identifier: Apache-2.0
"""A client that is nothing but a socket, so that it can misbehave."""

from __future__ import annotations

import contextlib
import os
import re
import socket
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import tidl_wire
from tidl_wire import Attach, Code, Packet

DEADLINE_S = 20.0
CONTROL_BYTES = socket.CMSG_SPACE(tidl_wire.PACKET_MAX_FDS * 4)
FAILURE_TEXT_MAX_BYTES = 511


@dataclass
class Reply:
    """A packet from the broker. Its descriptors are closed with the peer at the latest."""

    packet: Packet
    fds: list[int]

    @property
    def kind(self) -> str:
        return tidl_wire.kind_of(self.packet)

    @property
    def request_id(self) -> int:
        return int(self.packet.request_id)

    def fails_with(self, code: Code, sentence: str) -> None:
        """Checks that this is the FAILURE with that code and a sentence that matches."""
        assert self.kind == "failure", self.packet
        text = self.packet.failure.message.decode()
        assert self.packet.failure.code == code, text
        assert re.search(sentence, text), text
        assert text.isprintable(), text
        assert 0 < len(text.encode()) <= FAILURE_TEXT_MAX_BYTES

    def close(self) -> None:
        while self.fds:
            os.close(self.fds.pop())


@dataclass
class Memory:
    """A segment as ALLOCATED tells of it, with its two descriptors."""

    id: int
    size_bytes: int
    data_bytes: int
    write_fd: int
    read_fd: int
    _reply: Reply = field(repr=False)

    def close(self) -> None:
        self._reply.close()


class RawPeer:
    """One connection. All descriptors that came over it are closed with it."""

    def __init__(self, path: Path, *, says_hello: bool = True, name: str = "raw") -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        self.socket.settimeout(DEADLINE_S)
        self._ids = count(1)
        self._replies: list[Reply] = []
        try:
            self.socket.connect(os.fspath(path))
            if says_hello:
                self.welcome = self.ask("hello", min_version=1, max_version=1, client_name=name)
                assert self.welcome.kind == "welcome", self.welcome.packet
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        for reply in self._replies:
            reply.close()
        self.socket.close()

    # ---- out ----

    def next_id(self) -> int:
        return next(self._ids)

    def send_bytes(self, data: bytes, fds: Sequence[int] = ()) -> None:
        if fds:
            socket.send_fds(self.socket, [data], list(fds))
        else:
            self.socket.send(data)

    def send(
        self,
        kind: str | None,
        /,
        *,
        number: int | None = None,
        fds: Sequence[int] = (),
        **fields: Any,
    ) -> int:
        """Sends a request, with a new id unless a number is given. Returns the id."""
        number = self.next_id() if number is None else number
        self.send_bytes(tidl_wire.pack(kind, number, len(fds), **fields), fds)
        return number

    # ---- in ----

    def receive(self) -> Reply | None:
        """The next packet; None when the broker has ended the connection."""
        try:
            data, control, flags, _ = self.socket.recvmsg(
                tidl_wire.PACKET_MAX_BYTES + 1, CONTROL_BYTES, socket.MSG_CMSG_CLOEXEC
            )
        except ConnectionResetError:
            return None
        fds = array("i")
        for level, kind, content in control:
            assert (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)
            fds.frombytes(content)
        if not data:
            return None
        assert not flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC)
        reply = Reply(tidl_wire.unpack(data), list(fds))
        self._replies.append(reply)
        assert reply.packet.fd_count == len(reply.fds)
        return reply

    def answer(self, request_id: int) -> Reply:
        reply = self.receive()
        assert reply, "the broker ended the connection"
        assert reply.request_id == request_id, reply.packet
        return reply

    def ask(self, kind: str | None, /, *, fds: Sequence[int] = (), **fields: Any) -> Reply:
        return self.answer(self.send(kind, fds=fds, **fields))

    def refuses(self, code: Code, sentence: str, kind: str | None, /, **fields: Any) -> None:
        """Checks that a request fails in that way and that the connection goes on."""
        self.ask(kind, **fields).fails_with(code, sentence)
        self.goes_on()

    def goes_on(self) -> None:
        """Checks that the broker answers, and that nothing came before this answer."""
        assert self.ask("list", pattern="**").kind == "listing"

    def ends_with(self, code: Code, sentence: str, request_id: int | None = None) -> None:
        """Checks that the broker says why, and ends the connection."""
        reply = self.receive()
        assert reply, "the broker ended the connection without a word"
        reply.fails_with(code, sentence)
        if request_id is not None:
            assert reply.request_id == request_id
        self.has_ended()

    def has_ended(self) -> None:
        reply = self.receive()
        assert reply is None, reply.packet

    def is_open_after(self, number: int) -> bool:
        """Whether the connection has survived what was sent before. If not, the broker said why.

        The number must be that of no other request."""
        with contextlib.suppress(ConnectionError):
            self.send("list", number=number, pattern="none")
        last = None
        while reply := self.receive():
            if reply.request_id == number:
                return True
            last = reply
        assert last, "the broker ended the connection without a word"
        assert last.kind == "failure", last.packet
        return False

    # ---- requests ----

    def allocate(self, data_bytes: int) -> Memory:
        reply = self.ask("allocate", data_size_bytes=data_bytes)
        assert reply.kind == "allocated", reply.packet
        segment = reply.packet.allocated.segment
        write_fd, read_fd = reply.fds
        return Memory(
            segment.id, segment.size_bytes, segment.data_size_bytes, write_fd, read_fd, reply
        )

    def publish(self, name: str, segment_id: int, size_bytes: int, **fields: Any) -> Reply:
        """Publishes so many bytes of the segment; whatever is given besides overrides."""
        return self.ask("publish", **publication(name, segment_id, size_bytes, **fields))

    def must_publish(self, name: str, content: bytes, **fields: Any) -> Memory:
        """Allocates, fills and publishes."""
        memory = self.allocate(len(content))
        os.pwrite(memory.write_fd, content, 0)
        reply = self.publish(name, memory.id, len(content), **fields)
        assert reply.kind == "published", reply.packet
        return memory

    def get(self, name: str, attach: Attach = Attach.READ, **fields: Any) -> Reply:
        return self.ask("get", name=name, attach=attach, **fields)

    def must_get(self, name: str, attach: Attach = Attach.READ, **fields: Any) -> Reply:
        reply = self.get(name, attach, **fields)
        assert reply.kind == "granted", reply.packet
        assert len(reply.fds) == 1
        return reply

    def must_get_bundle(self, name: str, attach: Attach = Attach.READ, **fields: Any) -> Reply:
        """The first part, whose descriptors are as many as it says."""
        reply = self.get(name, attach, **fields)
        assert reply.kind == "granted", reply.packet
        granted = reply.packet.granted
        assert len(reply.fds) == len(granted.segments) + bool(granted.has_manifest)
        return reply

    def release(self, *, leases: Sequence[int] = (), segments: Sequence[int] = ()) -> None:
        """One-way. The next answer on this connection comes after it."""
        self.send("release", number=0, lease_ids=list(leases), segment_ids=list(segments))

    def cancel(self, request_id: int) -> None:
        """One-way; the cancelled request is answered."""
        self.send_bytes(tidl_wire.pack("cancel", 0, request_id=request_id))

    def remove(self, name: str, **fields: Any) -> Reply:
        return self.ask("remove", name=name, **fields)

    def names(self, pattern: str = "**", **fields: Any) -> list[str]:
        """What LIST shows, all pages of it."""
        found: list[str] = []
        cursor = 0
        while True:
            listing = self.ask("list", pattern=pattern, cursor=cursor, **fields).packet.listing
            found += [entry.name.decode() for entry in listing.entries]
            cursor = listing.next_cursor
            if not cursor:
                return found

    def inspection(self, name: str, **fields: Any) -> Packet:
        reply = self.ask("inspect", name=name, **fields)
        assert reply.kind == "inspection", reply.packet
        return reply.packet.inspection


def tensor(size_bytes: int, **fields: Any) -> dict[str, Any]:
    """A vector of bytes at the start of the first segment."""
    return {
        "segment_index": 0,
        "byte_offset": 0,
        "dtype": tidl_wire.UINT8,
        "shape": [size_bytes],
        "strides": [1],
        **fields,
    }


def publication(name: str, segment_id: int, size_bytes: int, **fields: Any) -> dict[str, Any]:
    """The fields of a PUBLISH of a vector of bytes."""
    return {
        "name": name,
        "segments": [{"kind": tidl_wire.MEMFD, "id": segment_id}],
        "tensors": [tensor(size_bytes)],
        "access": tidl_wire.Access.SHARED,
        **fields,
    }
