# SPDX-License-Identifier: Apache-2.0
"""The programs that the wheel carries, and the commands that start them."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

_BIN = Path(__file__).parent / "bin"


def bundled_daemon() -> str | None:
    """The broker that came with this package, for autostart; None if there is none."""
    path = _BIN / "tidld"
    return str(path) if path.exists() else None


def _exec(program: str) -> NoReturn:
    path = _BIN / program
    os.execv(path, [program, *sys.argv[1:]])


def run_tidld() -> NoReturn:
    """The command `tidld`."""
    _exec("tidld")


def run_tidlctl() -> NoReturn:
    """The command `tidlctl`."""
    _exec("tidlctl")
