# SPDX-License-Identifier: Apache-2.0
"""The wheel under test, and places that it is installed in."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from clean_room import BareVenv, CleanRoom, Place, why_no_clean_room

ROOT = Path(__file__).resolve().parents[2]
WHEELHOUSE = ROOT / ".venvs/wheels"


@pytest.fixture(scope="session")
def wheel() -> Path:
    """What scripts/build-wheel made, or what TIDL_WHEEL names."""
    named = os.environ.get("TIDL_WHEEL")
    if named:
        return Path(named)
    wheels = list((ROOT / "dist").glob("tidl-*.whl"))
    assert len(wheels) == 1, "run scripts/build-wheel first"
    return wheels[0]


@pytest.fixture(scope="session", params=["venv", "clean room"])
def place(request: pytest.FixtureRequest, wheel: Path) -> Iterator[Place]:
    """An environment with NumPy and the wheel."""
    numpy = sorted(WHEELHOUSE.glob("numpy-*.whl"))
    if not numpy:
        pytest.skip(f"no wheel of NumPy is in {WHEELHOUSE}; scripts/setup test fetches it")
    if request.param == "clean room":
        reason = why_no_clean_room()
        if reason:
            pytest.skip(reason)
    # Short, because a socket's path has 108 bytes.
    folder = Path(tempfile.mkdtemp(prefix="tidl-", dir="/tmp"))
    try:
        place = BareVenv(folder) if request.param == "venv" else CleanRoom(folder)
        place.prepare([numpy[-1], wheel])
        yield place
    finally:
        shutil.rmtree(folder)
