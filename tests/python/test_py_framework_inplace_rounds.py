# SPDX-License-Identifier: Apache-2.0
"""Frameworks' own memory shared where it lies, again and again: what is left behind is counted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from inplace_owners import FRAMEWORKS, MIB, Framework, Left, Memory, memory_kib, start_owner
from python_brokers import broker_pids, eventually
from python_peer import Peer

import tidl

pytestmark = pytest.mark.frameworks

ROUNDS = 1000


@dataclass(frozen=True)
class Owner:
    """A process with a framework, for all tests: to import one takes longer than most of them."""

    peer: Peer
    framework: str
    how: Framework

    def begin(self, name: str, side: int) -> Peer:
        self.peer.do(
            f"SIDE = {side}\nmake = lambda: make_shareable(lambda: {self.how.make}, {name!r})"
        )
        return self.peer


@pytest.fixture(scope="module", params=FRAMEWORKS)
def owned(request: pytest.FixtureRequest, session_client: tidl.Client) -> Iterator[Owner]:
    with ExitStack() as peers:
        peer = start_owner(
            lambda *arguments, **options: peers.enter_context(Peer(*arguments, **options)),
            request.param,
            0,
        )
        yield Owner(peer, request.param, FRAMEWORKS[request.param])


def test_rounds_leave_nothing(client: tidl.Client, runtime: Path, owned: Owner, name: str) -> None:
    """Written from both sides in each round, let go by either side first."""
    how, side = owned.how, 256
    owner = owned.begin(name, side)
    owner.do("t = make()")
    pids = [os.getpid(), owner.pid, *broker_pids(runtime)]
    expected = np.ones((side, side), np.float32)

    def one_round(number: int) -> None:
        owner.do(f"share({name!r}, t)\n{how.add}")
        mine = client.get(name, access="write").to_numpy()
        place = divmod(number * 257 % expected.size, side)
        mine[place] += 3
        if how.add:
            np.add(expected, 1, out=expected)
        expected[place] += 3
        if number % 2:
            owner.do(f"client.unshare({name!r})")
            mine[place] = -1  # too late for the owner
            del mine
        else:
            del mine
            owner.do(f"client.unshare({name!r})")

    def settled() -> Left:
        client.dispatch()
        assert owner.ask(f"[p.name for p in client.list({name!r})]") == []
        return Left.now(pids)

    for number in range(ROUNDS // 4):
        one_round(number)
    before = settled()
    for number in range(ROUNDS // 4, ROUNDS):
        one_round(number)
    # The broker closes what nobody holds by itself, a moment later.
    assert eventually(lambda: settled().descriptors == before.descriptors), (before, settled())
    after = settled()
    assert abs(after.maps - before.maps) < 20
    for grown, had in zip(after.rss_kib, before.rss_kib, strict=True):
        assert grown - had < 8 * 1024, (before, after)
    assert owner.ask(f"np.asarray({how.read}).tobytes()") == expected.tobytes()
    owner.do("del t")


# ---- memory: 64 MiB as one tensor, or as the four of a bundle ----


def test_there_is_no_second_copy(
    client: tidl.Client, runtime: Path, owned: Owner, name: str
) -> None:
    how = owned.how
    owner = owned.begin(name, 4096)
    owner.do(f"t = make()\nfloat(({how.read}).sum())")
    memory = Memory(owner, runtime)
    owner.do(f"share({name!r}, t)")
    mine = client.get(name, access="write").to_numpy()
    assert mine.sum(dtype=np.float64) == 4096 * 4096
    # Pages come into the owner's count when it touches them.
    owner.do(f"float(({how.read}).sum())")
    assert memory.is_more_by(-64, 64, 64), memory
    # The owner calculates with what was written here.
    mine[1, 2] = 7
    if owned.framework == "paddle":
        owner.do("w = t\nw.stop_gradient = False")
    assert owner.ask(f"float(({how.slope})[1, 2])") == 7
    if owned.framework == "paddle":
        owner.do("del w")
    # What is still here is a copy by then, and goes with whoever has it.
    owner.do("gc.collect()")
    memory = Memory(owner, runtime)
    owner.do(f"client.unshare({name!r})")
    assert memory.is_more_by(64, -64, 0), memory
    del mine
    assert eventually(lambda: client.dispatch() or memory.is_more_by(64, -64, -64)), memory
    owner.do("del t")


def test_a_bundle_has_no_second_copy(
    client: tidl.Client, runtime: Path, owned: Owner, name: str
) -> None:
    """Each of its tensors moves into the one segment; freed first by either side."""
    how = owned.how
    owner = owned.begin(name, 2048)
    owner.do(
        "state = {key: make() for key in 'abcd'}\n"
        f"read = lambda: sum(float(({how.read}).sum()) for t in state.values())\nread()"
    )
    memory = Memory(owner, runtime)
    for is_owner_first in (False, True):
        owner.do(f"p = share({name!r}, state)")
        assert owner.ask(f"(p.path, p.moved_bytes // {MIB})") == ("in-place", 64)
        assert len(client.inspect(name).segments) == 1
        mine = [t.to_numpy() for t in client.get(name, access="write").flat.values()]
        for array in mine:
            array += 1
        owner.do("total = read()")
        assert memory.is_more_by(-64, 64, 64), memory
        if is_owner_first:
            owner.do(f"del state; gc.collect()\nclient.unshare({name!r})\ngc.collect()")
            assert eventually(lambda: memory.is_more_by(-64, 0, 64)), memory
            assert [array[3, 4] for array in mine] == [3] * 4
            del mine, array
        else:
            del mine, array
            owner.do(f"client.unshare({name!r})\ntotal = read()")
            assert owner.ask("total") == 2 * 4 * 2048 * 2048
            assert eventually(lambda: client.dispatch() or memory.is_more_by(0, 0, 0)), memory
    assert eventually(lambda: client.dispatch() or memory.is_more_by(-64, 0, 0)), memory


def test_freed_first_by_either_side(client: tidl.Client, owned: Owner, name: str) -> None:
    """The owner's pages stay while somebody else has them, and go with its tensor then."""
    how = owned.how
    owner = owned.begin(name, 2048)

    def make() -> np.ndarray:
        owner.do(f"t = make()\nshare({name!r}, t)\nfloat(({how.read}).sum())")
        return client.get(name, access="write").to_numpy()

    def owned_kib() -> int:
        return memory_kib(owner.pid, "RssAnon") + memory_kib(owner.pid, "RssShmem")

    for way in ("remove", "unshare"):
        mine = make()
        had_kib = owned_kib()
        owner.do("del t; gc.collect()")
        mine[1, 2] = 5
        assert owned_kib() > had_kib - 8 * 1024, "others could write where nobody is"
        owner.do(f"client.{way}({name!r})")
        if way == "remove":
            assert owned_kib() > had_kib - 8 * 1024
            del mine
            client.dispatch()
        assert eventually(
            lambda had_kib=had_kib: (
                owner.do("client.dispatch(); gc.collect()") or owned_kib() < had_kib - 8 * 1024
            )
        )
    assert (mine[1, 2], mine.sum(dtype=np.float64)) == (5, 2048 * 2048 + 4)
    mine = make()
    mine[1, 2] = 6
    del mine
    owner.do(f"client.unshare({name!r})\np = share({name!r}, t)")
    assert owner.ask(f"(p.path, float(({how.read})[1, 2]))") == ("in-place", 6)
    assert client.get(name).to_numpy()[1, 2] == 6
    owner.do(f"client.unshare({name!r})\ndel t")
