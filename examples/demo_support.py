# SPDX-License-Identifier: Apache-2.0
"""What both sides of the demo share: where memory comes from, and words with scripts/demo."""

from __future__ import annotations

import json
import os
import sys

import tidl

# Before the frameworks are there: what they allocate later can then be shared where it lies.
tidl.prefer_shareable()


def memfd_inode(address: int) -> int:
    """The inode of the memfd that is mapped at this address of this process, 0 if none is."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            span, _, _, _, inode, *path = line.split(maxsplit=5)
            start, end = (int(word, 16) for word in span.split("-"))
            if start <= address < end and path and path[0].startswith("/memfd:"):
                return int(inode)
    return 0


def report(step: str, address: int) -> None:
    """One line for scripts/demo, which compares what the two processes say."""
    facts = {"step": step, "pid": os.getpid(), "inode": memfd_inode(address)}
    print("@" + json.dumps(facts), flush=True)


def hold() -> None:
    """Keeps the memory until the other end of standard input says so."""
    sys.stdin.readline()
