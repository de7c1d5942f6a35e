# SPDX-License-Identifier: Apache-2.0
"""Brokers, clients, names and peers for the tests of the Python package.

One broker serves the session, started by the package's own autostart in a runtime folder of its
own. Tests that end brokers take `own_runtime`. Names are unique to each test and removed after it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from python_brokers import end_brokers
from python_peer import Peer

import tidl

# Under a sanitizer that replaces malloc only NumPy runs.
NUMPY_ONLY = os.environ.get("TIDL_TEST_FRAMEWORKS") == "numpy"

collect_ignore_glob = (
    ["test_py_framework_*.py", "test_py_taichi_*.py", "matrix/*"] if NUMPY_ONLY else []
)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "frameworks: needs torch, Paddle or Taichi")
    config.addinivalue_line("markers", "dlpack_rule(*rules): proves rules of docs/dlpack.md")


def _runtime_folder() -> Path:
    # Short, because a socket's path has 108 bytes.
    return Path(tempfile.mkdtemp(prefix="tidl-", dir="/tmp"))


def _end_runtime(folder: Path) -> None:
    end_brokers(folder)
    shutil.rmtree(folder)


@pytest.fixture(scope="session", autouse=True)
def runtime() -> Iterator[Path]:
    """The runtime folder of the session's broker."""
    folder = _runtime_folder()
    kept = {name: os.environ.pop(name) for name in ("TIDL_SOCKET",) if name in os.environ}
    before = os.environ.get("XDG_RUNTIME_DIR")
    os.environ["XDG_RUNTIME_DIR"] = str(folder)
    yield folder
    _end_runtime(folder)
    os.environ.update(kept)
    if before is None:
        del os.environ["XDG_RUNTIME_DIR"]
    else:
        os.environ["XDG_RUNTIME_DIR"] = before


@pytest.fixture
def own_runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A runtime folder, hence a broker, that nobody but this test uses."""
    folder = _runtime_folder()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    yield folder
    _end_runtime(folder)


@pytest.fixture(scope="session")
def session_client(runtime: Path) -> Iterator[tidl.Client]:
    """Keeps the session's broker busy, so that it does not go between two tests."""
    with tidl.connect() as client:
        yield client


@pytest.fixture
def client(session_client: tidl.Client) -> Iterator[tidl.Client]:
    with tidl.connect() as client:
        yield client


@pytest.fixture
def name(request: pytest.FixtureRequest, session_client: tidl.Client) -> Iterator[str]:
    """A name of this test's own; all names that begin with it are removed afterwards."""
    name = f"{request.node.name.partition('[')[0]}/{os.urandom(4).hex()}"
    yield name
    for entry in session_client.list("**"):
        if entry.name.startswith(name):
            session_client.remove(entry.name)


@pytest.fixture
def start_peer(session_client: tidl.Client) -> Iterator[Callable[..., Peer]]:
    """Starts other Python processes; they are ended with the test."""
    with ExitStack() as peers:
        yield lambda *arguments, **options: peers.enter_context(Peer(*arguments, **options))


@pytest.fixture
def peer(start_peer: Callable[..., Peer]) -> Peer:
    """Another process with NumPy and a client of its own."""
    return start_peer("import numpy as np\nclient = tidl.connect()")
