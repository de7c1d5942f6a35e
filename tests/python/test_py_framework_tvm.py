# SPDX-License-Identifier: Apache-2.0
"""TVM in another process: its tensors alone, and with TVM itself."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from python_brokers import is_let_go, memfd_inode
from python_peer import Peer, PeerError

import tidl

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.skipif(not importlib.util.find_spec("tvm_ffi"), reason="no apache-tvm-ffi"),
]


@pytest.fixture(scope="module")
def tvm_peer(session_client: tidl.Client) -> Iterator[Peer]:
    with Peer("import gc, tvm_ffi\nimport numpy as np\nclient = tidl.connect()") as peer:
        yield peer


def test_exchange_without_a_copy(client: tidl.Client, tvm_peer: Peer, name: str) -> None:
    tvm_peer.do(
        "x = client.empty((8, 4)); t = x.to_tvm(); np.from_dlpack(t).fill(1)\n"
        f"p = client.publish({name!r}, t)"
    )
    assert tvm_peer.ask("(p.copied, p.path)") == (False, "allocated")
    mine = client.get(name, access="write").to_numpy()
    assert mine.sum() == 32
    inode = memfd_inode(mine.ctypes.data)
    assert memfd_inode(tvm_peer.ask("t.data_ptr()"), tvm_peer.pid) == inode


@pytest.mark.parametrize("view", ["a[1:]", "a.T", "a[:, ::2]", "a[::-1]"])
def test_views(client: tidl.Client, tvm_peer: Peer, name: str, view: str) -> None:
    a = client.empty((4, 4)).to_numpy()
    a[...] = np.arange(16).reshape(4, 4)
    wanted = eval(view, {"a": a})
    client.publish(name, wanted)
    tvm_peer.do(f"t = client.get({name!r}, access='write').to_tvm()")
    assert tvm_peer.ask("np.from_dlpack(t).tolist()") == wanted.tolist()


def test_what_tvm_does_not_have(client: tidl.Client, tvm_peer: Peer, name: str) -> None:
    with pytest.raises(PeerError, match="complex64") as caught:
        tvm_peer.do("client.empty((2,), dtype='complex64').to_tvm()")
    assert caught.value.code == "DTYPE"
    client.publish(name, np.arange(3))
    with pytest.raises(PeerError, match="readonly_ok=True") as caught:
        tvm_peer.do(f"client.get({name!r}).to_tvm()")
    assert caught.value.code == "READ_ONLY"
    tvm_peer.do(f"t = client.get({name!r}).to_tvm(readonly_ok=True)")


def test_tensor_keeps_the_lease(client: tidl.Client, tvm_peer: Peer, name: str) -> None:
    client.publish(name, np.arange(3))
    tvm_peer.do(f"t = client.get({name!r}, access='write').to_tvm()")
    assert [holder.pid for holder in client.inspect(name).holders] == [tvm_peer.pid]
    tvm_peer.do("del t; gc.collect(); client.dispatch()")
    assert is_let_go(client, name)


@pytest.mark.skipif(not importlib.util.find_spec("tvm"), reason="no apache-tvm")
def test_rules_of_tvm_itself(
    client: tidl.Client, start_peer: Callable[..., Peer], name: str
) -> None:
    peer = start_peer("import tvm\nimport numpy as np\nclient = tidl.connect()")
    peer.do("x = client.empty((4, 4)); t = x.to_tvm(); t.copyfrom(np.ones((4, 4), 'float32'))")
    assert peer.ask("type(t) is tvm.runtime.Tensor and float(x.to_numpy().sum())") == 16
    a = client.empty((4, 4)).to_numpy()
    for view in (a[1:], a.T):
        client.publish(name, view, replace=True)
        with pytest.raises(PeerError, match="copy it as") as caught:
            peer.do(f"client.get({name!r}, access='write').to_tvm()")
        assert caught.value.code == "LAYOUT"
