# SPDX-License-Identifier: Apache-2.0
"""What the page about Taichi prints is what happens."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidl

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "taichi.md").read_text()

# A program, and what it prints if that is shown.
EXAMPLES = re.findall(r"```python\n(.*?)```\n(?:\n```\n(.*?)```)?", PAGE, re.DOTALL)
TOGETHER = [example for example in EXAMPLES if example[0].startswith("# ")]
ALONE = [example for example in EXAMPLES if example not in TOGETHER]


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A runtime folder of its own; the broker that was started in it ends with the test."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("TIDL_")}
    kept |= {"XDG_RUNTIME_DIR": str(tmp_path), "ENABLE_TAICHI_HEADER_PRINT": "False"}
    kept["TI_OFFLINE_CACHE"] = "0"
    yield kept
    tidlctl = Path(tidl.__file__).parent / "bin" / "tidlctl"
    subprocess.run([tidlctl, "shutdown"], env=kept, check=False, timeout=30, capture_output=True)


Program = subprocess.Popen[str]


def start(text: str, script: Path, environment: dict[str, str]) -> Program:
    script.write_text(text)
    return subprocess.Popen(
        [sys.executable, script],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def check(program: Program, expected: str) -> None:
    output, errors = program.communicate(timeout=90)
    lines = [line for line in output.splitlines(True) if not line.startswith("[Taichi]")]
    assert (program.returncode, "".join(lines)) == (0, expected), errors


def test_examples_are_found() -> None:
    assert len(TOGETHER) == 4
    assert len(ALONE) == PAGE.count("```python") - 4 >= 5
    assert all(expected for _, expected in ALONE)


@pytest.mark.parametrize("example", ALONE, ids=range(len(ALONE)))
def test_example(example: tuple[str, str], environment: dict[str, str], tmp_path: Path) -> None:
    text, expected = example
    check(start(text, tmp_path / "example.py", environment), expected)


@pytest.mark.parametrize("first", range(0, len(TOGETHER), 2))
def test_two_processes(first: int, environment: dict[str, str], tmp_path: Path) -> None:
    programs = [
        (start(text, tmp_path / f"program{number}.py", environment), expected)
        for number, (text, expected) in enumerate(TOGETHER[first : first + 2])
    ]
    for program, expected in programs:
        check(program, expected)
