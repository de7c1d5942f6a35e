# SPDX-License-Identifier: Apache-2.0
"""The owner is killed while its memory moves, there or back: the broker's accounts are exact."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import NUMPY_ONLY
from inplace_owners import memfd_bytes
from python_brokers import broker_pids, descriptors, eventually, memfd_inode
from python_peer import Peer

pytestmark = pytest.mark.skipif(NUMPY_ONLY, reason="a sanitizer has replaced malloc")

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
SIZE_BYTES = 64 << 20
# No second one of that size fits.
QUOTA_BYTES = SIZE_BYTES + SIZE_BYTES // 2
SETUP = "import numpy as np\nclient = tidl.connect()"
OWNER = (
    SETUP
    + f"""
x = np.ones({SIZE_BYTES}, np.uint8)
def publish():
    client.publish('x', x, copy=False, retain='owner')
"""
)
ROOM = f"""
def room(size):
    while size > 0:
        try:
            client.empty((size,), dtype='uint8')
        except tidl.QuotaError:
            size -= {PAGE_BYTES}
        else:
            return size
"""


class Accounts:
    """What the broker of a runtime folder has, and what it would still give."""

    def __init__(self, runtime: Path, keeper: Peer) -> None:
        (broker,) = broker_pids(runtime)
        self.names = keeper.ask("[p.name for p in client.list('**')]")
        self.descriptors = descriptors(broker)
        self.memfd_bytes = memfd_bytes(broker)
        with Peer(SETUP + ROOM) as probe:
            self.room_bytes = probe.ask(f"room({QUOTA_BYTES})")


class Owner:
    """A process with an array, and how much of that is shared."""

    def __init__(self, start_peer: Callable[..., Peer]) -> None:
        self.peer = start_peer(OWNER)
        self._address = self.peer.ask("x.ctypes.data")

    def is_shared_at(self, fraction: float) -> bool:
        return memfd_inode(self._address + int(SIZE_BYTES * fraction), self.peer.pid) != 0

    def is_partly_shared(self) -> bool:
        return self.is_shared_at(0) and not self.is_shared_at(1 - PAGE_BYTES / SIZE_BYTES)

    def stop_when(self, is_time: Callable[[], bool]) -> None:
        assert eventually(is_time)
        os.kill(self.peer.pid, signal.SIGSTOP)

    def kill(self) -> None:
        os.kill(self.peer.pid, signal.SIGKILL)
        self.peer.process.wait()


def move(owner: Owner, fraction: float) -> None:
    owner.peer.start("publish()")
    owner.stop_when(lambda: owner.is_shared_at(fraction))


def move_back(owner: Owner, fraction: float) -> None:
    owner.peer.do("publish()")
    owner.peer.start("client.unshare('x')")
    owner.stop_when(lambda: not owner.is_shared_at(fraction))


# The way back goes from the end to the begin.
@pytest.mark.parametrize(
    ("act", "fraction"), [(move, 0), (move, 0.5), (move, 0.9), (move_back, 0.9), (move_back, 0.2)]
)
def test_the_owner_is_killed_while_it_moves(
    own_runtime: Path,
    start_peer: Callable[..., Peer],
    monkeypatch: pytest.MonkeyPatch,
    act: Callable[[Owner, float], None],
    fraction: float,
) -> None:
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.mmap_threshold=65536")
    monkeypatch.setenv("TIDLD_QUOTA_UID", str(QUOTA_BYTES))
    with Peer(SETUP) as keeper:
        before = Accounts(own_runtime, keeper)
        assert before.room_bytes >= SIZE_BYTES + SIZE_BYTES // 4
        # The kernel may let it go on until it is done, before it sees the signal.
        is_halfway = False
        while not is_halfway:
            owner = Owner(start_peer)
            act(owner, fraction)
            is_halfway = owner.is_partly_shared()
            owner.kill()
            assert eventually(lambda: vars(Accounts(own_runtime, keeper)) == vars(before))
