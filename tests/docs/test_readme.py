# SPDX-License-Identifier: Apache-2.0
"""What the README prints is what happens, and its tables say what the headers say."""

from __future__ import annotations

import builtins
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidl

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A runtime folder of its own; the broker that was started in it ends with the test."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("TIDL_")}
    kept["XDG_RUNTIME_DIR"] = str(tmp_path)
    yield kept
    tidlctl = Path(tidl.__file__).parent / "bin" / "tidlctl"
    ended = subprocess.run([tidlctl, "shutdown"], env=kept, check=False, timeout=30)
    assert ended.returncode == 0


def test_ten_lines_run_as_printed(environment: dict[str, str], tmp_path: Path) -> None:
    match = re.search(r"```python\n(.*?)```\n\n```\n(.*?)```", README, re.DOTALL)
    assert match
    program, expected = match.groups()
    script = tmp_path / "readme.py"
    script.write_text(program)
    result = subprocess.run(
        [sys.executable, script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == expected
    assert len(program.strip().splitlines()) <= 11


def test_calls_that_are_spoken_of_exist() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    text = "\n".join(page.read_text() for page in pages)
    for word, kind in (("client", tidl.Client), ("tensor", tidl.Tensor), ("tidl", tidl)):
        names = set(re.findall(rf"`(?:await )?{word}\.([a-z]\w*)\(", text))
        assert len(names) > 4, word
        assert sorted(name for name in names if not hasattr(kind, name)) == []


def test_sections_that_are_linked_exist() -> None:
    titles = re.findall(r"^## (.*)$", README, re.MULTILINE)
    anchors = {re.sub(r"[^\w-]", "", title.lower().replace(" ", "-")) for title in titles}
    linked = set(re.findall(r"\]\(#([\w-]+)\)", README))
    assert linked
    assert linked <= anchors


def test_error_table_is_that_of_the_header() -> None:
    header = (ROOT / "include/tidl/error.h").read_text()
    codes = dict(re.findall(r"TIDL_ERR_(\w+) = (-\d+)", header))
    rows = re.findall(r"^\| `(\w+)` \| (-\d+) \| `(\w+)`(.*?)\|", README, re.MULTILINE)
    assert {name: value for name, value, _, _ in rows} == codes
    for name, _, class_name, also in rows:
        error = getattr(tidl, class_name)
        assert error.code == name
        for base in re.findall(r"`(\w+)`", also):
            assert issubclass(error, getattr(builtins, base))


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "CONTRIBUTING.md",
        "docs/architecture.md",
        "docs/install.md",
        "docs/decisions/README.md",
        "proto/PROTOCOL.md",
    ],
)
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text()
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if "://" not in target:
            assert ((ROOT / page).parent / target).exists(), target


def test_architecture_names_files_that_exist() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    names = set(
        re.findall(
            r"`((?:include|proto|daemon|client|tests|scripts|docs|examples)/[\w./-]+)`", text
        )
    )
    assert len(names) > 40
    assert [name for name in sorted(names) if not (ROOT / name).exists()] == []


def test_architecture_has_every_file_of_the_c_sources() -> None:
    """By its own name, a source together with its header, or by its folder's."""
    text = (ROOT / "docs/architecture.md").read_text()
    names = set(re.findall(r"`((?:proto|daemon|client/lib)/[\w./]+)`", text))
    folders = tuple(name for name in names if name.count("/") > 1 and name.endswith("/"))
    stems = {name.rpartition(".")[0] for name in names}
    sources = [
        path.relative_to(ROOT).as_posix()
        for folder in ("proto", "daemon", "client/lib")
        for path in (ROOT / folder).rglob("*.[ch]")
    ]
    assert len(sources) > 200
    missing = {
        name
        for name in sources
        if name.rpartition(".")[0] not in stems and not name.startswith(folders)
    }
    assert sorted(missing) == []
