# SPDX-License-Identifier: Apache-2.0
"""What of the examples and pages the type checker sees."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripts_support import ROOT

from testrun import examples

KERNEL = """\
@ti.kernel
def paint(
    canvas: ti.types.ndarray(ndim=2),
    value: ti.f32,
) -> ti.i32:
    return 1
"""


def test_heads_of_kernels_are_hidden_and_nothing_else() -> None:
    hidden = examples.without_kernels(f"{KERNEL}\ndef plain(a: int) -> int:\n    return a\n")
    lines = hidden.split("\n")
    assert [line.endswith("# type: ignore") for line in lines] == [True] * 5 + [False] * 5


def test_every_block_keeps_its_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "README.md"
    page.write_text("# Title\n\n```python\nx = 1\n```\n\n```\nno program\n```\n")
    (tmp_path / "docs").mkdir()
    monkeypatch.setattr(examples, "ROOT", tmp_path)
    (written,) = examples.extract(tmp_path / "out")
    assert written.read_text() == "\n\n\nx = 1\n"


def test_all_programs_of_this_project_are_found(tmp_path: Path) -> None:
    written = {path.name for path in examples.extract(tmp_path / "out")}
    assert {path.name for path in (ROOT / "examples").glob("*.py")} < written
    assert {"README_1.py", "docs_frameworks_1.py", "docs_taichi_1.py"} < written
