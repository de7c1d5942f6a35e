# SPDX-License-Identifier: Apache-2.0
"""Huge pages, where root may set the machine's policy for the length of a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from python_peer import Peer

import tidl

FOLDER = Path("/sys/kernel/mm/transparent_hugepage")
HUGE = 2 << 20


@contextmanager
def policy(wanted: str) -> Iterator[None]:
    """The kernel's policy for shared memory; processes ask for it once, so start them inside."""
    file = FOLDER / "shmem_enabled"
    try:
        before = file.read_text().split("[")[1].split("]")[0]
        if int((FOLDER / "hpage_pmd_size").read_text()) != HUGE:
            pytest.skip("huge pages have another size here")
        file.write_text(wanted)
    except (OSError, IndexError):
        pytest.skip("the policy cannot be set here")
    try:
        yield
    finally:
        file.write_text(before)


def huge_bytes(client: tidl.Client, name: str) -> int:
    return client.inspect(name).segments[0].huge_bytes


@pytest.mark.parametrize("wanted", ["advise", "always", "within_size"])
def test_huge_pages(
    client: tidl.Client, start_peer: Callable[..., Peer], name: str, wanted: str
) -> None:
    with policy(wanted):
        peer = start_peer("import numpy as np\nclient = tidl.connect()")
        peer.do(
            f"x = client.empty(({HUGE + 4096},), dtype='u1')\nx.to_numpy()[:] = 1\n"
            f"client.publish('{name}/x', x)"
        )
        # Where memory is too much in pieces there are none; then there is nothing to tell, either.
        assert huge_bytes(client, f"{name}/x") in (0, HUGE)
        assert client.get(f"{name}/x").to_numpy().sum() == HUGE + 4096
        peer.do(f"client.publish('{name}/x', x.to_numpy()[1:], replace=True)")
        # Sealed in place, and copied into again and again.
        peer.do(f"y = client.zeros(({HUGE},), dtype='u1')")
        peer.do(f"client.publish('{name}/y', y, access='immutable')")
        assert huge_bytes(client, f"{name}/y") in (0, HUGE)
        assert client.get(f"{name}/y").to_numpy().sum() == 0
        peer.do(
            f"for i in range(4): client.publish('{name}/z', np.full({HUGE}, i, 'u1'), replace=True)"
        )
        assert huge_bytes(client, f"{name}/z") in (0, HUGE)
        assert set(client.get(f"{name}/z").to_numpy().tolist()) == {3}
        # Less than one huge page is not worth the question.
        peer.do(f"client.publish('{name}/s', client.zeros((4096,)))")
        assert huge_bytes(client, f"{name}/s") == 0


def test_a_machine_with_room_has_them(
    client: tidl.Client, start_peer: Callable[..., Peer], name: str
) -> None:
    """Of many at least one is huge, unless there is not a single free huge page."""
    with policy("advise"):
        peer = start_peer("client = tidl.connect()")
        peer.do(f"kept = [client.zeros(({HUGE},), dtype='u1') for _ in range(8)]")
        peer.do(f"for i, x in enumerate(kept): client.publish(f'{name}/{{i}}', x)")
        if not sum(huge_bytes(client, f"{name}/{i}") for i in range(8)):
            pytest.skip("there are no huge pages free")


def test_without_a_policy_for_it(
    client: tidl.Client, start_peer: Callable[..., Peer], name: str
) -> None:
    with policy("never"):
        peer = start_peer("client = tidl.connect()")
        peer.do(f"x = client.zeros(({HUGE},), dtype='u1')\nclient.publish({name!r}, x)")
        assert huge_bytes(client, name) == 0
