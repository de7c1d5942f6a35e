# SPDX-License-Identifier: Apache-2.0
"""The end of what was shared in place, where something is in its way."""

from __future__ import annotations

import ctypes
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


# Many descriptors, so that the segment's is not kept; then no addresses for a copy.
AT_ITS_LIMITS = """
import re, resource, warnings
from pathlib import Path

others = [os.dup(0) for _ in range(100)]
files = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (200, files[1]))
x = np.ones(1_000_000)
client.publish({name!r}, x, copy=False)
for other in others:
    os.close(other)

def at_the_limit(end):
    status = Path("/proc/self/status").read_text()
    used = int(re.search(r"VmSize:\\s*(\\d+)", status)[1]) * 1024
    before = resource.getrlimit(resource.RLIMIT_AS)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        resource.setrlimit(resource.RLIMIT_AS, (used, before[1]))
        try:
            end()
        finally:
            resource.setrlimit(resource.RLIMIT_AS, before)
    return [(warning.category.__name__, str(warning.message)) for warning in caught]
"""


@pytest.mark.parametrize("end", ["client.close", "lambda: globals().pop('client') and None"])
def test_the_end_of_the_client_tells_what_stays_shared(
    client: tidl.Client, start_peer: Callable[..., Peer], name: str, end: str
) -> None:
    owner = start_peer(SETUP, environment=ALONE)
    owner.do(AT_ITS_LIMITS.format(name=name))
    theirs = client.get(name, access="write")
    owner.do(f"told = at_the_limit({end})")
    [(kind, text)] = owner.ask("told")
    assert kind == "RuntimeWarning"
    assert name in text
    assert "8003584 bytes" in text
    first = theirs.to_numpy().ctypes.data & ~4095
    ctypes.memset(first, 0xA5, 4096)
    theirs.to_numpy()[-1] = 3
    assert owner.ask("float(x[-1])") == 3
    owner.do("del x")  # malloc's header was saved
    assert owner.ask("1") == 1
