# SPDX-License-Identifier: Apache-2.0
"""Peers with Debian 12's own NumPy 1.24 and PyTorch 1.13, which the system's Python has.

They stand for consumers of years ago, who know DLPack's old capsule only.
"""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Mapping
from pathlib import Path

from python_mxnet import package_folder
from python_peer import Peer

DEBIAN_PYTHON = Path("/usr/bin/python3")

VERSIONS = {"numpy": "1.24", "torch": "1.13"}

ASK = "import importlib.metadata as m, sys; print(m.version(sys.argv[1]))"


@functools.cache
def absence(module: str) -> str | None:
    """Why this module of Debian's takes no part here; None if it does."""
    wanted = VERSIONS[module]
    missing = f"there is no python3-{module} {wanted} of Debian 12 here"
    if not DEBIAN_PYTHON.exists():
        return missing
    # -I: whatever is installed for this user only is not Debian's.
    command = [DEBIAN_PYTHON, "-I", "-c", ASK, module]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return None if result.stdout.startswith(f"{wanted}.") else missing


def debian_peer(setup: str, folder: Path, environment: Mapping[str, str] | None = None) -> Peer:
    """A peer of the system's Python, with tidl by way of a folder made for that."""
    path = str(package_folder(folder))
    return Peer(
        setup, environment={**(environment or {}), "PYTHONPATH": path}, python=DEBIAN_PYTHON
    )
