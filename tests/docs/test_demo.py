# SPDX-License-Identifier: Apache-2.0
"""The demo says what happened with its exit status, and leaves nothing behind, stopped or not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "lib"))

from testrun.leftovers import brokers_under  # noqa: E402

Demo = subprocess.Popen[str]


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    process = subprocess.Popen(
        [sys.executable, ROOT / "scripts" / "lib" / "demo.py"],
        env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    yield process
    process.kill()
    process.communicate()


def read_until(demo: Demo, text: str) -> None:
    assert demo.stdout
    assert any(text in line for line in demo.stdout), f"the demo ended before it said {text!r}"


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_stopped_in_the_middle(demo: Demo, tmp_path: Path, signum: signal.Signals) -> None:
    read_until(demo, "published demo/ones")
    assert brokers_under(tmp_path)
    demo.send_signal(signum)
    output, _ = demo.communicate(timeout=60)
    assert demo.returncode == 130, output
    assert brokers_under(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_fails_when_an_actor_does(demo: Demo, tmp_path: Path) -> None:
    read_until(demo, "published demo/ones")
    (pid,) = children_running(demo.pid, "demo_taichi.py")
    os.kill(pid, signal.SIGKILL)
    output, _ = demo.communicate(timeout=60)
    assert demo.returncode == 1
    assert "The demo failed: taichi ended" in output
    assert list(tmp_path.iterdir()) == []


def children_running(parent: int, script: str) -> list[int]:
    pids = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [int(pid) for pid in pids if script in Path(f"/proc/{pid}/cmdline").read_text()]
