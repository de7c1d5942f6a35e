# SPDX-License-Identifier: Apache-2.0
"""The end of what was shared in place, where something is in its way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from conftest import NUMPY_ONLY
from python_brokers import end_brokers, memfd_inode
from python_peer import Peer
from test_py_inplace import ALONE, SETUP

import tidl

pytestmark = pytest.mark.skipif(NUMPY_ONLY, reason="a sanitizer has replaced malloc")


def test_unshare_after_the_brokers_death(
    own_runtime: Path, start_peer: Callable[..., Peer]
) -> None:
    """The memory is private and its owner has it, whatever became of the name."""
    owner = start_peer(SETUP, environment=ALONE)
    owner.do("x = np.arange(1_000_000); count = sys.getrefcount(x)")
    owner.do("client.publish('x', x, copy=False)")
    with tidl.connect() as client:
        theirs = client.get("x", access="write").to_numpy()
        end_brokers(own_runtime)
        owner.do(
            "try:\n"
            "    try:\n"
            "        x[3] = 33\n"
            "    finally:\n"
            "        client.unshare('x')\n"
            "except tidl.BrokerGoneError as error:\n"
            "    text = str(error)\n"
        )
        assert "private again" in owner.ask("text")
        theirs[5] = 55
        assert owner.ask("[int(x[3]), int(x[5])]") == [33, 5]
        assert memfd_inode(owner.ask("x.ctypes.data"), owner.pid) == 0
        assert owner.ask("sys.getrefcount(x) == count")
        owner.do("client.close()")
        assert np.array_equal(theirs[6:], np.arange(6, 1_000_000))
