# SPDX-License-Identifier: Apache-2.0
"""The examples of docs/waiting.md and docs/pickling.md print what the pages say."""

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
PAGES = {name: (ROOT / f"docs/{name}.md").read_text() for name in ("waiting", "pickling")}
PACKAGE = Path(tidl.__file__).parent

EXAMPLES = [
    example
    for page in PAGES.values()
    for example in re.findall(
        r"<!-- example: (\w+) -->\n```(python|c)\n(.*?)```\n\n```\n(.*?)```", page, re.DOTALL
    )
]


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
    fences = sum(page.count("```python") + page.count("```c\n") for page in PAGES.values())
    assert len(EXAMPLES) == fences == 7


@pytest.mark.parametrize(
    ("language", "program", "expected"),
    [example[1:] for example in EXAMPLES],
    ids=[example[0] for example in EXAMPLES],
)
def test_example_runs_as_printed(
    environment: dict[str, str], tmp_path: Path, language: str, program: str, expected: str
) -> None:
    if language == "c":
        command = compiled(program, tmp_path)
    else:
        script = tmp_path / "example.py"
        script.write_text(program)
        command = [sys.executable, script]
    result = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == expected


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", PAGES[page]):
        if "://" not in target:
            assert (ROOT / "docs" / target).exists(), target
