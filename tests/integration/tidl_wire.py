# SPDX-License-Identifier: Apache-2.0
"""Packets of the protocol, good and bad, by the schema alone.

Neither libtidl nor its codec is involved. `pack()` and `unpack()` know a loose form of the schema,
in which nothing is required, enumerations are plain numbers and texts are bytes, so that everything
wrong can be said; `is_well_formed()` asks the schema as it is.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf import (  # type: ignore[import-untyped]
    descriptor_pb2,
    descriptor_pool,
    message,
    message_factory,
)

PROTO = Path(__file__).resolve().parents[2] / "proto"
PACKET_MAX_BYTES = 65536
PACKET_MAX_FDS = 253

Packet = Any  # generated at run time


class Code(IntEnum):
    """What a FAILURE carries. Written down here once more, since these never change."""

    INVALID_ARGUMENT = 1
    NAME_INVALID = 2
    NOT_FOUND = 3
    EXISTS = 4
    PERMISSION = 5
    QUOTA = 8
    LIMIT = 9
    NO_MEMORY = 10
    DTYPE = 11
    LAYOUT = 12
    UNSUPPORTED = 13
    COPY_NEEDED = 15
    ACCESS = 16
    BUSY = 17
    GENERATION_GONE = 18
    CANCELLED = 19
    METADATA = 20
    PROTOCOL = 204
    VERSION = 205
    PEER_REFUSED = 206


class Access(IntEnum):
    SHARED = 1
    LIVE = 2
    IMMUTABLE = 3


class Attach(IntEnum):
    READ = 1
    WRITE = 2
    COPY_ON_WRITE = 3


class Retention(IntEnum):
    PERSIST = 1
    OWNER = 2
    SECONDS = 3
    UNTIL_IDLE = 4


MEMFD = 1
FLOAT32 = {"code": 2, "bits": 32, "lanes": 1}
UINT8 = {"code": 1, "bits": 8, "lanes": 1}


@cache
def _schema() -> bytes:
    command = [
        "protoc-c",
        f"-I{PROTO}",
        "--descriptor_set_out=/dev/stdout",
        str(PROTO / "tidl.proto"),
    ]
    return subprocess.run(command, capture_output=True, check=True).stdout


def _loosen(definition: Any) -> None:
    for field in definition.field:
        if field.label == field.LABEL_REQUIRED:
            field.label = field.LABEL_OPTIONAL
        if field.type == field.TYPE_ENUM:
            field.type = field.TYPE_UINT32
            field.ClearField("type_name")
        elif field.type == field.TYPE_STRING:
            field.type = field.TYPE_BYTES
    for nested in definition.nested_type:
        _loosen(nested)


@cache
def _message(name: str, *, is_loose: bool) -> Packet:
    files = descriptor_pb2.FileDescriptorSet.FromString(_schema())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        if is_loose:
            for definition in file.message_type:
                _loosen(definition)
        pool.Add(file)
    descriptor = pool.FindMessageTypeByName(f"tidl.wire.{name}")
    return message_factory.GetMessageClass(descriptor)


def _envelope(*, is_loose: bool) -> Packet:
    return _message("Envelope", is_loose=is_loose)


def _as_bytes(value: Any) -> Any:
    """Texts as the loose schema wants them."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, Mapping):
        return {key: _as_bytes(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_as_bytes(item) for item in value]
    return value


def pack(
    kind: str | None, request_id: int | None, fd_count: int | None = 0, /, **fields: Any
) -> bytes:
    """One packet; what is None is left out."""
    packet = _envelope(is_loose=True)()
    if request_id is not None:
        packet.request_id = request_id
    if fd_count is not None:
        packet.fd_count = fd_count
    if kind is not None:
        body = getattr(packet, kind)
        body.SetInParent()
        body.MergeFrom(type(body)(**_as_bytes(fields)))
    data: bytes = packet.SerializePartialToString()
    return data


def pack_manifest(**fields: Any) -> bytes:
    """The content of a manifest."""
    data: bytes = _message("Manifest", is_loose=True)(
        **_as_bytes(fields)
    ).SerializePartialToString()
    return data


def unpack_manifest(data: bytes) -> Packet:
    return _message("Manifest", is_loose=True).FromString(data)


def unpack(data: bytes) -> Packet:
    return _envelope(is_loose=True).FromString(data)


def kind_of(packet: Packet) -> str:
    return str(packet.WhichOneof("body"))


def is_well_formed(data: bytes) -> bool:
    """Whether these bytes are an envelope of the schema, with all that it requires."""
    packet = _envelope(is_loose=False)()
    try:
        packet.ParseFromString(data)
    except message.DecodeError:
        return False
    return bool(packet.IsInitialized())


def minimal(kind: str) -> dict[str, Any]:
    """The least that the schema wants in such a message."""
    return _required(_envelope(is_loose=False).DESCRIPTOR.fields_by_name[kind].message_type)


def _required(descriptor: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for part in descriptor.fields:
        if not part.is_required:
            continue
        if part.message_type:
            fields[part.name] = _required(part.message_type)
        elif part.type in (part.TYPE_BYTES, part.TYPE_STRING):
            fields[part.name] = b"sixteen bytes ok"
        else:
            fields[part.name] = 1
    return fields


def bodies() -> list[str]:
    """Names of all messages that an envelope can carry."""
    descriptor = _envelope(is_loose=True).DESCRIPTOR
    return [field.name for field in descriptor.oneofs_by_name["body"].fields]


def varint(number: int) -> bytes:
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)


def field(number: int, content: bytes) -> bytes:
    """A field of bytes, hence of text or message."""
    return varint(number << 3 | 2) + varint(len(content)) + content
