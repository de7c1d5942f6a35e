# SPDX-License-Identifier: Apache-2.0
"""What tests of bundles ask the kernel and the broker."""

from __future__ import annotations

from pathlib import Path

import tidl


def mapped_inodes(pid: int | str = "self") -> set[int]:
    """Inodes of the memfds that a process has mapped."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {int(line.split()[4]) for line in lines if "/memfd:tidl" in line}


def inodes(client: tidl.Client, name: str) -> list[int]:
    return [segment.inode for segment in client.inspect(name).segments]


def charged(client: tidl.Client) -> int:
    return sum(entry.segment_bytes for entry in client.list("**"))
