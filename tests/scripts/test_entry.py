# SPDX-License-Identifier: Apache-2.0
"""The scripts' own command lines."""

from __future__ import annotations

import subprocess

import pytest
from scripts_support import ROOT, Project

from testrun.parts import PARTS


def test_parts_are_those_that_run() -> None:
    listed = subprocess.run(
        [ROOT / "scripts/test", "--list"], capture_output=True, text=True, check=True
    )
    assert listed.stdout.split() == [part.name for part in PARTS]


@pytest.mark.parametrize("script", ["setup", "demo", "test"])
def test_help_and_wrong_usage(project: Project, script: str) -> None:
    shown = project.check(script, "--help")
    assert shown.returncode == 0
    assert f"scripts/{script}" in shown.stdout
    wrong = project.check(script, "--nonsense")
    assert wrong.returncode == 1
    assert "--nonsense" in wrong.stderr


def test_setup_says_what_is_missing_without_rights(project: Project) -> None:
    # A machine that has apt-get, lacks everything, and lets nobody become root.
    tools = project.root / "tools"
    project.write("tools/apt-get", "#!/bin/sh\nexit 1\n")
    project.write("tools/dpkg-query", "#!/bin/sh\nexit 1\n")
    project.write("tools/id", "#!/bin/sh\necho 1000\n")
    for name in ("apt-get", "dpkg-query", "id"):
        (tools / name).chmod(0o755)
    for name in ("bash", "cat", "cut", "dirname", "env", "grep", "mkdir", "sed", "sort", "tr"):
        (tools / name).symlink_to(f"/usr/bin/{name}")
    result = subprocess.run(
        [project.root / "scripts/setup", "build"],
        env={"PATH": str(tools)},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
        check=False,
    )
    assert result.returncode == 1
    assert "root" in result.stderr
    assert "apt-get install" in result.stderr
    assert "libuv1-dev" in result.stderr
