# SPDX-License-Identifier: Apache-2.0
"""The examples of docs/bundles.md print what the page says."""

from __future__ import annotations

import importlib.util
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
PAGE = (ROOT / "docs/bundles.md").read_text()
PACKAGE = Path(tidl.__file__).parent

EXAMPLES = re.findall(
    r"<!-- example: (\w+) -->\n```(python|c)\n(.*?)```\n\n```\n(.*?)```", PAGE, re.DOTALL
)
NEEDS = {"torch": "torch", "paddle": "paddle"}


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A runtime folder of its own; the broker that was started in it ends with the test."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("TIDL_")}
    kept["XDG_RUNTIME_DIR"] = str(tmp_path)
    kept["TIDL_DAEMON"] = str(PACKAGE / "bin/tidld")
    yield kept
    ended = subprocess.run([PACKAGE / "bin/tidlctl", "shutdown"], env=kept, check=False, timeout=30)
    assert ended.returncode == 0


def test_every_example_is_run() -> None:
    assert len(EXAMPLES) == PAGE.count("```python") + PAGE.count("```c\n") == 5


@pytest.mark.parametrize(
    ("name", "language", "program", "expected"), EXAMPLES, ids=[name for name, *_ in EXAMPLES]
)
def test_example_prints_what_the_page_says(
    environment: dict[str, str],
    tmp_path: Path,
    name: str,
    language: str,
    program: str,
    expected: str,
) -> None:
    if name in NEEDS and not importlib.util.find_spec(NEEDS[name]):
        pytest.skip(f"{NEEDS[name]} is not installed")
    if language == "c":
        command = compiled(program, tmp_path)
    else:
        script = tmp_path / "example.py"
        script.write_text(program)
        command = [sys.executable, script]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == expected
