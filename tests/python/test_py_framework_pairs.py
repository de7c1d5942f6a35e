# SPDX-License-Identifier: Apache-2.0
"""Every framework to every other one: the same memory, both ways."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Iterator

import pytest
from python_peer import Peer

import tidl

pytestmark = pytest.mark.frameworks

# How each makes its tensor of x, writes element [1, 2], and reads it.
FRAMEWORKS = {
    "numpy": ("x.to_numpy()", "t[1, 2] = {}", "float(t[1, 2])"),
    "torch": ("x.to_torch()", "t[1, 2] = {}", "t[1, 2].item()"),
    "paddle": ("x.to_paddle()", "t[1, 2] = {}", "float(t[1, 2])"),
    "taichi": ("x.to_taichi()", "t[1, 2] = {}", "float(t[1, 2])"),
}


@pytest.fixture(scope="module")
def peers(session_client: tidl.Client) -> Iterator[dict[str, Peer]]:
    """Two of each kind, started once."""
    started: dict[str, Peer] = {}
    try:
        for framework in FRAMEWORKS:
            if importlib.util.find_spec(framework):
                for side in "ab":
                    peer = Peer(f"import {framework}\nclient = tidl.connect()")
                    started[f"{framework}-{side}"] = peer
        yield started
    finally:
        for peer in started.values():
            peer.__exit__(None, None, None)


@pytest.mark.parametrize(("producer", "consumer"), list(itertools.product(FRAMEWORKS, repeat=2)))
def test_pair(peers: dict[str, Peer], name: str, producer: str, consumer: str) -> None:
    if f"{producer}-a" not in peers or f"{consumer}-b" not in peers:
        pytest.skip("not installed")
    giver, taker = peers[f"{producer}-a"], peers[f"{consumer}-b"]
    make, write, read = FRAMEWORKS[producer]
    giver.do(f"x = client.empty((3, 4)); t = {make}\np = client.publish({name!r}, t)")
    assert giver.ask("p.copied") is False
    make, take_write, take_read = FRAMEWORKS[consumer]
    taker.do(f"x = client.get({name!r}, access='write', timeout=30); t = {make}")
    giver.do(write.format(5))
    assert taker.ask(take_read) == 5
    taker.do(take_write.format(6))
    assert giver.ask(read) == 6
    for peer in (giver, taker):
        peer.do("del t, x")
