# SPDX-License-Identifier: Apache-2.0
"""The page about installing says what the pins, the matrix and the wheel say."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/install.md").read_text()
REQUIREMENTS = ROOT / "scripts/requirements"

VERSIONS = dict(re.findall(r"^\| ([\w-]+) \| (\d[\w.]*)", PAGE, re.MULTILINE))


def pins(name: str) -> dict[str, str]:
    text = (REQUIREMENTS / name).read_text()
    return dict(re.findall(r"^([\w.-]+)==(\S+)$", text, re.MULTILINE))


def test_versions_are_those_of_the_pins() -> None:
    pinned = pins("mxnet.txt") | pins("constraints.txt")
    listed = {name: text for name, text in VERSIONS.items() if not name.startswith("python3-")}
    assert len(listed) == 13
    assert listed == {name: pinned[name] for name in listed}


def test_every_framework_of_the_tests_is_listed() -> None:
    names = set()
    for file in ("demo.txt", "frameworks.txt"):
        names |= set(re.findall(r"^(\w[\w-]+)$", (REQUIREMENTS / file).read_text(), re.MULTILINE))
    assert names - {"jaxlib", "ml_dtypes"} <= set(VERSIONS)


def test_old_consumers_are_those_of_the_matrix() -> None:
    matrix = (ROOT / "docs/matrix.md").read_text()
    for framework in ("numpy", "torch"):
        match = re.search(rf"^\| {framework}-[\d.]+ \| ([\d.]+\d)", matrix, re.MULTILINE)
        assert match
        assert match[1].startswith(VERSIONS[f"python3-{framework}"])


def test_tag_is_that_of_the_wheel() -> None:
    """Of a wheel that was built on Debian 12, as the page says."""
    release = Path("/etc/os-release").read_text()
    wheels = list((ROOT / "dist").glob("tidl-*.whl"))
    assert len(wheels) == 1
    if 'VERSION_ID="12"' in release and "ID=debian" in release:
        assert wheels[0].name in PAGE
