# SPDX-License-Identifier: Apache-2.0
"""Brokers that tests left running: each is a failure, and is ended."""

from __future__ import annotations

import os
import select
import signal
from pathlib import Path

from .results import Tally

# A private broker with nothing published goes by itself five seconds after its last client.
GRACE_S = 8.0


def brokers_under(folder: Path) -> list[int]:
    """Ids of brokers that have @folder on their command line or in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue  # ended meanwhile, or somebody else's
        is_broker = Path(os.fsdecode(words[0])).name == "tidld"
        if is_broker and os.fsencode(folder) in b"\0".join(words) + environment:
            found.append(int(entry.name))
    return found


def wait_for_end(pid: int, seconds: float) -> bool:
    """True when the process has ended within that time."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], seconds)[0])
    finally:
        os.close(descriptor)


def end_leftovers(folder: Path) -> Tally:
    tally = Tally()
    for pid in brokers_under(folder):
        if not wait_for_end(pid, GRACE_S):
            tally.add_failure(f"a broker was left running: pid {pid}")
            os.kill(pid, signal.SIGKILL)
            wait_for_end(pid, GRACE_S)
    return tally
