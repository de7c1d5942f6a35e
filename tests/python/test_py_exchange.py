# SPDX-License-Identifier: Apache-2.0
"""Two processes that share nothing but the socket see each other's writes, whatever the layout."""

from __future__ import annotations

import numpy as np
import pytest
from python_brokers import memfd_inode
from python_peer import Peer

import tidl

DTYPES = [
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
]

# Views of an array `a` of shape (4, 5, 6).
VIEWS = {
    "whole": "a",
    "row": "a[2]",
    "rows": "a[1:3]",
    "column": "a[:, 3]",
    "step": "a[::2, ::3, 1::2]",
    "offset": "a[1:, 2:, 3:]",
    "permuted": "a.transpose(2, 0, 1)",
    "reversed permutation": "a.T",
    "negative": "a[::-1]",
    "all negative": "a[::-1, ::-1, ::-1]",
    "negative step": "a[:, ::-2]",
    "zero stride": "np.broadcast_to(a[0, 0], (3, 6))",
    "zero strides": "np.broadcast_to(a[1, 2, 3, ...], (2, 2))",
    "size-1 axes": "a[1:2, :, 2:3]",
    "new axes": "a[None, :, None, 1, None]",
    "diagonal": "np.einsum('ii->i', a[0, :, :5])",
    "one element": "a[1, 2, 3, ...]",
    "empty": "a[:0]",
    "empty inside": "a[:, 2:2, :]",
}


def test_both_see_every_write(client: tidl.Client, peer: Peer, name: str) -> None:
    x = client.empty((3, 4), dtype="float32")
    mine = x.to_numpy()
    assert not client.publish(name, x).copied
    peer.do(f"y = client.get({name!r}, access='write'); theirs = y.to_numpy()")
    for step in range(20):
        mine[step % 3, step % 4] = step
        assert peer.ask(f"float(theirs[{step % 3}, {step % 4}])") == step
        peer.do(f"theirs[{(step + 1) % 3}, {step % 4}] = -{step}")
        assert mine[(step + 1) % 3, step % 4] == -step


def test_exchange_goes_both_ways(client: tidl.Client, peer: Peer, name: str) -> None:
    """Each publishes one and attaches the other's."""
    client.publish(f"{name}/a", client.full((8,), 1, dtype="int64"))
    peer.do(
        f"client.publish({f'{name}/b'!r}, client.full((8,), 2, dtype='int64'))\n"
        f"a = client.get({f'{name}/a'!r}, access='write').to_numpy()"
    )
    b = client.get(f"{name}/b", access="write").to_numpy()
    a = client.get(f"{name}/a").to_numpy()
    peer.do("a += 10")
    b += 20
    assert a.tolist() == [11] * 8
    assert peer.ask(f"client.get({f'{name}/b'!r}).to_numpy().tolist()") == [22] * 8


@pytest.mark.dlpack_rule("P4", "X1")
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_views_arrive_as_they_are(client: tidl.Client, peer: Peer, name: str, view: str) -> None:
    a = client.empty((4, 5, 6), dtype="int32").to_numpy()
    a[:] = np.arange(a.size).reshape(a.shape)
    mine = eval(view, {"a": a, "np": np})
    publication = client.publish(name, mine)
    assert not publication.copied
    assert publication.path == ("allocated" if mine.size else "empty")

    peer.do(f"y = client.get({name!r}, access='write'); theirs = y.to_numpy()")
    assert peer.ask("theirs.shape") == mine.shape
    assert peer.ask("theirs.tolist()") == mine.tolist()
    if mine.size:
        inode = memfd_inode(a.ctypes.data)
        assert inode
        assert peer.ask("theirs.ctypes.data")
        assert memfd_inode(peer.ask("theirs.ctypes.data"), peer.pid) == inode
    if mine.size and not view.startswith("np.broadcast"):
        # A write through the view lands in the whole, at the element that the view says.
        expected = a.copy()
        eval(view, {"a": expected, "np": np})[...] += 1000
        peer.do("theirs += 1000")
        assert a.tolist() == expected.tolist()


@pytest.mark.dlpack_rule("C6")
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_foreign_views_are_copied_once(
    client: tidl.Client, peer: Peer, name: str, view: str
) -> None:
    a = np.arange(120, dtype="int32").reshape(4, 5, 6)
    mine = eval(view, {"a": a, "np": np})
    publication = client.publish(name, mine)
    assert publication.copied == (mine.size > 0)
    assert publication.reason == ("foreign" if mine.size else None)
    assert publication.path == ("copied" if mine.size else "empty")
    expected = mine.tolist()
    a[...] = -1  # a snapshot does not follow
    peer.do(f"y = client.get({name!r})")
    assert peer.ask("(y.shape, y.to_numpy().tolist())") == (mine.shape, expected)
    assert peer.ask("y.to_numpy().flags.c_contiguous")


@pytest.mark.dlpack_rule("P20")
@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(client: tidl.Client, peer: Peer, name: str, dtype: str) -> None:
    for kind in ("allocated", "foreign"):
        values = np.array([[0, 1, 2], [3, 4, 5]]).astype(dtype)
        if kind == "allocated":
            mine = client.empty(values.shape, dtype=dtype).to_numpy()
            mine[:] = values
        else:
            mine = values
        client.publish(f"{name}/{kind}", mine)
        peer.do(f"y = client.get({f'{name}/{kind}'!r})")
        assert peer.ask("y.dtype") == dtype
        assert peer.ask("str(y.to_numpy().dtype)") == dtype
        assert peer.ask("y.to_numpy().tobytes()") == values.tobytes()


def test_zero_dimensions(client: tidl.Client, peer: Peer, name: str) -> None:
    x = client.full((), 7, dtype="float64")
    assert (x.shape, x.strides, x.nbytes) == ((), (), 8)
    client.publish(name, x)
    peer.do(f"theirs = client.get({name!r}, access='write').to_numpy()\ntheirs[()] += 1")
    assert x.to_numpy()[()] == 8


@pytest.mark.dlpack_rule("P6")
@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 4, 5), (2, 0, 0)])
def test_no_elements(client: tidl.Client, peer: Peer, name: str, shape: tuple[int, ...]) -> None:
    x = client.empty(shape, dtype="int16")
    assert (x.shape, x.nbytes) == (shape, 0)
    publication = client.publish(name, x)
    assert (publication.path, publication.copied, publication.exposed_bytes) == ("empty", False, 0)
    assert peer.ask(f"client.get({name!r}).to_numpy().shape") == shape
    assert client.inspect(name).segments == ()
    assert client.inspect(name).tensors[0].segment_index is None


@pytest.mark.dlpack_rule("P22")
def test_64_dimensions(client: tidl.Client, peer: Peer, name: str) -> None:
    shape = (2,) * 10 + (1,) * 54
    x = client.empty(shape, dtype="uint8")
    x.to_numpy().reshape(-1)[:] = np.arange(1024) % 251
    client.publish(name, x)
    peer.do(f"theirs = client.get({name!r}).to_numpy()")
    assert peer.ask("theirs.shape") == shape
    assert peer.ask("theirs.tobytes()") == x.to_numpy().tobytes()


def test_large_tensor(client: tidl.Client, peer: Peer, name: str) -> None:
    """64 MiB, and the far end of it."""
    x = client.empty((16, 1024, 1024), dtype="float32").to_numpy()
    x[-1, -1, -1] = 42
    client.publish(name, x[8:])
    peer.do(f"theirs = client.get({name!r}, access='write').to_numpy()")
    assert peer.ask("float(theirs[-1, -1, -1])") == 42
    peer.do("theirs[0, 0, 0] = 43")
    assert x[8, 0, 0] == 43
