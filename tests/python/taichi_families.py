# SPDX-License-Identifier: Apache-2.0
"""Workers for Taichi and for those of its forks that are installed: `python_peer` processes.

What they run are the `case_` functions of modules beside this one, which take the package as `ti`
and fail by assertion. A crash ends a worker, not the tests.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from types import ModuleType

import pytest
from python_peer import Peer, PeerError

FAMILIES = [name for name in ("taichi", "quadrants", "gstaichi") if importlib.util.find_spec(name)]

START = """
import importlib
{first}
{before}
ti = importlib.import_module({family!r})
import {cases}
"""

# The forks import pip; before Python 3.12 setuptools, which Paddle imports, cannot come after it.
BEFORE = "import contextlib\nwith contextlib.suppress(ImportError):\n    import setuptools"

ENVIRONMENT: Mapping[str, str] = {
    f"ENABLE_{family.upper()}_HEADER_PRINT": "False" for family in ("taichi", "gstaichi")
}


def worker(family: str, cases: str, first: str = "", before: str = BEFORE) -> Peer:
    """A process with the package as `ti` and a module of cases; `first` is run before both."""
    setup = START.format(family=family, cases=cases, first=first, before=before)
    return Peer(setup, environment=ENVIRONMENT)


def cases_of(module: ModuleType) -> list[str]:
    """The names of a module's cases, in its order."""
    return [name for name in vars(module) if name.startswith("case_")]


def run(peer: Peer, call: str) -> None:
    """Runs a case in a worker. What it skips is skipped."""
    try:
        peer.do(call)
    except PeerError as error:
        if error.kind == "Skipped":
            pytest.skip(str(error))
        raise
