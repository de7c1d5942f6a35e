# SPDX-License-Identifier: Apache-2.0
"""Processes whose frameworks own tensors that are shared where they lie, and what they have of
memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from python_brokers import broker_pids, descriptors
from python_peer import Peer

# One thread: OpenMP threads spin while they wait, longer than they work on few cores. Without
# oneDNN TensorFlow has no pool.
ALONE = {
    "GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=65536",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "OMP_NUM_THREADS": "1",
}
MIB = 1 << 20


@dataclass(frozen=True)
class Framework:
    """How a framework makes a square tensor of ones and does things to it where it lies."""

    make: str
    read: str  # all of it, as NumPy
    add: str = ""  # empty: nothing changes it in place
    slope: str = ""  # of half the sum of squares: the tensor itself
    imports: str = ""


FRAMEWORKS = {
    "numpy": Framework("np.ones((SIDE, SIDE), np.float32)", "t", add="t += 1", slope="t"),
    "torch": Framework(
        "torch.ones(SIDE, SIDE)",
        "t.numpy()",
        add="t.add_(1)",
        slope="slope(t.detach().requires_grad_()).numpy()",
    ),
    "paddle": Framework(
        "paddle.ones([SIDE, SIDE])",
        "t.numpy()",
        add="t.add_(paddle.ones([1]))",
        slope="paddle.grad((w * w).sum() / 2, w)[0].numpy()",
    ),
    "jax": Framework(
        "jnp.ones((SIDE, SIDE)).block_until_ready()",
        "np.asarray(t)",
        slope="np.asarray(jax.grad(lambda w: (w * w).sum() / 2)(t))",
        imports="import jax, jax.numpy as jnp",
    ),
    "tensorflow": Framework(
        "tf.ones((SIDE, SIDE))",
        "t.numpy()",
        slope="slope(t).numpy()",
        imports="import tensorflow as tf",
    ),
}

# Some of the first blocks still come from holes in the heap: they are kept, so that others do not.
OWNER = """
import gc
import numpy as np
client = tidl.connect()
holes = []
def share(name, t, **terms):
    return client.publish(name, t, copy=False, writable=True, **terms)
def make_shareable(make, name, **terms):
    for _ in range(200):
        t = make()
        try:
            share(name, t, **terms)
        except tidl.CopyNeededError as error:
            assert error.reason in ("heap", "small", "pool"), error
            holes.append(t)
        else:
            client.unshare(name)
            return t
    raise MemoryError("the heap has room for all of them")
"""
SLOPES = {
    "torch": """
def slope(w):
    return torch.autograd.grad((w * w).sum() / 2, w)[0]
""",
    "tensorflow": """
def slope(t):
    with tf.GradientTape() as tape:
        tape.watch(t)
        y = tf.reduce_sum(t * t) / 2
    return tape.gradient(y, t)
""",
}


def start_owner(
    start_peer: Callable[..., Peer],
    framework: str,
    side: int,
    environment: Mapping[str, str] | None = None,
) -> Peer:
    """A process with the framework, a client, and `share` and `make_shareable`."""
    pytest.importorskip(framework, exc_type=ImportError)
    imports = FRAMEWORKS[framework].imports or f"import {framework}"
    peer = start_peer(imports, environment={**ALONE, **(environment or {})})
    peer.do(OWNER + SLOPES.get(framework, "") + f"SIDE = {side}")
    return peer


def memory_kib(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    raise KeyError(field)


def memfd_bytes(pid: int) -> int:
    """What the memfds that a process has open take in memory, each of them once."""
    found = {}
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            if os.readlink(entry).startswith("/memfd:"):
                status = entry.stat()
                found[status.st_ino] = status.st_blocks * 512
        except OSError:
            continue
    return sum(found.values())


# Of what else a process allocates meanwhile.
SLACK_KIB = 8 * 1024


class Memory:
    """What an owner has of memory, and the broker of segments, against a moment before."""

    def __init__(self, owner: Peer, runtime: Path) -> None:
        self.pid = owner.pid
        (self.broker,) = broker_pids(runtime)
        self.before = self.now()

    def __repr__(self) -> str:
        return f"{self.before} -> {self.now()}"

    def now(self) -> tuple[int, int, int]:
        anon, shmem = (memory_kib(self.pid, field) for field in ("RssAnon", "RssShmem"))
        return anon, shmem, memfd_bytes(self.broker) // 1024

    def is_more_by(self, anon_mib: int, shmem_mib: int, segments_mib: int) -> bool:
        more = [now - before for now, before in zip(self.now(), self.before, strict=True)]
        expected = [mib * 1024 for mib in (anon_mib, shmem_mib, segments_mib)]
        # The segments are known exactly, but for the pages that malloc's blocks are rounded to.
        return (
            abs(more[0] - expected[0]) < SLACK_KIB
            and abs(more[1] - expected[1]) < SLACK_KIB
            and abs(more[2] - expected[2]) < 64
        )


@dataclass(frozen=True)
class Left:
    """What processes have at a moment."""

    maps: int
    descriptors: tuple[int, ...]
    rss_kib: tuple[int, ...]

    @staticmethod
    def now(pids: list[int]) -> Left:
        return Left(
            sum(Path(f"/proc/{pid}/maps").read_text().count("\n") for pid in pids),
            tuple(len(descriptors(pid)) for pid in pids),
            tuple(memory_kib(pid, "VmRSS") for pid in pids),
        )
