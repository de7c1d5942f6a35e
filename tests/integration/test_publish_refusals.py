# SPDX-License-Identifier: Apache-2.0
"""Publications that describe something that is not there, or ask for what is not to be had."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from raw_peer import Memory, RawPeer, publication, tensor
from tidl_wire import FLOAT32, MEMFD, UINT8, Access, Attach, Code, Retention
from world import PAGE_BYTES, World

NAME = "bad/x"
DATA_BYTES = 2 * PAGE_BYTES
BEYOND = f"the tensor reaches beyond its memory, bytes 0 to {DATA_BYTES}: correct shape"
TOO_MANY = "the shape has more elements than memory can hold: correct its extents"
TOO_FAR = "the strides reach beyond any memory: correct them"
UNKNOWN_TYPE = r"data type \(code \d+, bits \d+, lanes \d+\) is not known: use a DLPack type"
LAST = 2**63 - 1


@pytest.fixture
def memory(peer: RawPeer) -> Iterator[Memory]:
    """After the test it can still be published: no refusal has left anything."""
    memory = peer.allocate(DATA_BYTES)
    assert memory.data_bytes == DATA_BYTES
    yield memory
    assert peer.publish("bad/after", memory.id, DATA_BYTES).kind == "published"
    assert peer.remove("bad/after").kind == "done"


LAYOUTS: dict[str, tuple[dict[str, Any], Code, str]] = {
    # data types
    "dtype_unknown": ({"dtype": {"code": 99, "bits": 8, "lanes": 1}}, Code.DTYPE, UNKNOWN_TYPE),
    "dtype_handle": ({"dtype": {"code": 3, "bits": 64, "lanes": 1}}, Code.DTYPE, UNKNOWN_TYPE),
    "dtype_width": ({"dtype": {"code": 2, "bits": 31, "lanes": 1}}, Code.DTYPE, UNKNOWN_TYPE),
    "dtype_width_0": ({"dtype": {"code": 2, "bits": 0, "lanes": 1}}, Code.DTYPE, UNKNOWN_TYPE),
    "dtype_lanes_0": ({"dtype": {"code": 2, "bits": 32, "lanes": 0}}, Code.DTYPE, UNKNOWN_TYPE),
    # shapes
    "extent_negative": ({"shape": [-1], "strides": [1]}, Code.LAYOUT,
                        "dimension 0 has the extent -1: extents cannot be negative"),
    "extent_most_negative": ({"shape": [-LAST - 1]}, Code.LAYOUT, "extents cannot be negative"),
    "one_too_many": ({"shape": [DATA_BYTES + 1]}, Code.LAYOUT, BEYOND),
    "control_page": ({"shape": [PAGE_BYTES], "byte_offset": DATA_BYTES}, Code.LAYOUT, BEYOND),
    "extent_of_63_bits": ({"shape": [LAST]}, Code.LAYOUT, BEYOND),
    "bytes_overflow": ({"shape": [2**62], "dtype": FLOAT32}, Code.LAYOUT, TOO_MANY),
    "elements_overflow": ({"shape": [2**62, 8], "strides": [8, 1]}, Code.LAYOUT, TOO_MANY),
    "elements_wrap_to_0": ({"shape": [2**32] * 2, "strides": [2**32, 1]}, Code.LAYOUT, TOO_MANY),
    "elements_wrap_to_8": ({"shape": [2**61 + 1, 8], "strides": [8, 1]}, Code.LAYOUT, TOO_MANY),
    "empty_with_overflow": ({"shape": [2**62, 0, 8], "strides": [0, 0, 0]}, Code.LAYOUT, TOO_MANY),
    "rank_64_overflow": ({"shape": [2] * 64, "strides": [0] * 64}, Code.LAYOUT, TOO_MANY),
    "lanes_overflow": ({"dtype": {"code": 1, "bits": 64, "lanes": 65535}, "shape": [2**45]},
                       Code.LAYOUT, TOO_MANY),
    # strides
    "stride_beyond": ({"shape": [2], "strides": [DATA_BYTES]}, Code.LAYOUT, BEYOND),
    "stride_beyond_by_width": ({"shape": [2], "strides": [DATA_BYTES // 4], "dtype": FLOAT32},
                               Code.LAYOUT, BEYOND),
    "stride_negative": ({"shape": [2], "strides": [-1]}, Code.LAYOUT, BEYOND),
    "stride_of_63_bits": ({"shape": [2], "strides": [LAST]}, Code.LAYOUT, BEYOND),
    "stride_most_negative": ({"shape": [2], "strides": [-LAST - 1]}, Code.LAYOUT, BEYOND),
    "strides_too_far": ({"shape": [3], "strides": [LAST]}, Code.LAYOUT, TOO_FAR),
    "strides_too_far_down": ({"shape": [3], "strides": [-LAST - 1]}, Code.LAYOUT, TOO_FAR),
    "strides_that_cancel": ({"shape": [3, 3], "strides": [LAST, -LAST]}, Code.LAYOUT, TOO_FAR),
    "strides_wrap_back": ({"shape": [3, 3], "strides": [2**62, 2**62]}, Code.LAYOUT, TOO_FAR),
    # offsets
    "offset_beyond": ({"byte_offset": DATA_BYTES, "shape": [1]}, Code.LAYOUT, BEYOND),
    "offset_and_extent": ({"byte_offset": DATA_BYTES - 1, "shape": [2]}, Code.LAYOUT, BEYOND),
    "offset_wraps": ({"byte_offset": 2**64 - 1, "shape": [2]}, Code.LAYOUT, BEYOND),
    "offset_wraps_far": ({"byte_offset": 2**64 - PAGE_BYTES, "shape": [DATA_BYTES]},
                         Code.LAYOUT, BEYOND),
    "offset_before": ({"byte_offset": 7, "shape": [2], "strides": [-8]}, Code.LAYOUT, BEYOND),
    "offset_sign": ({"byte_offset": 2**63, "shape": [1]}, Code.LAYOUT, BEYOND),
    # less than a byte
    "packed_strides": ({"dtype": {"code": 17, "bits": 4, "lanes": 1}, "shape": [4, 2],
                        "strides": [1, 4]}, Code.LAYOUT, "a packed type of less than a byte has"),
    "packed_beyond": ({"dtype": {"code": 17, "bits": 4, "lanes": 1},
                       "shape": [2 * DATA_BYTES + 1]}, Code.LAYOUT, BEYOND),
    # segments
    "empty_in_a_segment": ({"shape": [0]}, Code.LAYOUT,
                           "has no elements, but a segment: publish it without"),
    "no_segment": ({"segment_index": None}, Code.LAYOUT, "the tensor reaches beyond its memory"),
}  # fmt: skip


def without_none(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}


@pytest.mark.parametrize(("fields", "code", "sentence"), LAYOUTS.values(), ids=LAYOUTS)
def test_layouts(
    peer: RawPeer, memory: Memory, fields: dict[str, Any], code: Code, sentence: str
) -> None:
    bad = without_none(tensor(1, **fields))
    peer.refuses(code, sentence, "publish", **publication(NAME, memory.id, 1, tensors=[bad]))


GOOD_LAYOUTS: dict[str, dict[str, Any]] = {
    "all": {"shape": [DATA_BYTES]},
    "last_byte": {"byte_offset": DATA_BYTES - 1, "shape": [1]},
    "reversed": {"byte_offset": DATA_BYTES - 1, "shape": [DATA_BYTES], "strides": [-1]},
    "broadcast": {"shape": [2**40], "strides": [0]},
    "permuted": {"shape": [4, 8], "strides": [1, 4], "dtype": FLOAT32},
    "no_dimension": {"shape": [], "strides": []},
    "rank_64": {"shape": [1] * 64, "strides": [LAST] * 64},
    "unit_extent_and_wild_stride": {"shape": [1, 8], "strides": [-LAST - 1, 1]},
    "packed": {"dtype": {"code": 17, "bits": 4, "lanes": 1}, "shape": [2 * DATA_BYTES]},
}


@pytest.mark.parametrize("fields", GOOD_LAYOUTS.values(), ids=GOOD_LAYOUTS)
def test_layouts_at_the_edge(peer: RawPeer, memory: Memory, fields: dict[str, Any]) -> None:
    good = tensor(1, **fields)
    reply = peer.publish(NAME, memory.id, 1, tensors=[good])
    assert reply.kind == "published", reply.packet
    granted = peer.must_get(NAME).packet.granted.tensors[0]
    assert list(granted.shape) == good["shape"]
    assert list(granted.strides) == good["strides"]
    assert granted.byte_offset == good["byte_offset"]
    assert peer.remove(NAME).kind == "done"


@pytest.mark.parametrize(
    ("dtype", "field"),
    [
        ({"code": 256, "bits": 8, "lanes": 1}, "code"),
        ({"code": 2, "bits": 256, "lanes": 1}, "bits"),
        ({"code": 2, "bits": 32, "lanes": 65536}, "lanes"),
        ({"code": 2**32 - 1, "bits": 8, "lanes": 1}, "code"),
    ],
)
def test_data_types_that_are_none(peer: RawPeer, dtype: dict[str, int], field: str) -> None:
    fields = publication(NAME, 1, 1, tensors=[tensor(1, dtype=dtype)])
    peer.send("publish", number=3, **fields)
    peer.ends_with(Code.PROTOCOL, rf"field dtype\.{field} is \d+, outside 0 to", request_id=3)


@pytest.mark.parametrize("index", [1, 2**31, 2**32 - 1])
def test_segment_index_beyond_the_list(peer: RawPeer, memory: Memory, index: int) -> None:
    bad = tensor(1, segment_index=index)
    peer.refuses(
        Code.LAYOUT,
        f'the tensor of "{NAME}" lies in segment {index} of 1: count from 0',
        "publish",
        **publication(NAME, memory.id, 1, tensors=[bad]),
    )


# ---- segments ----


@pytest.mark.parametrize("segment_id", [0, 1 << 40, 2**64 - 1])
def test_unknown_segment(peer: RawPeer, segment_id: int) -> None:
    peer.refuses(
        Code.PERMISSION,
        f"segment {segment_id} is not this connection's to publish: allocate it or attach it here",
        "publish",
        **publication(NAME, segment_id, 1),
    )


def test_segment_of_another_connection(world: World, peer: RawPeer, memory: Memory) -> None:
    other = world.connect()
    other.refuses(
        Code.PERMISSION, "not this connection's", "publish", **publication(NAME, memory.id, 1)
    )
    assert peer.publish(NAME, memory.id, 1).kind == "published"
    other.refuses(
        Code.PERMISSION, "not this connection's", "publish", **publication("bad/y", memory.id, 1)
    )
    assert other.must_get(NAME)  # its hold is what was missing
    assert other.publish("bad/y", memory.id, 1).kind == "published"
    for name in (NAME, "bad/y"):
        assert peer.remove(name).kind == "done"


def test_released_segment(peer: RawPeer) -> None:
    memory = peer.allocate(1)
    peer.release(segments=[memory.id])
    peer.refuses(
        Code.PERMISSION, "not this connection's", "publish", **publication(NAME, memory.id, 1)
    )


def test_segment_that_no_tensor_uses(peer: RawPeer, memory: Memory) -> None:
    empty = without_none(tensor(1, segment_index=None, shape=[0]))
    peer.refuses(
        Code.LAYOUT,
        f'segment {memory.id} of "{NAME}" is used by no tensor: leave it out',
        "publish",
        **publication(NAME, memory.id, 1, tensors=[empty]),
    )


# ---- how long it lives ----


@pytest.mark.parametrize(
    ("fields", "code", "sentence"),
    [
        (
            {"retention": Retention.SECONDS},
            Code.INVALID_ARGUMENT,
            "was to live for some seconds, but not told how many",
        ),
        (
            {"retention": Retention.OWNER, "ttl_ms": 5},
            Code.INVALID_ARGUMENT,
            "a time to live was given .* but another retention",
        ),
        ({"ttl_ms": 5}, Code.INVALID_ARGUMENT, "a time to live was given"),
        ({"keep": 257}, Code.LIMIT, "was to keep 257 generations and may keep 256"),
        ({"keep": 2**32 - 1}, Code.LIMIT, "and may keep 256: keep fewer"),
    ],
)
def test_life_times(
    peer: RawPeer, memory: Memory, fields: dict[str, Any], code: Code, sentence: str
) -> None:
    peer.refuses(code, sentence, "publish", **publication(NAME, memory.id, 1, **fields))


# ---- what is not built ----

NOT_BUILT: dict[str, tuple[dict[str, Any], str]] = {
    "claim": ({"claim_token": b"x" * 16}, "something that this publish asks for is not built"),
}


@pytest.mark.parametrize(("fields", "sentence"), NOT_BUILT.values(), ids=NOT_BUILT)
def test_not_built(peer: RawPeer, memory: Memory, fields: dict[str, Any], sentence: str) -> None:
    peer.refuses(
        Code.UNSUPPORTED,
        rf'{sentence}.* in this version, so "{NAME}" was not published',
        "publish",
        **publication(NAME, memory.id, 1, **fields),
    )


@pytest.mark.parametrize("kind", [2, 3])
def test_device_memory_is_not_built(peer: RawPeer, kind: int) -> None:
    segment = {"kind": kind, "handle": b"x" * 64, "chunk_count": 1, "device_uuid": b"x" * 16}
    peer.refuses(
        Code.UNSUPPORTED,
        "device memory is not built in this version",
        "publish",
        **publication(NAME, 1, 1, segments=[segment]),
    )


# ---- what only bundles have ----

NO_BUNDLE: dict[str, dict[str, Any]] = {
    "no_tensor": {"tensors": []},
    "two_tensors": {"tensors": [tensor(1), tensor(1)]},
    "key": {"tensors": [tensor(1, key="a")]},
    "empty_mapping": {"empty_mappings": [{"key": "a", "position": 0}]},
    "segments": {"segments": [{"kind": MEMFD, "id": 1}, {"kind": MEMFD, "id": 2}]},
}


@pytest.mark.parametrize("fields", NO_BUNDLE.values(), ids=NO_BUNDLE)
def test_bundle_that_is_none(peer: RawPeer, memory: Memory, fields: dict[str, Any]) -> None:
    peer.refuses(
        Code.INVALID_ARGUMENT,
        rf'"{NAME}" has .*but is no bundle',
        "publish",
        **publication(NAME, memory.id, 1, **fields),
    )


# ---- numbers outside their range ----


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"access": 0}, "access"),
        ({"access": 4}, "access"),
        ({"retention": 0}, "retention"),
        ({"retention": 5}, "retention"),
        ({"path": 0}, "path"),
        ({"path": 6}, "path"),
        ({"segments": [{"kind": 0, "id": 1}]}, r"segment\.kind"),
        ({"segments": [{"kind": 4, "id": 1}]}, r"segment\.kind"),
        ({"segments": [{"kind": 2, "handle": b"x" * 63}]}, r"segment\.handle"),
        ({"segments": [{"kind": 2, "device_uuid": b"x" * 17}]}, r"segment\.device_uuid"),
    ],
)
def test_numbers_that_mean_nothing(peer: RawPeer, fields: dict[str, Any], field: str) -> None:
    """From a newer client, or a broken one: nothing can be concluded from such a message."""
    peer.send("publish", number=3, **publication(NAME, 1, 1, **fields))
    peer.ends_with(Code.PROTOCOL, rf"field {field} is -?\d+, outside ", request_id=3)


@pytest.mark.parametrize("mode", [0o1600, 0o4600, 0o700, 0o777, 0o601, 2**32 - 1])
def test_mode_out_of_range(peer: RawPeer, memory: Memory, mode: int) -> None:
    peer.refuses(
        Code.INVALID_ARGUMENT,
        rf'mode {mode:04o} of "{NAME}" has bits other than read and write: choose from 0666',
        "publish",
        **publication(NAME, memory.id, DATA_BYTES, mode=mode),
    )


@pytest.mark.parametrize("mode", [0, 0o200, 0o400, 0o600, 0o640, 0o644, 0o666])
def test_modes(peer: RawPeer, memory: Memory, mode: int) -> None:
    assert peer.publish(NAME, memory.id, DATA_BYTES, mode=mode).kind == "published"
    assert peer.inspection(NAME).mode == mode
    assert peer.remove(NAME).kind == "done"


def test_retention_that_is_reported_only(peer: RawPeer, memory: Memory) -> None:
    peer.refuses(
        Code.INVALID_ARGUMENT,
        f'retention "until-idle" of "{NAME}" cannot be asked for: ask for "persist"',
        "publish",
        **publication(NAME, memory.id, 1, retention=Retention.UNTIL_IDLE),
    )


def test_wider_mode_over_a_larger_segment(peer: RawPeer, memory: Memory) -> None:
    fields = publication(NAME, memory.id, PAGE_BYTES, mode=0o644)
    peer.refuses(
        Code.COPY_NEEDED,
        rf'mode 0644 of "{NAME}" would show {DATA_BYTES} bytes to others, while the tensor has '
        rf"{PAGE_BYTES}: publish a copy, or ask to expose all",
        "publish",
        **fields,
    )
    # A part of the last page is everybody's.
    for more in ({"expose": True}, {"tensors": [tensor(PAGE_BYTES + 1)]}, {"mode": 0o600}):
        reply = peer.ask("publish", **{**fields, **more, "replace": True})
        assert reply.kind == "published", reply.packet
        assert reply.packet.published.exposed_bytes == DATA_BYTES
    assert peer.remove(NAME).kind == "done"


# ---- names that are taken ----


def test_taken_name(world: World, peer: RawPeer, memory: Memory) -> None:
    first = peer.publish(NAME, memory.id, 1).packet.published.generation
    taken = rf'"{NAME}" is published already \(generation {first}\): ask to replace it, remove it'
    other = world.connect()
    for publisher in (peer, other):
        publisher.refuses(
            Code.EXISTS, taken, "publish", **publication(NAME, 1, 1, segments=[], tensors=[EMPTY])
        )
    assert other.must_get(NAME).packet.granted.generation == first
    second = peer.publish(NAME, memory.id, 1, replace=True).packet.published
    assert second.replaced_generation == first
    assert second.generation > first
    assert second.aliases_previous
    assert peer.remove(NAME).kind == "done"


EMPTY = without_none(tensor(1, segment_index=None, shape=[0], dtype=UINT8))


def test_refused_replacement_leaves_what_there_is(world: World, peer: RawPeer) -> None:
    other = world.connect()
    peer.must_publish(NAME, b"first")
    before = peer.inspection(NAME)
    memory = peer.allocate(DATA_BYTES)
    for fields in (
        {"tensors": [tensor(DATA_BYTES + 1)]},
        {"metadata": "[]"},
        {"access": Access.IMMUTABLE},
        {"mode": 0o777},
    ):
        reply = peer.publish(NAME, memory.id, 1, replace=True, **fields)
        assert reply.kind == "failure"
    after = peer.inspection(NAME)
    assert after.generation == before.generation
    assert list(after.segments) == list(before.segments)
    assert other.must_get(NAME, Attach.READ)
    assert peer.remove(NAME).kind == "done"
