# SPDX-License-Identifier: Apache-2.0
"""Completion for bash, asked as bash asks it, over the fixed records."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from ctl_support import HERE, Fake

SCRIPT = HERE.parent.parent / "client" / "ctl" / "completions" / "tidlctl.bash"
ASK = """
. "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_tidlctl tidlctl "${@: -1}" "${@: -2:1}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


def complete(folder: Path, fake: Fake, *words: str) -> list[str]:
    link = folder / "tidlctl"
    if not link.exists():
        link.symlink_to(fake.binary)
    done = subprocess.run(
        ["bash", "-c", ASK, "ask", SCRIPT, "tidlctl", *words],
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"},
        capture_output=True,
        check=True,
    )
    assert done.stderr == b""
    return done.stdout.decode().split()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("",), ["list", "inspect", "wait", "watch", "rm", "shutdown", "help"]),
        (("in",), ["inspect"]),
        (("--s",), ["--socket"]),
        (("--json", "sh"), ["shutdown"]),
        (("wa",), ["wait", "watch"]),
        (("wait", "--n"), ["--newer-than"]),
        (("list", "--n"), []),
        (("watch", "--"), ["--json", "--socket", "--version", "--help", "--count"]),
        (("--co",), ["--count"]),
        (("wait", "--timeout", ""), []),
        (("--timeout", "5", "wa"), ["wait", "watch"]),
        (("wait", "demo/"), ["demo/x"]),
        (("help", "l"), ["list"]),
        (("inspect", "demo/"), ["demo/x"]),
        (("--json", "rm", "demo/x", "d"), ["demo/x"]),
        (("--socket", "nowhere", "inspect", ""), []),
        (("shutdown", ""), []),
    ],
)
def test_completion(
    tmp_path: Path, fake: Fake, words: tuple[str, ...], expected: list[str]
) -> None:
    assert complete(tmp_path, fake, *words) == expected
