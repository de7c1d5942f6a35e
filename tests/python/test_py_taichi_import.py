# SPDX-License-Identifier: Apache-2.0
"""`tidl.taichi.from_dlpack` and `strided`: with torch imported, importable, and missing."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator

import pytest
import taichi_families
import taichi_imports
from python_peer import Peer, PeerError

import tidl

pytestmark = pytest.mark.frameworks

WITHOUT_TORCH = "import sys; sys.modules['torch'] = None"
WITH_TORCH = "try:\n    import torch\nexcept ImportError:\n    pass"
CASES = taichi_families.cases_of(taichi_imports)

# What Taichi would do with other objects than NumPy's depends on torch.
FRAMEWORK_CASES = ["case_numpy", "case_paddle", "case_paddle_with_strides", "case_gaps_by_strides"]


@pytest.fixture(scope="module", params=taichi_families.FAMILIES)
def worker(request: pytest.FixtureRequest, session_client: tidl.Client) -> Iterator[Peer]:
    with taichi_families.worker(request.param, "taichi_imports") as peer:
        yield peer


@pytest.mark.parametrize("case", CASES)
def test_import(worker: Peer, case: str) -> None:
    taichi_families.run(worker, f"taichi_imports.{case}(ti)")


@pytest.fixture(scope="module", params=taichi_families.FAMILIES)
def worker_without_torch(
    request: pytest.FixtureRequest, session_client: tidl.Client
) -> Iterator[Peer]:
    with taichi_families.worker(request.param, "taichi_imports", WITHOUT_TORCH) as peer:
        yield peer


@pytest.mark.parametrize("case", FRAMEWORK_CASES)
def test_import_without_torch(worker_without_torch: Peer, case: str) -> None:
    taichi_families.run(worker_without_torch, f"taichi_imports.{case}(ti)")


@pytest.fixture(scope="module", params=taichi_families.FAMILIES)
def worker_with_torch(
    request: pytest.FixtureRequest, session_client: tidl.Client
) -> Iterator[Peer]:
    with taichi_families.worker(request.param, "taichi_imports", WITH_TORCH) as peer:
        yield peer


@pytest.mark.parametrize("case", [*FRAMEWORK_CASES, "case_torch", "case_strides_of_torch"])
def test_import_after_torch(worker_with_torch: Peer, case: str) -> None:
    taichi_families.run(worker_with_torch, f"taichi_imports.{case}(ti)")


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="setuptools comes after pip here")
@pytest.mark.skipif(not importlib.util.find_spec("paddle"), reason="paddle is not installed")
@pytest.mark.parametrize("family", [name for name in taichi_families.FAMILIES if name != "taichi"])
def test_paddle_cannot_come_after_a_fork(family: str, session_client: tidl.Client) -> None:
    with taichi_families.worker(family, "taichi_imports", before="") as peer:
        peer.do("x = tidl.connect().empty((3,))")
        with pytest.raises(PeerError, match=f"import paddle before .*{family}") as caught:
            peer.do("x.to_paddle()")
        assert caught.value.kind == "MissingFrameworkError"
