# SPDX-License-Identifier: Apache-2.0
"""The examples of docs/frameworks.md print what the page says."""

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
PAGE = (ROOT / "docs/frameworks.md").read_text()
PACKAGE = Path(tidl.__file__).parent
MXNET_PYTHON = Path(os.environ.get("TIDL_MXNET_PYTHON", ROOT / ".venvs/mxnet/bin/python"))

EXAMPLES = re.findall(
    r"<!-- example: (\w+) -->\n```python\n(.*?)```\n\n```\n(.*?)```", PAGE, re.DOTALL
)


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A runtime folder of its own; the broker that was started in it ends with the test."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("TIDL_")}
    kept["XDG_RUNTIME_DIR"] = str(tmp_path)
    kept["TF_CPP_MIN_LOG_LEVEL"] = "3"
    yield kept
    ended = subprocess.run([PACKAGE / "bin/tidlctl", "shutdown"], env=kept, check=False, timeout=30)
    assert ended.returncode in (0, 3)  # 3: an example that needs no broker


def test_every_framework_has_an_example() -> None:
    assert len(EXAMPLES) == PAGE.count("```python") == 11


@pytest.mark.parametrize(
    ("module", "program", "expected"), EXAMPLES, ids=[module for module, _, _ in EXAMPLES]
)
def test_example_runs_as_printed(
    environment: dict[str, str], tmp_path: Path, module: str, program: str, expected: str
) -> None:
    python = Path(sys.executable)
    if module == "mxnet":
        if not MXNET_PYTHON.exists():
            pytest.skip(f"there is no {MXNET_PYTHON}")
        python = MXNET_PYTHON
        (tmp_path / "package").mkdir()
        (tmp_path / "package/tidl").symlink_to(PACKAGE)
        environment["PYTHONPATH"] = str(tmp_path / "package")
    elif not importlib.util.find_spec(module):
        pytest.skip(f"{module} is not installed")
    script = tmp_path / "example.py"
    script.write_text(program)
    result = subprocess.run(
        [python, script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    # Frameworks greet on either stream; what the example prints is the end of the one.
    assert result.returncode == 0, result.stderr
    assert result.stdout.endswith(expected)


@pytest.mark.parametrize("page", ["docs/frameworks.md", "docs/matrix.md"])
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", (ROOT / page).read_text()):
        if "://" not in target:
            assert ((ROOT / page).parent / target).exists(), target
