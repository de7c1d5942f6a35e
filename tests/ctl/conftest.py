# SPDX-License-Identifier: Apache-2.0
"""A private broker in a folder of its own for each test."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from ctl_support import DEADLINE_S, Broker, Fake, program


@pytest.fixture
def fake() -> Fake:
    return Fake(program("tests/ctl/tidlctl-fake"))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    socket = tmp_path / "tidld.sock"
    # Detached, so that its "ready" can be waited for; ended through tidlctl or its idle time.
    started = subprocess.run(
        [program("daemon/tidld"), "--private", "--detach", "--socket", socket],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert started.returncode == 0, started.stderr.decode()
    running = Broker(tmp_path, socket)
    yield running
    for holder in running.holders:
        holder.close()
    running.ctl("shutdown")
