# SPDX-License-Identifier: Apache-2.0
"""What tidlctl prints, byte for byte, over fixed records that include hostile ones."""

from __future__ import annotations

import json
import subprocess
import unicodedata

import pytest
from ctl_support import HERE, Fake, Result

GOLDEN = {
    "list": ("list",),
    "list_empty": ("list", "none"),
    "list_json": ("list", "--json"),
    "inspect": ("inspect", "demo/x"),
    "inspect_empty": ("inspect", "empty"),
    "inspect_json": ("--json", "inspect", "demo/x"),
    "wait": ("wait", "demo/x", "--newer-than", "41"),
    "wait_json": ("wait", "demo/x", "--json", "--timeout", "1.5"),
    "watch": ("watch", "*:**", "--count", "4"),
    "watch_json": ("watch", "--json", "--count=4"),
    "help": ("--help",),
    "help_wait": ("help", "wait"),
    "help_watch": ("help", "watch"),
    "help_list": ("list", "--help"),
    "help_inspect": ("help", "inspect"),
    "help_rm": ("help", "rm"),
    "help_shutdown": ("shutdown", "-h"),
}


def display_columns(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


@pytest.mark.parametrize("case", GOLDEN)
def test_golden(fake: Fake, case: str) -> None:
    result = fake(*GOLDEN[case])
    assert result.status == 0
    assert result.err == ""
    assert result.out == (HERE / "golden" / f"{case}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("case", GOLDEN)
def test_nothing_reaches_the_terminal_but_text(fake: Fake, case: str) -> None:
    result = fake(*GOLDEN[case])
    for line in result.out.split("\n"):
        assert line == line.rstrip(), "blanks at the end of a line"
        assert all(unicodedata.category(c) not in ("Cc", "Cf", "Zl", "Zp") for c in line)


def test_columns_line_up_for_wide_characters(fake: Fake) -> None:
    lines = fake("list").out.splitlines()
    column = display_columns(lines[0].partition("DTYPE")[0])
    starts = [
        line.index(word)
        for line, word in zip(lines[1:], ("float32", "uint8", "bundle"), strict=True)
    ]
    assert [
        display_columns(line[:start]) for line, start in zip(lines[1:], starts, strict=True)
    ] == [column] * 3
    assert len({display_columns(line) for line in lines}) == 1, "the last column ends at one edge"


def test_json_is_ascii_and_has_a_schema(fake: Fake) -> None:
    for arguments in (("list",), ("inspect", "demo/x"), ("rm", "x"), ("shutdown",), ("--version",)):
        result = fake("--json", *arguments)
        assert result.status == 0
        assert result.out.isascii()
        assert json.loads(result.out)["schema"] == 1


@pytest.mark.parametrize(
    ("arguments", "status", "code"),
    [
        ((), 2, "USAGE"),
        (("dance",), 2, "USAGE"),
        (("--dance",), 2, "USAGE"),
        (("list", "--socket"), 2, "USAGE"),
        (("list", "a", "b"), 2, "USAGE"),
        (("inspect",), 2, "USAGE"),
        (("inspect", "a", "b"), 2, "USAGE"),
        (("rm",), 2, "USAGE"),
        (("shutdown", "now"), 2, "USAGE"),
        (("help", "dance"), 2, "USAGE"),
        (("wait", "x", "--newer-than", "3", "--released"), 2, "USAGE"),
        (("inspect", "nope"), 1, "NOT_FOUND"),
        (("--socket", "denied", "list"), 1, "PERMISSION"),
        (("--socket=nowhere", "list"), 3, "NO_BROKER"),
        (("list", "gone"), 3, "BROKER_GONE"),
    ],
)
def test_failures(fake: Fake, arguments: tuple[str, ...], status: int, code: str) -> None:
    plain = fake(*arguments)
    assert plain.status == status
    assert plain.out == ""
    assert plain.err.startswith("tidlctl: ")
    assert plain.err.endswith(f" ({code})\n")
    assert plain.err.count("\n") == 1
    assert "\x1b" not in plain.err

    as_json = fake("--json", *arguments)
    if arguments != ("list", "--socket"):
        assert as_json.err == plain.err
    document = json.loads(as_json.out)
    assert as_json.status == status
    assert document["schema"] == 1
    assert document["error"]["code"] == code
    assert document["error"]["message"] in plain.err.replace("\\\\", "\\")


def test_rm_goes_on_after_a_failure(fake: Fake) -> None:
    result = fake("--json", "rm", "a", "missing1", "b", "missing2")
    document = json.loads(result.out)
    assert result.status == 1
    assert document["removed"] == ["a", "b"]
    assert [failure["name"] for failure in document["failed"]] == ["missing1", "missing2"]
    assert document["error"] == document["failed"][0]
    assert result.err.count("NOT_FOUND") == 2
    assert fake("rm", "a", "b") == Result(0, "", "")


def test_version(fake: Fake) -> None:
    assert fake("--version").out.startswith("tidlctl ")


def test_a_full_disk_is_a_failure(fake: Fake) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [fake.binary, "list"],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.returncode == 1
    assert b"cannot write the output" in done.stderr
