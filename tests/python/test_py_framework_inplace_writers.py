# SPDX-License-Identifier: Apache-2.0
"""Threads whose kernels write with no GIL while their memory is moved there and back."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from inplace_owners import start_owner
from python_peer import Peer

pytestmark = pytest.mark.frameworks

# torch counts up one half of a tensor, a ufunc of NumPy the other one.
WRITERS = """
import threading
def count_writes(rounds, name, **terms):
    make = lambda: torch.zeros(2, SIDE, SIDE, dtype=torch.int32)
    t = make_shareable(make, name, **terms)
    upper, lower = t[0], t[1].numpy()
    counts, ends, start = {}, threading.Event(), threading.Barrier(3)
    def write(do):
        count = 0
        start.wait()
        while not ends.is_set():
            do()
            count += 1
        counts[do] = count
    writers = {lambda: upper.add_(1): upper.numpy(), lambda: np.add(lower, 1, out=lower): lower}
    threads = [threading.Thread(target=write, args=[do]) for do in writers]
    for thread in threads:
        thread.start()
    start.wait()
    try:
        for number in range(1, rounds + 1):
            assert share(name, t, **terms).path == "in-place"
            client.unshare(name)
            # What has missed writes stays behind; one that is under way is no more than one.
            if terms and any(half.max() - half.min() > 1 for half in writers.values()):
                break
    finally:
        ends.set()
        for thread in threads:
            thread.join()
    lost = [int((half != counts[do]).sum()) for do, half in writers.items()]
    return sum(lost), number, min(counts.values())
"""


def test_no_write_of_a_kernel_is_lost(start_peer: Callable[..., Peer], name: str) -> None:
    owner = start_owner(start_peer, "torch", 128)
    owner.do(WRITERS)
    lost, rounds, writes = owner.ask(f"count_writes(1000, {name!r})")
    assert (lost, rounds) == (0, 1000)
    assert writes > 0


def test_without_the_guard_writes_are_lost(start_peer: Callable[..., Peer], name: str) -> None:
    """The same, with what its caller is wrong to vouch for where nobody stops writers."""
    owner = start_owner(start_peer, "torch", 128, {"TIDL_WITHOUT": "userfaultfd"})
    owner.do(WRITERS)
    lost, _, _ = owner.ask(f"count_writes(5000, {name!r}, nobody_writes=True)")
    assert lost > 0
