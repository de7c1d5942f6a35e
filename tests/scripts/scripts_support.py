# SPDX-License-Identifier: Apache-2.0
"""A small project of its own, with this project's scripts in it."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Project:
    root: Path

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def check(self, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.root / "scripts" / script, *arguments],
            cwd=self.root,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


def make_project(root: Path) -> Project:
    root.mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    subprocess.run(["git", "init", "-q", root], check=True, env=environment)
    shutil.copytree(
        ROOT / "scripts", root / "scripts", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name in (".clang-format", ".gitignore", "CMakeLists.txt", "include/tidl/version.h.in"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    shutil.copy(ROOT / "include/tidl/export.h", root / "include/tidl/export.h")
    return Project(root)
