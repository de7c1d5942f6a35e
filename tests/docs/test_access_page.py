# SPDX-License-Identifier: Apache-2.0
"""The examples of docs/access.md print what the page says."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidl

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/access.md").read_text()

EXAMPLES = re.findall(
    r"<!-- example: (\w+) -->\n```python\n(.*?)```\n\n```\n(.*?)```", PAGE, re.DOTALL
)


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A runtime folder of its own; the broker that was started in it ends with the test."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("TIDL_")}
    kept["XDG_RUNTIME_DIR"] = str(tmp_path)
    yield kept
    tidlctl = Path(tidl.__file__).parent / "bin" / "tidlctl"
    ended = subprocess.run([tidlctl, "shutdown"], env=kept, check=False, timeout=30)
    assert ended.returncode == 0


def test_every_example_is_found() -> None:
    assert len(EXAMPLES) == PAGE.count("```python") == 4


@pytest.mark.parametrize(("module", "program", "expected"), EXAMPLES, ids=range(len(EXAMPLES)))
def test_example_runs_as_printed(
    environment: dict[str, str], tmp_path: Path, module: str, program: str, expected: str
) -> None:
    if not importlib.util.find_spec(module):
        pytest.skip(f"{module} is not installed")
    script = tmp_path / "example.py"
    script.write_text(program)
    result = subprocess.run(
        [sys.executable, script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (result.returncode, result.stderr, result.stdout) == (0, "", expected)


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", PAGE):
        if "://" not in target:
            assert (ROOT / "docs" / target).exists(), target
