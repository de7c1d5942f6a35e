# SPDX-License-Identifier: Apache-2.0
"""Every layout of Taichi's ndarrays and fields as DLPack, over the same memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import taichi_families
import taichi_layouts
from python_peer import Peer

import tidl

pytestmark = pytest.mark.frameworks


@pytest.fixture(scope="module", params=taichi_families.FAMILIES)
def worker(request: pytest.FixtureRequest, session_client: tidl.Client) -> Iterator[Peer]:
    with taichi_families.worker(request.param, "taichi_layouts") as peer:
        yield peer


@pytest.mark.parametrize("name", taichi_layouts.LAYOUTS)
def test_layout(worker: Peer, name: str) -> None:
    taichi_families.run(worker, f"taichi_layouts.check(ti, {name!r})")


@pytest.mark.parametrize("name", taichi_layouts.REFUSED)
def test_layout_without_strides_is_refused(worker: Peer, name: str) -> None:
    taichi_families.run(worker, f"taichi_layouts.check_refused(ti, {name!r})")


def test_neighbours_in_one_tree_are_not_touched(worker: Peer) -> None:
    taichi_families.run(worker, "taichi_layouts.check_neighbours(ti)")
