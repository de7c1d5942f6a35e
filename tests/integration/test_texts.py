# SPDX-License-Identifier: Apache-2.0
"""Texts that break a rule: names, patterns, metadata, and what clients say of themselves."""

from __future__ import annotations

from typing import Any

import pytest
from raw_peer import RawPeer
from tidl_wire import Code
from world import World

EMPTY_PART = "it has an empty part: write one '/' between parts, none at the ends"
DOTS = "'.' and '..' have no meaning in it: write the whole path"
CONTROL = "it is not UTF-8 without control characters"
COLON = "it has a ':' behind the owner: use another sign"

BAD_NAMES: dict[str, tuple[str | bytes, str]] = {
    "empty": ("", "it is empty: give it 1 to 255 bytes"),
    "too_long": ("x" * 256, "it is longer than 255 bytes: shorten it"),
    "much_too_long": ("x" * 60000, "it is longer than 255 bytes: shorten it"),
    "slash": ("/", EMPTY_PART),
    "slash_first": ("/bad", EMPTY_PART),
    "slash_last": ("bad/", EMPTY_PART),
    "slashes": ("bad//x", EMPTY_PART),
    "dot": (".", DOTS),
    "dots": ("..", DOTS),
    "dot_inside": ("bad/./x", DOTS),
    "dots_at_the_end": ("bad/..", DOTS),
    "colon": ("0:bad", COLON),
    "colon_at_the_end": ("bad:", COLON),
    "newline": ("bad\nx", CONTROL),
    "escape": ("bad\x1b[31m", CONTROL),
    "delete": ("bad\x7f", CONTROL),
    "c1_control": ("bad\x85", CONTROL),
    "stray_byte": (b"bad\xff", CONTROL),
    "stray_continuation": (b"\x80bad", CONTROL),
    "cut_sequence": (b"bad\xe2\x82", CONTROL),
    "overlong_slash": (b"bad\xc0\xafx", CONTROL),
    "overlong_nul": (b"bad\xc0\x80", CONTROL),
    "surrogate": (b"bad\xed\xa0\x80", CONTROL),
    "beyond_unicode": (b"bad\xf4\x90\x80\x80", CONTROL),
}
GOOD_NAMES = [
    "x",
    "x" * 255,
    "a/b/c",
    "é" * 127,
    "日本/語",
    "...",
    ".x",
    "x..",
    " ",
    "*",
    "-",
    "a\\b",
]

WITH_NAME: dict[str, dict[str, Any]] = {
    "publish": {"access": 1, "tensors": [{"byte_offset": 0, "dtype": {"code": 2, "bits": 32,
                "lanes": 1}, "shape": [0], "strides": [1]}]},
    "get": {"attach": 1},
    "remove": {},
    "inspect": {},
}  # fmt: skip


@pytest.mark.parametrize("kind", WITH_NAME)
@pytest.mark.parametrize(("name", "reason"), BAD_NAMES.values(), ids=BAD_NAMES)
def test_bad_names(peer: RawPeer, kind: str, name: str | bytes, reason: str) -> None:
    peer.refuses(
        Code.NAME_INVALID,
        f"^the name is not valid: {reason}",
        kind,
        name=name,
        **WITH_NAME[kind],
    )


@pytest.mark.parametrize("name", GOOD_NAMES)
def test_good_names(peer: RawPeer, name: str) -> None:
    """Byte for byte as they were given."""
    assert peer.ask("publish", name=name, **WITH_NAME["publish"]).kind == "published"
    assert name in peer.names()
    assert peer.inspection(name).name == name.encode()
    assert peer.ask("get", name=name, attach=1).kind == "granted"
    assert peer.remove(name).kind == "done"


def test_names_are_not_normalised(peer: RawPeer) -> None:
    assert peer.ask("publish", name="\u00e9", **WITH_NAME["publish"]).kind == "published"
    peer.get("e\u0301").fails_with(Code.NOT_FOUND, "nothing that you may read is published as")
    assert peer.remove("\u00e9").kind == "done"


@pytest.mark.parametrize("kind", WITH_NAME)
def test_name_with_a_nul_is_not_cut(world: World, peer: RawPeer, kind: str) -> None:
    """C ends its strings there; the name does not."""
    assert world.probe.ask("publish", name="bad", **WITH_NAME["publish"]).kind == "published"
    peer.send(kind, number=3, name=b"bad\0x", **WITH_NAME[kind])
    peer.ends_with(Code.PROTOCOL, "a text in the packet has a NUL inside: leave it out", 3)
    assert world.probe.remove("bad").kind == "done"


@pytest.mark.parametrize("pattern", ["", "a//b", "a/", "0:*", "a**", "**b/c", "x" * 256, "a\nb"])
def test_bad_patterns(peer: RawPeer, pattern: str) -> None:
    peer.refuses(Code.NAME_INVALID, "^the pattern is not valid: ", "list", pattern=pattern)


def test_pattern_of_many_stars_costs_little(peer: RawPeer) -> None:
    for number in range(8):
        name = "a" * 250 + str(number)
        assert peer.ask("publish", name=name, **WITH_NAME["publish"]).kind == "published"
    assert peer.names("*a" * 120 + "b") == []
    assert peer.names("**/*a" * 40 + "b/**") == []
    for name in peer.names("a*"):
        assert peer.remove(name).kind == "done"


# ---- what clients say of themselves ----

LIMITS = {"client_name": 64, "command": 256, "cgroup": 256}


@pytest.mark.parametrize(("field", "limit"), LIMITS.items())
def test_texts_about_a_client_have_a_limit(world: World, field: str, limit: int) -> None:
    longest = world.connect(says_hello=False)
    hello: dict[str, Any] = {"min_version": 1, "max_version": 1}
    assert longest.ask("hello", **{**hello, field: "x" * limit}).kind == "welcome"
    peer = world.connect(says_hello=False)
    peer.send("hello", number=4, **{**hello, field: "x" * (limit + 1)})
    sentence = rf"field hello\.{field} is {limit + 1}, outside 0 to {limit}"
    peer.ends_with(Code.PROTOCOL, sentence, request_id=4)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (b"a\nb", "a?b"),
        (b"\x1b]0;title\x07", "?]0;title?"),
        (b"\xff\xfe", "??"),
        ("\u202eright to left".encode(), None),
    ],
)
def test_texts_about_a_client_are_shown_printable(
    world: World, text: bytes, shown: str | None
) -> None:
    peer = world.connect(says_hello=False)
    peer.ask("hello", min_version=1, max_version=1, client_name=text, command=text)
    assert peer.ask("publish", name="bad/x", **WITH_NAME["publish"]).kind == "published"
    publisher = world.client.inspect("bad/x").publisher
    assert "\n" not in publisher.name
    assert "\x1b" not in publisher.command
    if shown:
        assert publisher.name == publisher.command == shown
    assert peer.remove("bad/x").kind == "done"


# ---- metadata ----

TOO_LONG = "metadata has {} bytes and may have 4096: publish large values as tensors"
BAD_METADATA: dict[str, tuple[str | bytes, str]] = {
    "too_long": ('{"a": "' + "x" * 4088 + '"}', TOO_LONG.format(4097)),
    "much_too_long": ('{"a": "' + "x" * 60000 + '"}', TOO_LONG.format(60009)),
    "no_utf8": (b'{"a": "\xff"}', "metadata is not JSON"),
    "overlong": (b'{"a": "\xc0\x80"}', "metadata is not JSON"),
    "empty": ("", "metadata is not JSON"),
    "no_json": ("{a: 1}", "metadata is not JSON"),
    "array": ("[1, 2]", "metadata is JSON, but no object"),
    "text": ('"x"', "metadata is"),
    "number": ("1", "metadata is"),
    "null": ("null", "metadata is"),
    "two": ("{} {}", "metadata is not JSON"),
    "cut": ('{"a": ', "metadata is not JSON"),
    "deep": ('{"a": ' + "[" * 4000, "metadata is more than 64 levels deep: flatten it"),
    "lone_surrogate": (r'{"a": "\ud800"}', "metadata is not JSON"),
    "infinite": ('{"a": 1e999}', "metadata is not JSON"),
}


@pytest.mark.parametrize(("metadata", "sentence"), BAD_METADATA.values(), ids=BAD_METADATA)
def test_bad_metadata(peer: RawPeer, metadata: str | bytes, sentence: str) -> None:
    fields = {**WITH_NAME["publish"], "name": "bad/x", "metadata": metadata}
    peer.refuses(Code.METADATA, f"^{sentence}", "publish", **fields)


def test_deep_metadata(peer: RawPeer, world: World) -> None:
    """4096 bytes hold two thousand brackets, and readers parse them by recursion."""
    metadata = '{"a":' + "[" * 2040 + "]" * 2040 + "}"
    reply = peer.ask("publish", **WITH_NAME["publish"], name="bad/x", metadata=metadata)
    reply.fails_with(Code.METADATA, "metadata is more than 64 levels deep: flatten it")
    deepest = '{"a":' + "[" * 63 + r'"[[[\\\"[[["' + "]" * 63 + ', "b": [{}]}'
    reply = peer.ask("publish", **WITH_NAME["publish"], name="bad/x", metadata=deepest)
    assert reply.kind == "published", reply.packet
    assert (world.client.inspect("bad/x").metadata or {})["b"] == [{}]
    assert peer.remove("bad/x").kind == "done"


@pytest.mark.parametrize(
    "metadata",
    [
        "{}",
        " {}\n",
        '{"a": "' + "x" * 4087 + '"}',
        '{"é": {"a": [1, null, true]}}',
        '{"a": 1, "a": 2}',
        '{"a": 123456789012345678901234567890}',
    ],
)
def test_good_metadata(peer: RawPeer, metadata: str) -> None:
    fields = {**WITH_NAME["publish"], "name": "bad/x", "metadata": metadata}
    assert peer.ask("publish", **fields).kind == "published"
    assert peer.inspection("bad/x").metadata == metadata.encode()
    assert peer.get("bad/x").packet.granted.metadata == metadata.encode()
    assert peer.remove("bad/x").kind == "done"
