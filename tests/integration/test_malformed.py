# SPDX-License-Identifier: Apache-2.0
"""Packets that are no messages, or none that a client may send."""

from __future__ import annotations

import random
from typing import Any

import pytest
import tidl_wire
from raw_peer import RawPeer, publication
from tidl_wire import (
    PACKET_MAX_BYTES,
    Attach,
    Code,
    bodies,
    field,
    is_well_formed,
    kind_of,
    minimal,
    pack,
    unpack,
    varint,
)
from world import WITNESS, World

SERVED: dict[str, dict[str, Any]] = {
    "hello": {"min_version": 1, "max_version": 1, "client_name": "x", "command": "y z"},
    "cancel": {"request_id": 77},
    "get_more": {"cursor": 1 << 40},
    "allocate": {"data_size_bytes": 4096},
    "publish": publication("bad/x", 1, 64, metadata='{"a": [1]}', mode=0o640, retention=2),
    "get": {"name": "bad/x", "owner_uid": 7, "attach": Attach.READ, "generation": 1 << 40},
    "open": {"segment_id": 1, "lease_id": 1},
    "watch_writer": {"segment_id": 1},
    "release": {"lease_ids": [1, 1 << 40], "segment_ids": [2, 3]},
    "remove": {"name": "bad/x", "owner_uid": 0},
    "list": {"pattern": "bad/**", "cursor": 9, "any_owner": True},
    "inspect": {"name": "bad/x", "generation": 9, "tensor_cursor": 1, "holder_cursor": 1},
    "pin": {"name": "bad/x", "owner_uid": 7, "generation": 9},
    "wait": {"name": "bad/x", "released": True, "generation": 9},
    "watch": {"pattern": "bad/**", "any_owner": True, "kinds": 6},
    "unwatch": {"watch_id": 7},
    "goodbye": {},
}
ONE_WAY = ("cancel", "release", "unwatch", "goodbye")
# "shutdown" would be served.
REPLIES = (
    "welcome",
    "failure",
    "done",
    "more",
    "allocated",
    "published",
    "granted",
    "opened",
    "waited",
    "listing",
    "watching",
    "event",
)
UNBUILT = sorted({*bodies()} - {*SERVED, *REPLIES, "inspection", "shutdown"})
NO_MESSAGE = "the packet is not a tidl message: check that both sides are tidl of the same version"


def samples(segment_id: int = 1) -> dict[str, bytes]:
    fields = {**SERVED, "publish": {**SERVED["publish"], "segments": [memfd(segment_id)]}}
    return {kind: pack(kind, 5, **fields[kind]) for kind in fields}


def memfd(segment_id: int) -> dict[str, int]:
    return {"kind": tidl_wire.MEMFD, "id": segment_id}


# ---- no message at all ----


@pytest.mark.parametrize("says_hello", [False, True])
def test_empty_packet_ends_the_connection(world: World, says_hello: bool) -> None:
    peer = world.connect(says_hello=says_hello)
    peer.send_bytes(b"")
    peer.has_ended()


@pytest.mark.parametrize("says_hello", [False, True])
def test_every_packet_of_one_byte(world: World, says_hello: bool) -> None:
    for value in range(256):
        with RawPeer(world.broker.socket, says_hello=says_hello) as peer:
            peer.send_bytes(bytes([value]))
            peer.ends_with(Code.PROTOCOL, f"^{NO_MESSAGE}$", request_id=0)


@pytest.mark.parametrize("size", [PACKET_MAX_BYTES + 1, 3 * PACKET_MAX_BYTES])
def test_packet_that_is_too_large(peer: RawPeer, size: int) -> None:
    peer.send_bytes(bytes(size))
    peer.ends_with(Code.PROTOCOL, "a packet was larger than 65536 bytes: send smaller ones", 0)


def test_packet_of_the_greatest_size(peer: RawPeer) -> None:
    head = pack("list", 9, pattern="**")
    filler = PACKET_MAX_BYTES - len(head) - 5  # tag of two bytes, length of three
    packet = head + field(1000, bytes(filler))
    assert len(packet) == PACKET_MAX_BYTES
    peer.send_bytes(packet)
    assert peer.answer(9).kind == "listing"


@pytest.mark.parametrize("kind", SERVED)
def test_cut_at_every_byte(world: World, kind: str) -> None:
    """A part is refused if the schema refuses it; otherwise it is answered like anything else."""
    whole = samples()[kind]
    for size in range(1, len(whole)):
        part = whole[:size]
        with RawPeer(world.broker.socket, says_hello=kind != "hello") as peer:
            peer.send_bytes(part)
            if not is_well_formed(part):
                peer.ends_with(Code.PROTOCOL, f"^{NO_MESSAGE}$")
            elif kind == "hello" and kind_of(unpack(part)) != kind:
                peer.ends_with(Code.PROTOCOL, "the first message was NONE")
            else:
                assert peer.is_open_after(1000)


def mutate(chance: random.Random, packet: bytes) -> bytes:
    data = bytearray(packet)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(7):
            case 0 if at < len(data):
                data[at] ^= 1 << chance.randrange(8)
            case 1 if at < len(data):
                data[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
            case 2:
                data[at:at] = chance.randbytes(chance.choice((1, 2, 9)))
            case 3:
                del data[at : at + chance.choice((1, 2, 9))]
            case 4:
                data[at:at] = data[at : at + chance.choice((2, 9, 40))]
            case 5:
                data[at:at] = varint(chance.choice((1 << 31, 1 << 32, (1 << 63) - 1, 1 << 63)))
            case _:
                data[at:at] = b"\xff" * 9 + b"\x01"
    return bytes(data)


@pytest.mark.parametrize("seed", range(4))
def test_random_mutations(world: World, seed: int) -> None:
    """Whatever comes, it is answered, ignored where nobody is to be answered, or the connection
    ends with a reason; and the next connection is served."""
    chance = random.Random(seed)
    peer, packets = start_over(world)
    ended = 0
    for number in range(3000):
        data = mutate(chance, chance.choice(packets))
        if not data or is_shutdown(data):
            continue
        peer.send_bytes(data)
        if not peer.is_open_after(number + 1000):
            peer.close()
            peer, packets = start_over(world)
            ended += 1
    assert 300 < ended < 3000
    for name in world.probe.names():
        if name != WITNESS:
            world.probe.remove(name)


def start_over(world: World) -> tuple[RawPeer, list[bytes]]:
    peer = world.connect()
    return peer, list(samples(peer.allocate(64).id).values())


def is_shutdown(data: bytes) -> bool:
    return field(56, b"")[:2] in data


# ---- messages that are not for the broker, or not now ----


@pytest.mark.parametrize("kind", [kind for kind in bodies() if kind != "hello"])
def test_first_message_must_be_hello(world: World, kind: str) -> None:
    peer = world.connect(says_hello=False)
    packet = pack(kind, 3, **minimal(kind))
    peer.send_bytes(packet)
    peer.ends_with(Code.PROTOCOL, r"the first message was [A-Z_]+: begin with HELLO", request_id=3)


def test_first_message_without_a_body(world: World) -> None:
    peer = world.connect(says_hello=False)
    peer.send_bytes(pack(None, 3))
    peer.ends_with(Code.PROTOCOL, "the first message was NONE: begin with HELLO", request_id=3)


def test_second_hello(peer: RawPeer) -> None:
    peer.send("hello", number=9, min_version=1, max_version=1)
    peer.ends_with(Code.PROTOCOL, "HELLO came on a connection that is ready: send it once", 9)


@pytest.mark.parametrize(("low", "high"), [(2, 9), (0, 0), (3, 1), (2**32 - 1, 2**32 - 1)])
def test_no_common_version(world: World, low: int, high: int) -> None:
    peer = world.connect(says_hello=False)
    peer.send("hello", number=4, min_version=low, max_version=high)
    peer.ends_with(
        Code.VERSION,
        rf"the client speaks protocol versions {low} to {high}, tidld [\d.]+ speaks 1 to 1: "
        "update the older of the two",
        request_id=4,
    )


@pytest.mark.parametrize(("low", "high"), [(0, 1), (1, 1), (1, 2**32 - 1)])
def test_common_version(world: World, low: int, high: int) -> None:
    peer = world.connect(says_hello=False)
    welcome = peer.ask("hello", min_version=low, max_version=high).packet.welcome
    assert welcome.version == 1
    assert len(welcome.broker_id) == 16
    assert welcome.max_packet_bytes == PACKET_MAX_BYTES
    assert welcome.max_fds == tidl_wire.PACKET_MAX_FDS


@pytest.mark.parametrize("kind", [*REPLIES, "inspection"])
def test_replies_are_the_brokers_to_send(peer: RawPeer, kind: str) -> None:
    peer.send_bytes(pack(kind, 3, **minimal(kind)))
    peer.ends_with(Code.PROTOCOL, f"{kind.upper()} is the broker's to send", request_id=3)


@pytest.mark.parametrize("kind", UNBUILT)
def test_unbuilt_messages(peer: RawPeer, kind: str) -> None:
    peer.refuses(
        Code.UNSUPPORTED,
        "this tidld does not serve this kind of request: a newer one may",
        kind,
        **minimal(kind),
    )


def test_unknown_messages(peer: RawPeer) -> None:
    peer.send_bytes(pack(None, 8) + field(500, b"from the future"))
    peer.answer(8).fails_with(Code.UNSUPPORTED, "does not serve this kind of request")
    peer.send_bytes(pack(None, 0) + field(500, b"one-way"))  # nobody to answer
    peer.goes_on()


def test_unknown_fields_are_ignored(world: World) -> None:
    peer = world.connect(says_hello=False)
    body = pack("hello", 1, min_version=1, max_version=1, client_name="newer") + field(999, b"x")
    peer.send_bytes(body)
    assert peer.answer(1).kind == "welcome"
    inner = field(7, b"bad/x") + field(200, b"new option")
    peer.send_bytes(pack(None, 2) + field(48, inner + field(3, b"**")))
    assert peer.answer(2).kind == "listing"


@pytest.mark.parametrize("kind", [kind for kind in SERVED if kind not in ONE_WAY])
def test_request_id_0(world: World, kind: str) -> None:
    peer = world.connect(says_hello=kind != "hello")
    peer.send_bytes(pack(kind, 0, **SERVED[kind]))
    peer.ends_with(Code.PROTOCOL, f"{kind.upper()} came with request id 0, so nobody", 0)


@pytest.mark.parametrize("kind", ONE_WAY)
def test_one_way_messages_are_not_answered(peer: RawPeer, kind: str) -> None:
    for request_id in (0, 5):
        peer.send_bytes(pack(kind, request_id, **SERVED[kind]))
    peer.goes_on()


def test_request_id_in_use(peer: RawPeer, world: World) -> None:
    """Only the client is confused by that: each request is answered once."""
    for name in ("bad/first", "bad/second"):
        peer.send("get", number=7, name=name, attach=Attach.READ, wait=True)
    peer.goes_on()
    for name in ("bad/second", "bad/first"):
        world.probe.release(segments=[world.probe.must_publish(name, b"x").id])
        reply = peer.answer(7)
        assert reply.kind == "granted"
        assert reply.packet.granted.generation == world.probe.inspection(name).generation
        assert world.probe.remove(name).kind == "done"
    peer.cancel(7)
    peer.goes_on()
