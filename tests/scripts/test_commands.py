# SPDX-License-Identifier: Apache-2.0
"""Commands end with all that they have started."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from testrun import commands
from testrun.commands import Commands
from testrun.leftovers import wait_for_end

# A child that knows of no interrupt, and its parent, which does as $0 says when it comes. Both are
# there once a line is in the pipe.
FAMILY = """
trap "$0" INT
(trap '' INT; echo $BASHPID; exec sleep 1000) &
wait
"""


def run(runner: Commands, pipe: int, at_interrupt: str, timeout_s: float) -> int:
    with open(pipe, "wb") as output:
        words = ["bash", "-c", FAMILY, at_interrupt]
        return runner.run(words, output, os.environ, Path("/"), timeout_s)


def child_of(pipe: int) -> int:
    with open(pipe, "rb") as lines:
        return int(lines.readline())


@pytest.mark.parametrize("at_interrupt", ["exit 1", ""])
def test_a_time_out_ends_what_a_command_started(
    monkeypatch: pytest.MonkeyPatch, at_interrupt: str
) -> None:
    monkeypatch.setattr(commands, "END_S", 1)
    reading, writing = os.pipe()
    with pytest.raises(subprocess.TimeoutExpired):
        run(Commands(), writing, at_interrupt, 2)
    assert wait_for_end(child_of(reading), 10)


def test_stopped_by_another_thread() -> None:
    runner = Commands()
    reading, writing = os.pipe()
    with ThreadPoolExecutor() as pool:
        running = pool.submit(run, runner, writing, "exit 3", 100)
        select.select([reading], [], [])
        runner.stop()
        assert running.result() == 3
        # One that comes too late meets an interrupt, too.
        late = runner.run(["sleep", "1000"], subprocess.DEVNULL, os.environ, Path("/"), 100)
        assert late == -signal.SIGINT
    os.kill(child_of(reading), signal.SIGKILL)
