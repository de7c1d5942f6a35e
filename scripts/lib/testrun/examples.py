# SPDX-License-Identifier: Apache-2.0
"""The examples, and the programs that the pages print, as files for the type checker."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from .context import ROOT

PAGES = ("README.md", "docs")
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)

# Annotations of Taichi's kernels are calls: a language of its own that no type checker knows.
KERNEL = re.compile(
    r"^ *@\w+\.(?:kernel|func)\n *def .*?\)(?: -> [^\n]+)?:$", re.DOTALL | re.MULTILINE
)
IGNORE = "  # type: ignore"


def pages() -> list[Path]:
    found = []
    for name in PAGES:
        path = ROOT / name
        found += sorted(path.rglob("*.md")) if path.is_dir() else [path]
    return found


def without_kernels(program: str) -> str:
    """The program with the heads of kernels hidden from the type checker."""

    def hide(match: re.Match[str]) -> str:
        return "\n".join(line + IGNORE for line in match[0].split("\n"))

    return KERNEL.sub(hide, program)


def extract(folder: Path) -> list[Path]:
    """Writes each program into a file of its own, with its lines where they are in the page."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    written = []
    for example in sorted((ROOT / "examples").glob("*.py")):
        path = folder / example.name
        path.write_text(without_kernels(example.read_text()))
        written.append(path)
    for page in pages():
        text = page.read_text()
        for number, block in enumerate(BLOCK.finditer(text), 1):
            name = re.sub(r"\W", "_", str(page.relative_to(ROOT).with_suffix("")))
            path = folder / f"{name}_{number}.py"
            path.write_text("\n" * text.count("\n", 0, block.start(1)) + without_kernels(block[1]))
            written.append(path)
    return written
