# SPDX-License-Identifier: Apache-2.0
"""What the page about live tensors prints is what happens."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from c_programs import compiled

import tidl

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/live.md").read_text()

# A program, and what it prints if that is shown. Those that begin with the name of a file belong to
# the next one that prints something.
EXAMPLES = re.findall(r"```python\n(.*?)```\n(?:\n```\n(.*?)```)?", PAGE, re.DOTALL)
C_EXAMPLES = re.findall(r"```c\n(.*?)```\n\n```\n(.*?)```", PAGE, re.DOTALL)


def scenes() -> Iterator[list[tuple[str, str]]]:
    scene: list[tuple[str, str]] = []
    for text, expected in EXAMPLES:
        scene.append((text, expected))
        if expected:
            yield scene
            scene = []
    assert not scene


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A runtime folder of its own; the broker that was started in it ends with the test."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("TIDL_")}
    kept |= {"XDG_RUNTIME_DIR": str(tmp_path), "ENABLE_TAICHI_HEADER_PRINT": "False"}
    kept["TI_OFFLINE_CACHE"] = "0"
    yield kept
    tidlctl = Path(tidl.__file__).parent / "bin" / "tidlctl"
    subprocess.run([tidlctl, "shutdown"], env=kept, check=False, timeout=30, capture_output=True)


def test_examples_are_found() -> None:
    assert [len(scene) for scene in scenes()] == [2, 1, 1, 2]
    assert len(EXAMPLES) == PAGE.count("```python")
    assert len(C_EXAMPLES) == PAGE.count("```c\n") == 1


@pytest.mark.parametrize("number", range(4))
def test_example(number: int, environment: dict[str, str], tmp_path: Path) -> None:
    programs = []
    for place, (text, expected) in enumerate(list(scenes())[number]):
        script = tmp_path / f"program{place}.py"
        script.write_text(text)
        program = subprocess.Popen(
            [sys.executable, script],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        programs.append((program, expected))
    for program, expected in programs:
        output, errors = program.communicate(timeout=90)
        lines = [line for line in output.splitlines(True) if not line.startswith("[Taichi]")]
        assert (program.returncode, "".join(lines)) == (0, expected), errors


def test_example_in_c(environment: dict[str, str], tmp_path: Path) -> None:
    environment["TIDL_DAEMON"] = str(Path(tidl.__file__).parent / "bin" / "tidld")
    ((program, expected),) = C_EXAMPLES
    done = subprocess.run(
        compiled(program, tmp_path),
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (0, expected), done.stderr


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", PAGE):
        assert (ROOT / "docs" / target).exists(), target
