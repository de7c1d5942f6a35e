# SPDX-License-Identifier: Apache-2.0
"""Paddle in another process."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from python_brokers import is_let_go, memfd_inode
from python_peer import Peer, PeerError

import tidl

pytest.importorskip("paddle", exc_type=ImportError)
pytestmark = pytest.mark.frameworks


@pytest.fixture(scope="module")
def paddle_peer(session_client: tidl.Client) -> Iterator[Peer]:
    with Peer("import paddle, gc\nimport numpy as np\nclient = tidl.connect()") as peer:
        yield peer


def test_exchange_without_a_copy(client: tidl.Client, paddle_peer: Peer, name: str) -> None:
    paddle_peer.do(
        "x = client.empty((8, 4), dtype=paddle.float32)\nt = x.to_paddle(); t.fill_(1)\n"
        f"p = client.publish({name!r}, t)"
    )
    assert paddle_peer.ask("(p.copied, p.path)") == (False, "allocated")
    mine = client.get(name, access="write").to_numpy()
    assert mine.sum() == 32
    mine[2, 3] = -5
    assert paddle_peer.ask("float(t[2, 3])") == -5
    paddle_peer.do("t.scale_(2.0)")
    assert mine[2, 3] == -10
    inode = memfd_inode(mine.ctypes.data)
    assert inode == client.inspect(name).segments[0].inode
    assert memfd_inode(paddle_peer.ask("t.data_ptr()"), paddle_peer.pid) == inode


@pytest.mark.parametrize("view", ["t[1:]", "t[:, ::2]", "t.transpose([1, 0])", "t[2, 3]"])
def test_views(client: tidl.Client, paddle_peer: Peer, name: str, view: str) -> None:
    paddle_peer.do(
        "x = client.empty((8, 4), dtype='int32')\nt = x.to_paddle()\n"
        "x.to_numpy()[:] = np.arange(32).reshape(8, 4)\n"
        f"v = {view}\ninside = 0 <= v.data_ptr() - t.data_ptr() < 128\n"
        f"p = client.publish({name!r}, v)"
    )
    # Some of Paddle's slices are views and some copies: what is a view is not copied again.
    assert paddle_peer.ask("p.copied") is not paddle_peer.ask("inside")
    assert client.get(name).to_numpy().tolist() == paddle_peer.ask("v.tolist()")


def test_permuted_view_is_not_copied(client: tidl.Client, paddle_peer: Peer, name: str) -> None:
    paddle_peer.do(
        "whole = client.empty((2, 3, 4), dtype='float32').to_paddle()\n"
        "view = whole.transpose([2, 0, 1])\n"
        f"p = client.publish({name!r}, view)"
    )
    assert paddle_peer.ask("p.copied") is False
    y = client.get(name, access="write")
    assert (y.shape, y.strides) == ((4, 2, 3), (1, 12, 4))
    i, j, k = np.indices(y.shape)
    y.to_numpy()[...] = 100 * i + 10 * j + k
    assert paddle_peer.ask(
        "all(float(view[i, j, k]) == 100 * i + 10 * j + k for i, j, k in np.ndindex(4, 2, 3))"
    )


DTYPES = [
    "bool",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
    "complex128",
    "float8_e4m3fn",
    "float8_e5m2",
]


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(client: tidl.Client, paddle_peer: Peer, name: str, dtype: str) -> None:
    paddle_peer.do(
        f"t = client.empty((3,), dtype=paddle.{dtype}).to_paddle()\n"
        f"assert t.dtype == paddle.{dtype}, t.dtype\n"
        f"assert not client.publish({name!r}, t).copied"
    )
    assert client.get(name).dtype == dtype


@pytest.mark.parametrize(
    ("make", "code", "text"),
    [
        ("client.empty((2,), dtype='uint16')", "DTYPE", "bfloat16"),
        ("client.empty((2,), dtype='float8_e3m4')", "DTYPE", "float8_e3m4"),
        ("client.empty((1,) * 10)", "LAYOUT", "9 dimensions"),
    ],
)
def test_what_paddle_cannot_take(paddle_peer: Peer, make: str, code: str, text: str) -> None:
    with pytest.raises(PeerError, match=text) as caught:
        paddle_peer.do(f"{make}.to_paddle()")
    assert caught.value.code == code


def test_negative_strides_are_refused(client: tidl.Client, paddle_peer: Peer, name: str) -> None:
    client.publish(name, client.empty((4, 3)).to_numpy()[:, ::-1])
    with pytest.raises(PeerError, match="negative strides") as caught:
        paddle_peer.do(f"client.get({name!r}, access='write').to_paddle()")
    assert caught.value.code == "LAYOUT"


def test_read_only_memory_is_refused(client: tidl.Client, paddle_peer: Peer, name: str) -> None:
    client.publish(name, np.arange(3))
    with pytest.raises(PeerError, match="readonly_ok=True") as caught:
        paddle_peer.do(f"client.get({name!r}).to_paddle()")
    assert caught.value.code == "READ_ONLY"
    paddle_peer.do(f"t = client.get({name!r}).to_paddle(readonly_ok=True)")
    assert paddle_peer.ask("t.tolist()") == [0, 1, 2]


def test_one_address_is_imported_once(client: tidl.Client, paddle_peer: Peer, name: str) -> None:
    """Twice at once would leave the first import's lease behind for ever."""
    client.publish(name, np.arange(4))
    paddle_peer.do(
        f"y = client.get({name!r}, access='write')\n"
        "a = y.to_paddle(); b = y.to_paddle()\n"
        f"c = client.get({name!r}, access='write').to_paddle()"
    )
    assert paddle_peer.ask("a is b")
    assert paddle_peer.ask("c is a")  # another tidl.Tensor, the same mapping
    paddle_peer.do("v = a[1:3]; del a, b, c; gc.collect()")
    with pytest.raises(PeerError, match="one address twice") as caught:
        paddle_peer.do("y.to_paddle()")
    assert caught.value.code == "BUSY"
    assert paddle_peer.ask("v.tolist()") == [1, 2]
    paddle_peer.do("del v; gc.collect()\na = y.to_paddle()")
    assert paddle_peer.ask("a.tolist()") == [0, 1, 2, 3]
    paddle_peer.do("del a, y; gc.collect(); client.dispatch()")
    assert is_let_go(client, name)


def test_another_view_of_an_imported_address_is_refused(
    client: tidl.Client, paddle_peer: Peer, name: str
) -> None:
    a = client.empty((4, 3)).to_numpy()
    client.publish(f"{name}/whole", a)
    client.publish(f"{name}/rows", a[:2])
    paddle_peer.do(
        f"w = client.get({f'{name}/whole'!r}, access='write')\n"
        f"r = client.get({f'{name}/rows'!r}, access='write')\nt = w.to_paddle()"
    )
    assert paddle_peer.ask("w._address == r._address")  # one segment is mapped once
    with pytest.raises(PeerError) as caught:
        paddle_peer.do("r.to_paddle()")
    assert caught.value.code == "BUSY"
    paddle_peer.do("del t; gc.collect(); u = r.to_paddle()")
    assert paddle_peer.ask("list(u.shape)") == [2, 3]
    paddle_peer.do("del u, w, r")


def test_paddle_tensor_keeps_the_lease(client: tidl.Client, paddle_peer: Peer, name: str) -> None:
    client.publish(name, np.arange(3))
    paddle_peer.do(f"t = client.get({name!r}, access='write').to_paddle()")
    assert [holder.pid for holder in client.inspect(name).holders] == [paddle_peer.pid]
    paddle_peer.do("del t; gc.collect(); client.dispatch()")
    assert is_let_go(client, name)


def test_no_elements(client: tidl.Client, paddle_peer: Peer, name: str) -> None:
    client.publish(name, client.empty((0, 3)))
    assert paddle_peer.ask(f"list(client.get({name!r}).to_paddle(readonly_ok=True).shape)") == [
        0,
        3,
    ]


def test_foreign_paddle_tensors(client: tidl.Client, paddle_peer: Peer, name: str) -> None:
    paddle_peer.do(f"p = client.publish({name!r}, paddle.arange(6).reshape([2, 3]))")
    assert paddle_peer.ask("(p.copied, p.reason)") == (True, "foreign")
    assert client.get(name).to_numpy().tolist() == [[0, 1, 2], [3, 4, 5]]


def test_immutable_memory_is_written_privately(
    client: tidl.Client, paddle_peer: Peer, name: str
) -> None:
    """Paddle knows no read-only memory: what it writes goes to pages of its own."""
    client.publish(name, np.ones((8, 1024), dtype="f4"), access="immutable")
    paddle_peer.do(f"y = client.get({name!r})\nt = y.to_paddle()")
    assert memfd_inode(paddle_peer.ask("t.data_ptr()"), paddle_peer.pid) == (
        client.inspect(name).segments[0].inode
    )
    paddle_peer.do("t.scale_(3.0)")
    assert paddle_peer.ask("float(t.sum())") == 3 * 8192
    assert paddle_peer.ask("y.to_paddle() is t") is True
    assert paddle_peer.ask("float(y.to_numpy().sum())") == 8192
    assert client.get(name).to_numpy().sum() == 8192


@pytest.mark.dlpack_rule("C14")
@pytest.mark.parametrize(
    "make",
    [
        "t = paddle.ones([3]); t.stop_gradient = False",
        "t = paddle.sparse.sparse_coo_tensor([[0, 1], [0, 1]], [1.0, 2.0], [2, 2])",
    ],
    ids=["gradient", "sparse"],
)
def test_tensors_that_are_not_plain_memory(
    client: tidl.Client, paddle_peer: Peer, name: str, make: str
) -> None:
    paddle_peer.do(make)
    with pytest.raises(PeerError, match="__dlpack__") as caught:
        paddle_peer.do(f"client.publish({name!r}, t)")
    assert (caught.value.kind, caught.value.code) == ("NotExportableError", "INVALID_ARGUMENT")
    assert client.list(name) == []
