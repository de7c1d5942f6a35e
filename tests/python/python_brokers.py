# SPDX-License-Identifier: Apache-2.0
"""Finding the brokers of a runtime folder, and waiting for what the kernel reports of processes."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path

import tidl

END_S = 20.0


def broker_pids(folder: Path) -> list[int]:
    """Brokers that listen in this runtime folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # ended meanwhile
        if os.path.basename(words[0]) == b"tidld" and os.fsencode(folder) in b"\0".join(words):
            found.append(int(entry.name))
    return found


def await_end(pid: int, seconds: float = END_S) -> bool:
    """Whether the process has ended within that time."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], seconds)[0])
    finally:
        os.close(descriptor)


def end_brokers(folder: Path, signum: int = signal.SIGKILL) -> None:
    for pid in broker_pids(folder):
        os.kill(pid, signum)
        assert await_end(pid), f"broker {pid} does not end"


def eventually(is_true: Callable[[], bool], seconds: float = END_S) -> bool:
    """Asks again until it is so: for what a broker learns by itself, such as a death."""
    deadline = time.monotonic() + seconds
    while not is_true():
        if time.monotonic() > deadline:
            return False
    return True


# poll and ppoll on x86-64, ppoll elsewhere.
_POLL_CALLS = ("7", "271", "73")


def await_poll(pid: int) -> bool:
    """Whether the main thread of a process of ours comes to sleep in poll().

    A signal that comes a moment earlier, after Python's last look at its flags, wakes nobody.
    """
    path = Path(f"/proc/{pid}/syscall")
    return eventually(lambda: path.read_text().split()[0] in _POLL_CALLS)


def is_let_go(client: tidl.Client, name: str) -> bool:
    """Whether nobody holds what the name names, once all that is queued has been sent."""

    def is_free() -> bool:
        client.dispatch()
        return client.inspect(name).holders == ()

    return eventually(is_free)


def descriptors(pid: int | str = "self") -> list[str]:
    """What a process has open, without the descriptor that this very question needs."""
    found = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.append(os.readlink(entry))
        except OSError:
            continue
    return sorted(found)


def memfd_inode(address: int, pid: int | str = "self") -> int:
    """The inode of the memfd that is mapped at an address of a process, 0 if none is."""
    with open(f"/proc/{pid}/maps") as maps:
        for line in maps:
            span, _, _, _, inode, *path = line.split(maxsplit=5)
            start, end = (int(word, 16) for word in span.split("-"))
            if start <= address < end and path and path[0].startswith("/memfd:"):
                return int(inode)
    return 0
