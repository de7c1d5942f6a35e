# SPDX-License-Identifier: Apache-2.0
"""`tidl.taichi.to_dlpack`: what an export is, how long it lives, what is refused, publishing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import taichi_families
import taichi_lifetimes
from python_peer import Peer

import tidl

pytestmark = pytest.mark.frameworks

PUBLISHING = ("case_publishing_copies_once", "case_shared_memory_is_recognised")


@pytest.fixture(scope="module", params=taichi_families.FAMILIES)
def worker(request: pytest.FixtureRequest, session_client: tidl.Client) -> Iterator[Peer]:
    with taichi_families.worker(request.param, "taichi_lifetimes") as peer:
        yield peer


@pytest.mark.parametrize(
    "case", [name for name in taichi_families.cases_of(taichi_lifetimes) if name not in PUBLISHING]
)
def test_export(worker: Peer, case: str) -> None:
    taichi_families.run(worker, f"taichi_lifetimes.{case}(ti)")


@pytest.mark.parametrize("case", PUBLISHING)
def test_publishing(worker: Peer, name: str, case: str) -> None:
    taichi_families.run(worker, f"taichi_lifetimes.{case}(ti, {name!r})")


@pytest.mark.parametrize("family", taichi_families.FAMILIES)
def test_exports_at_the_end_of_the_interpreter(family: str, session_client: tidl.Client) -> None:
    with taichi_families.worker(family, "taichi_lifetimes") as peer:
        peer.do(
            "import numpy as np\n"
            "taichi_lifetimes.start(ti)\n"
            "field, ndarray = ti.field(ti.f32, (4,)), ti.ndarray(ti.f32, (4,))\n"
            "exports = [tidl.taichi.to_dlpack(x) for x in (field, ndarray)]\n"
            "arrays = [np.from_dlpack(export) for export in exports]\n"
        )
        assert peer.end() == 0
