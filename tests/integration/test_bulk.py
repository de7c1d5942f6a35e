# SPDX-License-Identifier: Apache-2.0
"""Messages that are small as packets and want to be large in memory, or deep, or endless."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from raw_peer import RawPeer, publication
from tidl_wire import PACKET_MAX_BYTES, Code, field, pack, varint

PUBLISH, GET, RELEASE = 34, 36, 38
ROOM_BYTES = PACKET_MAX_BYTES - 64
NO_MEMORY = "the message needs more memory than one message may: send less at once"
NO_MESSAGE = "the packet is not a tidl message"


def envelope(number: int, body: bytes, *, request_id: int = 3) -> bytes:
    return pack(None, request_id) + field(number, body)


def repeated(number: int, item: bytes) -> bytes:
    """As many of these as a packet holds."""
    one = field(number, item)
    return one * (ROOM_BYTES // len(one))


SEGMENT = b"\x08\x01"
DTYPE = b"\x08\x02\x10\x20\x18\x01"
TENSOR = b"\x18\x00" + field(4, DTYPE)
HEAD = field(1, b"bad/x") + b"\x20\x01"


@pytest.mark.parametrize(
    "packet",
    [
        envelope(PUBLISH, HEAD + repeated(2, SEGMENT)),
        envelope(PUBLISH, HEAD + repeated(3, TENSOR)),
        envelope(GET, field(1, b"bad/x") + b"\x18\x01" + repeated(7, b"")),
    ],
    ids=["segments", "tensors", "keys"],
)
def test_many_small_parts(peer: RawPeer, packet: bytes) -> None:
    """Whatever they unpack into has a bound: above it the message is refused."""
    peer.send_bytes(packet)
    reply = peer.receive()
    assert reply
    if reply.packet.failure.code != Code.NO_MEMORY:
        assert reply.packet.failure.code in (Code.INVALID_ARGUMENT, Code.NOT_FOUND), reply.packet
        peer.goes_on()
    else:
        reply.fails_with(Code.NO_MEMORY, NO_MEMORY)
        assert reply.request_id == 3
        peer.has_ended()


def test_the_bound_is_met(peer: RawPeer) -> None:
    peer.send_bytes(envelope(PUBLISH, HEAD + repeated(2, SEGMENT)))
    peer.ends_with(Code.NO_MEMORY, NO_MEMORY, request_id=3)


def test_release_of_as_many_as_a_packet_holds(peer: RawPeer) -> None:
    peer.release(leases=range(1, 9000), segments=range(1, 9000))
    peer.send_bytes(envelope(RELEASE, field(1, b"\x01" * ROOM_BYTES), request_id=0))
    peer.goes_on()


@pytest.mark.parametrize("rank", [65, 1000, 20000])
def test_rank_beyond_the_limit(peer: RawPeer, rank: int) -> None:
    fields = publication("bad/x", 1, 1)
    fields["tensors"][0].update(shape=[1] * rank, strides=[1] * rank)
    peer.send("publish", number=3, **fields)
    peer.ends_with(Code.PROTOCOL, rf"field tensor\.shape is {rank}, outside 0 to 64", 3)


@pytest.mark.parametrize(("ranks"), [(1, 0), (0, 1), (2, 3), (64, 63), (1, 65)])
def test_strides_must_be_as_many_as_extents(peer: RawPeer, ranks: tuple[int, int]) -> None:
    fields = publication("bad/x", 1, 1)
    fields["tensors"][0].update(shape=[1] * ranks[0], strides=[1] * ranks[1])
    peer.send("publish", number=3, **fields)
    peer.ends_with(Code.PROTOCOL, r"field tensor\.strides is \d+, outside", 3)


def nest(depth: int, wrap: Callable[[bytes], bytes]) -> bytes:
    data = b""
    for _ in range(depth):
        wrapped = wrap(data)
        if len(wrapped) > ROOM_BYTES:
            break
        data = wrapped
    return data


def test_nesting_in_unknown_fields(peer: RawPeer) -> None:
    """What is unknown is not looked into."""
    peer.send_bytes(pack("list", 3, pattern="**") + nest(20000, lambda data: field(900, data)))
    assert peer.answer(3).kind == "listing"


@pytest.mark.parametrize(
    "garbage",
    [
        field(PUBLISH, b"\xff" * 100),
        field(PUBLISH, field(3, field(4, b"\xff\xff"))),
        field(PUBLISH, HEAD + field(3, TENSOR + field(5, b"\x80" * 11))),
        field(PUBLISH, HEAD + field(3, TENSOR + field(5, b"\x80"))),
        field(PUBLISH, nest(2000, lambda data: field(3, data))),
        varint(PUBLISH << 3 | 2) + b"\xff\xff\xff\xff\x0f",
        varint(PUBLISH << 3 | 2) + b"\xff" * 9 + b"\x01" + b"x",
        varint(PUBLISH << 3) + b"\x01",
        b"\x93\x02" * 1000,
        b"\x0b" * 1000 + b"\x0c" * 1000,
        varint((1 << 29) - 1 << 3 | 7) + b"x",
        b"\x00" * 100,
        b"\x80" * 100,
        varint(1 << 40) + b"x",
    ],
    ids=[
        "message",
        "inner_message",
        "endless_number",
        "cut_number",
        "nested_tensors",
        "length_beyond_the_packet",
        "length_of_64_bits",
        "message_as_number",
        "groups",
        "nested_groups",
        "unknown_wire_type",
        "zeros",
        "endless_tag",
        "tag_beyond_the_last",
    ],
)
def test_garbage_inside(peer: RawPeer, garbage: bytes) -> None:
    peer.send_bytes(pack(None, 3) + garbage)
    peer.ends_with(Code.PROTOCOL, NO_MESSAGE, request_id=3)


def test_garbage_before_the_request_id(peer: RawPeer) -> None:
    peer.send_bytes(b"\x0f" * 20 + pack(None, 3))
    peer.ends_with(Code.PROTOCOL, NO_MESSAGE, request_id=0)


def test_last_of_several_bodies_counts(peer: RawPeer) -> None:
    """As protobuf says of a one-of; what came before it is nothing."""
    first = field(32, b"\x08\x80\x20")  # ALLOCATE
    packet = pack("list", 3, pattern="**")
    peer.send_bytes(packet + first + field(48, field(3, b"**")))
    assert peer.answer(3).kind == "listing"
    peer.goes_on()


def test_fd_count_must_be_there(peer: RawPeer) -> None:
    peer.send_bytes(pack("list", 3, None, pattern="**"))
    peer.ends_with(Code.PROTOCOL, NO_MESSAGE, request_id=3)


@pytest.mark.parametrize("count", [254, 2**32 - 1])
def test_fd_count_beyond_the_limit(peer: RawPeer, count: int) -> None:
    peer.send_bytes(pack("list", 3, count, pattern="**"))
    peer.ends_with(Code.PROTOCOL, f"field fd_count is {count}, outside 0 to 253", request_id=3)
