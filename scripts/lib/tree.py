# SPDX-License-Identifier: Apache-2.0
"""The files of this project, as git has or would take them."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def files() -> list[str]:
    """Names from the root: no build folders, nothing ignored, nothing deleted."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in sorted(set(names.split("\0"))) if name and (ROOT / name).is_file()]


def _interpreter(name: str) -> bytes:
    with (ROOT / name).open("rb") as file:
        first = file.readline(80)
    return first if first.startswith(b"#!") else b""


def is_python(name: str) -> bool:
    return name.endswith((".py", ".pyi")) or b"python" in _interpreter(name)


def is_shell(name: str) -> bool:
    return name.endswith(".sh") or b"bash" in _interpreter(name)
