# SPDX-License-Identifier: Apache-2.0
"""torch in another process."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from python_brokers import is_let_go, memfd_inode
from python_peer import Peer, PeerDiedError, PeerError

import tidl

pytest.importorskip("torch", exc_type=ImportError)
pytestmark = pytest.mark.frameworks


@pytest.fixture(scope="module")
def torch_peer(session_client: tidl.Client) -> Iterator[Peer]:
    with Peer("import torch\nimport numpy as np\nclient = tidl.connect()") as peer:
        yield peer


def test_exchange_without_a_copy(client: tidl.Client, torch_peer: Peer, name: str) -> None:
    torch_peer.do(
        "x = client.empty((8, 4), dtype=torch.float32)\nt = x.to_torch(); t.fill_(1)\n"
        f"p = client.publish({name!r}, t)"
    )
    assert torch_peer.ask("(p.copied, p.path)") == (False, "allocated")
    mine = client.get(name, access="write").to_numpy()
    assert mine.sum() == 32
    mine[2, 3] = -5
    assert torch_peer.ask("t[2, 3].item()") == -5
    torch_peer.do("t.mul_(2)")
    assert mine[2, 3] == -10
    inode = memfd_inode(mine.ctypes.data)
    assert inode == client.inspect(name).segments[0].inode
    assert memfd_inode(torch_peer.ask("t.data_ptr()"), torch_peer.pid) == inode


@pytest.mark.dlpack_rule("P6")
@pytest.mark.parametrize(
    "view",
    ["t[1:]", "t[:, ::2]", "t.T", "t.permute(1, 0)[1:]", "t[2, 3]", "t[:0]", "t.expand(2, 8, 4)"],
)
def test_views(client: tidl.Client, torch_peer: Peer, name: str, view: str) -> None:
    torch_peer.do(
        "x = client.empty((8, 4), dtype='int32')\nt = x.to_torch()\n"
        f"t.copy_(torch.arange(32).reshape(8, 4))\nv = {view}\np = client.publish({name!r}, v)"
    )
    assert torch_peer.ask("p.copied") is False
    mine = client.get(name)
    assert mine.to_numpy().tolist() == torch_peer.ask("v.tolist()")
    assert torch_peer.ask("p.path") == ("allocated" if mine.nbytes else "empty")
    if mine.nbytes:
        offset = client.inspect(name).tensors[0].byte_offset
        assert torch_peer.ask("v.data_ptr() - t.data_ptr()") == offset
    torch_peer.do(
        f"y = client.get({name!r}, access='write').to_torch()\n"
        f"assert y.shape == v.shape and torch.equal(y, v)"
    )


DTYPES = [
    "bool",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
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
def test_dtypes(client: tidl.Client, torch_peer: Peer, name: str, dtype: str) -> None:
    torch_peer.do(
        f"t = client.empty((3,), dtype=torch.{dtype}).to_torch()\n"
        "t.view(torch.uint8).fill_(1)\n"
        f"assert not client.publish({name!r}, t).copied\n"
        f"y = client.get({name!r}, access='write')\n"
        f"assert y.to_torch().dtype is torch.{dtype}"
    )
    tensor = client.get(name)
    assert tensor.dtype == dtype
    copied = torch_peer.ask(f"client.publish({name + '/foreign'!r}, t.clone()).copied")
    assert copied is True
    assert client.get(f"{name}/foreign").dtype == dtype


def test_unknown_dtypes_are_refused(torch_peer: Peer) -> None:
    with pytest.raises(PeerError) as caught:
        torch_peer.do("client.empty((4,), dtype='float8_e3m4').to_torch()")
    assert caught.value.code == "DTYPE"


def test_negative_strides_are_refused(client: tidl.Client, torch_peer: Peer, name: str) -> None:
    a = client.empty((4, 3)).to_numpy()
    client.publish(name, a[::-1])
    with pytest.raises(PeerError, match="negative strides") as caught:
        torch_peer.do(f"client.get({name!r}, access='write').to_torch()")
    assert caught.value.code == "LAYOUT"
    client.publish(name, a[:1][::-1], replace=True)  # one row has no direction
    torch_peer.do(f"client.get({name!r}, access='write').to_torch()")


def test_read_only_memory_is_refused(client: tidl.Client, torch_peer: Peer, name: str) -> None:
    client.publish(name, np.arange(3))
    with pytest.raises(PeerError, match="readonly_ok=True") as caught:
        torch_peer.do(f"client.get({name!r}).to_torch()")
    assert caught.value.code == "READ_ONLY"
    assert torch_peer.ask(f"client.get({name!r}).to_torch(readonly_ok=True).tolist()") == [0, 1, 2]
    torch_peer.do(f"t = client.get({name!r}, access='copy_on_write').to_torch(); t.fill_(7)")
    assert client.get(name).to_numpy().tolist() == [0, 1, 2]


@pytest.mark.dlpack_rule("P8")
def test_a_write_through_a_read_only_map_is_a_crash(
    client: tidl.Client, start_peer: Callable[..., Peer], name: str
) -> None:
    client.publish(name, np.arange(3))
    peer = start_peer("import torch\nclient = tidl.connect()")
    peer.do(f"t = client.get({name!r}).to_torch(readonly_ok=True)")
    with pytest.raises(PeerDiedError):
        peer.do("t.fill_(1)")
    assert peer.process.returncode == -signal.SIGSEGV
    assert client.get(name).to_numpy().tolist() == [0, 1, 2]


@pytest.mark.dlpack_rule("C14")
@pytest.mark.parametrize(
    ("tensor", "kind"),
    [
        ("torch.ones(3, requires_grad=True)", "NotExportableError"),
        ("torch.nn.Parameter(torch.ones(3))", "NotExportableError"),
        ("torch.ones(3, dtype=torch.complex64).conj()", "NotExportableError"),
        ("torch.ones(3, dtype=torch.complex64).conj().imag", "LayoutError"),
        ("torch.ones(3).to_sparse()", "NotExportableError"),
        ("torch.ones(3, device='meta')", "NotExportableError"),
        ("torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)", "NotExportableError"),
    ],
)
def test_tensors_that_are_not_plain_memory(
    client: tidl.Client, torch_peer: Peer, name: str, tensor: str, kind: str
) -> None:
    with pytest.raises(PeerError) as caught:
        torch_peer.do(f"client.publish({name!r}, {tensor})")
    assert caught.value.kind == kind
    assert client.list(name) == []


@pytest.mark.dlpack_rule("P19")
def test_torch_tensor_keeps_the_lease(client: tidl.Client, torch_peer: Peer, name: str) -> None:
    client.publish(name, np.arange(3))
    torch_peer.do(f"t = client.get({name!r}, access='write').to_torch(); v = t[1:]; del t")
    assert [holder.pid for holder in client.inspect(name).holders] == [torch_peer.pid]
    assert torch_peer.ask("v.tolist()") == [1, 2]
    torch_peer.do("del v; client.dispatch()")
    assert is_let_go(client, name)


@pytest.mark.dlpack_rule("P9")
def test_from_dlpack_takes_the_tensor_itself(torch_peer: Peer) -> None:
    torch_peer.do(
        "x = client.empty((4,))\nt = torch.from_dlpack(x); t.fill_(3)\n"
        "c = torch.from_dlpack(x, copy=True); c.fill_(4)\n"
        "u = torch.utils.dlpack.from_dlpack(x.__dlpack__())"
    )
    assert torch_peer.ask("(x.to_numpy().tolist(), u.tolist())") == ([3.0] * 4, [3.0] * 4)


def test_immutable_memory_is_written_privately(
    client: tidl.Client, torch_peer: Peer, name: str
) -> None:
    """torch knows no read-only memory: what it writes goes to pages of its own."""
    client.publish(name, np.ones((8, 1024), dtype="f4"), access="immutable")
    torch_peer.do(f"y = client.get({name!r})\nt = y.to_torch()")
    assert memfd_inode(torch_peer.ask("t.data_ptr()"), torch_peer.pid) == (
        client.inspect(name).segments[0].inode
    )
    assert torch_peer.ask("float(t.sum())") == 8192
    torch_peer.do("t[0].add_(1)\nt.mul_(2)")
    assert torch_peer.ask("(t[0, 0].item(), t[7, 0].item())") == (4, 2)
    assert torch_peer.ask("y.to_torch().data_ptr() == t.data_ptr()") is True
    assert torch_peer.ask("float(torch.from_numpy(y.to_numpy().copy()).sum())") == 8192
    assert client.get(name).to_numpy().sum() == 8192


def test_parameters_over_numpy_arrays(client: tidl.Client, torch_peer: Peer, name: str) -> None:
    """Made in shareable memory by `tidl.numpy_allocator()`, and trained in it."""
    torch_peer.do(
        "with tidl.numpy_allocator(client) as made:\n"
        "    weight = torch.nn.Parameter(torch.from_numpy(np.zeros((64, 64), 'f4')))\n"
        "optimizer = torch.optim.SGD([weight], lr=1)\n"
        f"p = client.publish({name!r}, {{'w': weight}}, copy=False)\n"
        "weight.sum().backward(); optimizer.step()"
    )
    assert torch_peer.ask("(p.path, p.copied, made.arrays)") == ("allocated", False, 1)
    mine = client.get(name, access="write").to_numpy()["w"]
    assert (mine == -1).all()
    mine[3, 4] = 5
    assert torch_peer.ask("weight[3, 4].item()") == 5
    torch_peer.do("import gc; del weight, optimizer; gc.collect()")
    assert torch_peer.ask("made.arrays") == 0
    assert mine[3, 4] == 5
