# SPDX-License-Identifier: Apache-2.0
"""MXNet's peers: it needs a NumPy that is too old for all others, so an environment of its own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from python_peer import Peer

import tidl

ROOT = Path(__file__).resolve().parents[2]
MXNET_PYTHON = Path(os.environ.get("TIDL_MXNET_PYTHON", ROOT / ".venvs/mxnet/bin/python"))


def package_folder(folder: Path) -> Path:
    """A folder for PYTHONPATH that has tidl alone, without what else is installed beside it."""
    link = folder / "tidl"
    if not link.exists():
        link.symlink_to(Path(tidl.__file__).parent)
    return folder


def mxnet_peer(setup: str, folder: Path, environment: Mapping[str, str] | None = None) -> Peer:
    """A peer whose Python has MXNet, and tidl by way of a folder made for that."""
    path = str(package_folder(folder))
    return Peer(setup, environment={**(environment or {}), "PYTHONPATH": path}, python=MXNET_PYTHON)
