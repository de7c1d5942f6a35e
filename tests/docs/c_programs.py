# SPDX-License-Identifier: Apache-2.0
"""Programs in C that a page prints, compiled against the tree's headers and library."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("TIDL_BUILD_DIR", ROOT / "build/release"))


def compiled(program: str, folder: Path) -> list[str | Path]:
    """The command that runs it."""
    library = BUILD / "client/lib"
    if not (library / "libtidl.so").exists():
        pytest.skip(f"there is no library in {BUILD}")
    source = folder / "example.c"
    source.write_text(program)
    subprocess.run(
        [
            *(os.environ.get("CC", "cc"), "-Wall", "-Wextra", "-Werror", source),
            *("-o", folder / "example", f"-I{ROOT / 'include'}", f"-I{BUILD / 'include'}"),
            *(f"-L{library}", f"-Wl,-rpath,{library}", "-ltidl"),
        ],
        check=True,
        timeout=120,
    )
    return [folder / "example"]
