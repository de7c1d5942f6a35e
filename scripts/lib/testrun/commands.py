# SPDX-License-Identifier: Apache-2.0
"""Commands, and whatever they start: none of it outlives an interrupt or a time-out."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

# pytest takes back what its fixtures have made.
END_S = 10.0


class Commands:
    """Each leads a process group of its own. Several threads may run some at the same time."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[bytes]] = set()
        self._is_stopped = False

    def run(
        self,
        words: Sequence[str],
        output: IO[bytes] | int,
        environment: Mapping[str, str],
        folder: Path,
        timeout_s: float,
    ) -> int:
        """The status of a command. Raises TimeoutExpired once its group has ended."""
        process = subprocess.Popen(
            words,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
        self._running.add(process)
        try:
            if self._is_stopped:
                _signal(process, signal.SIGINT)
            return process.wait(timeout_s)
        except BaseException:
            self._end(process)
            raise
        finally:
            self._running.discard(process)

    def stop(self) -> None:
        """Interrupts what runs, and what is started from now on. For handlers of signals."""
        self._is_stopped = True
        for process in list(self._running):
            _signal(process, signal.SIGINT)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """In order if it can, and what is left of its group by force."""
        if not self._is_stopped:  # a second interrupt would disturb the clean-up after the first
            _signal(process, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_S)
        _signal(process, signal.SIGKILL)
        process.wait()


def _signal(process: subprocess.Popen[bytes], signum: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signum)
