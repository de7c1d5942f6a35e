# SPDX-License-Identifier: Apache-2.0
"""MXNet in another process, and in an environment of its own."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from python_brokers import is_let_go, memfd_inode
from python_mxnet import MXNET_PYTHON, mxnet_peer
from python_peer import Peer, PeerError

import tidl

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.skipif(not MXNET_PYTHON.exists(), reason=f"there is no {MXNET_PYTHON}"),
]


@pytest.fixture(scope="module")
def mx_peer(
    session_client: tidl.Client, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Peer]:
    setup = "import gc, mxnet as mx\nimport numpy as np\nclient = tidl.connect()"
    with mxnet_peer(setup, tmp_path_factory.mktemp("package")) as peer:
        yield peer


def test_exchange_without_a_copy(client: tidl.Client, mx_peer: Peer, name: str) -> None:
    mx_peer.do(
        f"x = client.empty((8, 4)); t = x.to_mxnet(); t[:] = 1\np = client.publish({name!r}, t)"
    )
    assert mx_peer.ask("(p.copied, p.path)") == (False, "allocated")
    mine = client.get(name, access="write").to_numpy()
    assert mine.sum() == 32
    mine[2, 3] = -5
    assert mx_peer.ask("float(t[2, 3].asscalar())") == -5
    mx_peer.do("t[:] = t * 2; t.wait_to_read()")
    assert mine[2, 3] == -10
    inode = memfd_inode(mine.ctypes.data)
    assert memfd_inode(mx_peer.ask("x._address"), mx_peer.pid) == inode


def test_publishing_waits_for_what_is_computed(
    client: tidl.Client, mx_peer: Peer, name: str
) -> None:
    mx_peer.do(
        "a = mx.nd.ones((200, 200))\nfor _ in range(20): a = mx.nd.dot(a, a) / 200\n"
        f"client.publish({name!r}, a)"
    )
    assert client.get(name).to_numpy().min() == 1


def test_slices_are_not_copied(client: tidl.Client, mx_peer: Peer, name: str) -> None:
    mx_peer.do(f"x = client.empty((8, 4)); t = x.to_mxnet()\np = client.publish({name!r}, t[2:5])")
    assert mx_peer.ask("p.copied") is False
    assert client.inspect(name).tensors[0].byte_offset == 32


DTYPES = ["bool", "uint8", "int8", "int32", "int64", "float16", "bfloat16", "float32", "float64"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(client: tidl.Client, mx_peer: Peer, name: str, dtype: str) -> None:
    mx_peer.do(
        f"x = client.empty((3,), dtype={dtype!r})\nt = x.to_mxnet()\n"
        f"p = client.publish({name!r}, t)"
    )
    assert mx_peer.ask("p.copied") is False
    assert client.get(name).dtype == dtype
    mx_peer.do(f"client.publish({name + '/own'!r}, t.copy())")
    assert client.get(f"{name}/own").dtype == dtype


@pytest.mark.parametrize("shape", [(2, 1, 3), (1, 4), (4, 1), (1, 1, 1)])
def test_extents_of_one_whatever_their_strides(
    client: tidl.Client, mx_peer: Peer, name: str, shape: tuple[int, ...]
) -> None:
    client.publish(name, np.ones(shape, "float32"))
    mx_peer.do(f"t = client.get({name!r}, access='write').to_mxnet()")
    assert mx_peer.ask("t.shape") == shape


@pytest.mark.parametrize(
    ("make", "code", "text"),
    [
        ("client.empty((2,), dtype='uint16')", "DTYPE", "uint16"),
        ("client.empty((2,), dtype='complex64')", "DTYPE", "complex64"),
        ("client.empty(())", "LAYOUT", "set_np_shape"),
        ("client.empty((0, 3))", "LAYOUT", "set_np_shape"),
    ],
)
def test_what_mxnet_does_not_have(mx_peer: Peer, make: str, code: str, text: str) -> None:
    with pytest.raises(PeerError, match=text) as caught:
        mx_peer.do(f"{make}.to_mxnet()")
    assert caught.value.code == code


def test_single_elements_under_np_shape(client: tidl.Client, mx_peer: Peer, name: str) -> None:
    mx_peer.do(
        "with mx.util.np_shape(True):\n"
        " x = client.full((), 7); t = x.to_mxnet()\n"
        f" client.publish({name!r}, t)\n"
        " assert t.shape == () and t.asscalar() == 7"
    )
    assert client.get(name).shape == ()


@pytest.mark.parametrize("view", ["a.T", "a[:, ::2]", "a[::-1]"])
def test_strides_are_refused(client: tidl.Client, mx_peer: Peer, name: str, view: str) -> None:
    a = client.empty((4, 4)).to_numpy()
    client.publish(name, eval(view, {"a": a}))
    with pytest.raises(PeerError, match="copy it as") as caught:
        mx_peer.do(f"client.get({name!r}, access='write').to_mxnet()")
    assert caught.value.code == "LAYOUT"


def test_read_only_memory_is_refused(client: tidl.Client, mx_peer: Peer, name: str) -> None:
    client.publish(name, np.arange(3))
    with pytest.raises(PeerError, match="readonly_ok=True") as caught:
        mx_peer.do(f"client.get({name!r}).to_mxnet()")
    assert caught.value.code == "READ_ONLY"
    values = mx_peer.ask(f"client.get({name!r}).to_mxnet(readonly_ok=True).asnumpy().tolist()")
    assert values == [0, 1, 2]


def test_sparse_arrays_are_refused(client: tidl.Client, mx_peer: Peer, name: str) -> None:
    with pytest.raises(PeerError, match="tostype") as caught:
        mx_peer.do(f"client.publish({name!r}, mx.nd.ones((2, 2)).tostype('csr'))")
    assert caught.value.code == "INVALID_ARGUMENT"
    assert client.list(name) == []


@pytest.mark.dlpack_rule("P13")
def test_unused_capsules_end_in_order(client: tidl.Client, mx_peer: Peer, name: str) -> None:
    """MXNet's own destructor of capsules must find Python's functions as it declared them."""
    mx_peer.do("client.empty((2,), dtype='bool').to_mxnet()")
    mx_peer.do(
        "seen = []\nsys.unraisablehook = seen.append\n"
        "mx.nd.ones((2,)).to_dlpack_for_read(); gc.collect()"
    )
    assert mx_peer.ask("len(seen)") == 0


def test_array_keeps_the_lease(client: tidl.Client, mx_peer: Peer, name: str) -> None:
    client.publish(name, np.arange(3))
    mx_peer.do(f"t = client.get({name!r}, access='write').to_mxnet()")
    assert [holder.pid for holder in client.inspect(name).holders] == [mx_peer.pid]
    mx_peer.do("del t; gc.collect(); mx.nd.waitall(); client.dispatch()")
    assert is_let_go(client, name)
