# SPDX-License-Identifier: Apache-2.0
"""Tensors of torch and Paddle that were moved into shareable memory: they stay the same objects,
training goes on in it and gives what it would give without."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from ctypes import string_at
from pathlib import Path

import pytest
from python_peer import Peer, PeerError

import tidl

pytestmark = pytest.mark.frameworks

COMMON = """
import gc
client = tidl.connect()
def twins():
    global model, optimizer, twin, twin_optimizer
    model, optimizer = make()
    twin, twin_optimizer = make()
def bytes_of(tensors):
    return {key: t.numpy().tobytes() for key, t in tensors.items()}
def same():
    a, b = bytes_of(model.state_dict()), bytes_of(twin.state_dict())
    return a == b and bytes_of(moments(optimizer)) == bytes_of(moments(twin_optimizer))
def step():
    train(model, optimizer); train(twin, twin_optimizer)
"""

# A model with buffers of integers and tied weights, and its optimizer; the optimizer's own tensors.
TORCH = """
import torch, tidl.torch
share_ = tidl.torch.share_
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Sequential(
            torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU())
        self.outer = torch.nn.Linear(16, 16)
        self.again = torch.nn.Linear(16, 16)
        self.again.weight = self.outer.weight
    def forward(self, data):
        return self.again(self.outer(self.inner(data)))
def make():
    torch.manual_seed(0)
    model = Model()
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)
def moments(optimizer):
    found = {}
    for index, state in optimizer.state_dict()['state'].items():
        found |= {f'{index}.{key}': t for key, t in state.items()}
    return found
data = torch.linspace(-1, 1, 32).reshape(4, 8)
def train(model, optimizer):
    optimizer.zero_grad()
    model(data).square().mean().backward()
    optimizer.step()
"""

PADDLE = """
import paddle, tidl.paddle
import numpy as np
share_ = tidl.paddle.share_
class Model(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.inner = paddle.nn.Sequential(
            paddle.nn.Linear(8, 16), paddle.nn.BatchNorm1D(16), paddle.nn.ReLU())
        self.outer = paddle.nn.Linear(16, 16)
        self.again = paddle.nn.Linear(16, 16)
        self.again.weight = self.outer.weight
        self.register_buffer('count', paddle.to_tensor([3], dtype='int64'))
    def forward(self, data):
        return self.again(self.outer(self.inner(data)))
def make():
    paddle.seed(0)
    model = Model()
    return model, paddle.optimizer.AdamW(0.01, parameters=model.parameters())
def moments(optimizer):
    # The names count on from model to model.
    return {str(index): t for index, t in enumerate(optimizer.state_dict().values())}
data = paddle.linspace(-1, 1, 32).reshape([4, 8])
def train(model, optimizer):
    model(data).square().mean().backward()
    optimizer.step()
    optimizer.clear_grad()
"""

SETUPS = {"torch": TORCH, "paddle": PADDLE}


@pytest.fixture(scope="module")
def peers(session_client: tidl.Client) -> Iterator[Callable[[str], Peer]]:
    """One process for each framework, which takes seconds to start."""
    running: dict[str, Peer] = {}
    with ExitStack() as stack:

        def peer_of(framework: str) -> Peer:
            pytest.importorskip(framework, exc_type=ImportError)
            if framework not in running:
                running[framework] = stack.enter_context(Peer(SETUPS[framework] + COMMON))
            return running[framework]

        yield peer_of


@pytest.fixture(params=SETUPS)
def peer(request: pytest.FixtureRequest, peers: Callable[[str], Peer]) -> Peer:
    return peers(request.param)


@pytest.fixture
def torch_peer(peers: Callable[[str], Peer]) -> Peer:
    return peers("torch")


@pytest.fixture
def paddle_peer(peers: Callable[[str], Peer]) -> Peer:
    return peers("paddle")


# ---- training ----


@pytest.mark.parametrize("when", [0, 2], ids=["before", "after"])
def test_training_is_the_same(client: tidl.Client, peer: Peer, name: str, when: int) -> None:
    """Before and after the optimizer has made its own tensors."""
    peer.do(
        f"twins()\nfor _ in range({when}): step()\n"
        "before = {id(p): p for p in model.parameters()}\n"
        "report = share_({'model': model, 'moments': moments(optimizer)}, client)\n"
        f"p = client.publish({name!r}, model.state_dict(), copy=False)"
    )
    assert peer.ask("all(id(p) in before for p in model.parameters())")
    assert peer.ask("(p.path, p.copied_count)") == ("allocated", 0)
    assert peer.ask("report.left") == 0
    mine = {key: t.to_numpy() for key, t in client.get(name, access="write").flat.items()}
    for _ in range(3):
        before = {key: array.tobytes() for key, array in mine.items()}
        peer.do("step()")
        assert peer.ask("same()")
        now = {key: array.tobytes() for key, array in mine.items()}
        assert now == peer.ask("bytes_of(model.state_dict())")
        assert now["outer.weight"] != before["outer.weight"]
    # Tied weights are one tensor, which others write, too.
    mine["outer.weight"][1, 2] = 7
    assert mine["again.weight"][1, 2] == 7
    assert peer.ask("float(model.again.weight[1, 2])") == 7
    peer.do(
        "twin.load_state_dict(model.state_dict()) if hasattr(twin, 'load_state_dict') else "
        "twin.set_state_dict(model.state_dict())\nstep()"
    )
    assert peer.ask("same()")


def test_a_second_call_leaves_everything(client: tidl.Client, peer: Peer, name: str) -> None:
    peer.do(
        "twins()\nfirst = share_(model, client)\n"
        f"client.publish({name!r}, model.state_dict())\n"
        "addresses = [p.data_ptr() for p in model.parameters()]\nsecond = share_(model, client)"
    )
    count = peer.ask("first.tensors")
    assert peer.ask("(second.tensors, second.bytes, second.left)") == (0, 0, count)
    assert peer.ask("addresses == [p.data_ptr() for p in model.parameters()]")
    peer.do(f"p = client.publish({name!r}, model.state_dict(), copy=False, replace=True)\nstep()")
    assert peer.ask("p.path") == "allocated"
    assert peer.ask("same()")
    # Another client's memory is another matter.
    peer.do("with tidl.connect() as other:\n    third = share_(model, other)")
    assert peer.ask("(third.tensors, third.left)") == (count, 0)
    assert peer.ask("same()")


def test_memory_ends_with_the_last_tensor(peer: Peer) -> None:
    peer.do(
        "def is_mapped(address):\n"
        "    gc.collect()\n"
        "    for line in open('/proc/self/maps'):\n"
        "        begin, end = (int(part, 16) for part in line.split()[0].split('-'))\n"
        "        if begin <= address < end: return 'memfd:' in line\n"
        "    return False\n"
        "model, _ = make()\nshare_(model, client)\nkept = model.again.bias\n"
        "address, expected = kept.data_ptr(), kept.tolist()\n_ = model = None"
    )
    assert peer.ask("(is_mapped(address), kept.tolist() == expected)") == (True, True)
    peer.do("del kept")
    assert peer.ask("is_mapped(address)") is False


# ---- tied and in place ----

LARGE = {
    "torch": "a = torch.ones(4096, 1024); view = a.reshape(1024, 4096)\nsmall = torch.ones(5)",
    "paddle": (
        "a = paddle.ones([4096, 1024]); view = a.reshape([1024, 4096])\nsmall = paddle.ones([5])"
    ),
}


@pytest.mark.parametrize("framework", SETUPS)
def test_large_and_small_in_one_bundle(
    client: tidl.Client, start_peer: Callable[..., Peer], name: str, framework: str
) -> None:
    """Shared in place, moved before, and recognised ever after, views tied."""
    pytest.importorskip(framework, exc_type=ImportError)
    owner = start_peer(
        SETUPS[framework] + COMMON,
        environment={"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=65536"},
    )
    owner.do(
        f"{LARGE[framework]}\ntensors = {{'a': a, 'small': small, 'view': view}}\n"
        "address = a.data_ptr()\nreport = share_(tensors, client, below=65536)\n"
        f"p = client.publish({name!r}, tensors, copy=False)\n"
        "again = share_(tensors, client)\n"
        f"q = client.publish({name!r}, tensors, replace=True)"
    )
    assert owner.ask("(report.tensors, report.left)") == (1, 2)
    assert owner.ask("(p.path, p.copied_count, p.neighbour_bytes)") == ("in-place", 0, 0)
    assert owner.ask("(again.tensors, again.left, a.data_ptr() == address)") == (0, 3, True)
    assert owner.ask("(q.path, q.copied_count, q.moved_bytes)") == ("in-place", 0, 0)
    mine = {key: t.to_numpy() for key, t in client.get(name, access="write").flat.items()}
    mine["view"][-1, -1] = 7
    mine["small"][3] = 8
    assert mine["a"][-1, -1] == 7
    assert owner.ask("(float(a[-1, -1]), float(view[-1, -1]), float(small[3]))") == (7, 7, 8)
    owner.do("a[0, 0] = 9" if framework == "torch" else "a.fill_(9)")
    assert mine["a"][0, 0] == 9


def test_torch_views_stay_tied(client: tidl.Client, torch_peer: Peer, name: str) -> None:
    torch_peer.do(
        "a = torch.arange(12, dtype=torch.float32).reshape(3, 4)\nb = a[1:, ::2]\n"
        "report = share_({'a': a, 'b': b}, client)\n"
        f"p = client.publish({name!r}, {{'a': a, 'b': b}}, copy=False)"
    )
    assert torch_peer.ask("(report.tensors, report.bytes, report.left)") == (2, 48, 0)
    assert torch_peer.ask("p.path") == "allocated"
    assert torch_peer.ask("(a.tolist()[2], b.tolist())") == ([8, 9, 10, 11], [[4, 6], [8, 10]])
    client.get(name, access="write")["a"].to_numpy()[1, 0] = -4
    assert torch_peer.ask("b.tolist()") == [[-4, 6], [8, 10]]


def test_torch_in_inference_mode(torch_peer: Peer) -> None:
    torch_peer.do(
        "with torch.inference_mode():\n    a = torch.ones(3)\nreport = share_(a, client)\n"
        "lazy = torch.nn.LazyLinear(3); plain = torch.ones(3); before = plain.data_ptr()"
    )
    assert torch_peer.ask("(report.tensors, a.tolist())") == (1, [1, 1, 1])
    with pytest.raises(PeerError, match="uninitialized") as caught:
        torch_peer.do("share_({'plain': plain, 'lazy': lazy}, client)")
    assert (caught.value.kind, caught.value.code) == ("NotExportableError", "INVALID_ARGUMENT")
    for refused in ("torch.ones(3).to_sparse()", "torch.ones(3, device='meta')"):
        with pytest.raises(PeerError) as caught:
            torch_peer.do(f"share_({{'plain': plain, 'refused': {refused}}}, client)")
        assert caught.value.code == "DEVICE"
    assert torch_peer.ask("plain.data_ptr() == before")


def test_what_is_refused(peer: Peer) -> None:
    with pytest.raises(PeerError, match="share_\\(\\) takes a tensor") as caught:
        peer.do("share_({'a': 3}, client)")
    assert caught.value.kind == "ArgumentTypeError"


# ---- Paddle ----

# Those that Paddle makes; uint32 and uint64 it only imports.
PADDLE_DTYPES = [
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


def test_paddle_data_types(client: tidl.Client, paddle_peer: Peer, name: str) -> None:
    paddle_peer.do(
        f"tensors = {{}}\nfor dtype in {PADDLE_DTYPES!r}:\n"
        "    x = np.arange(24, dtype='uint8').reshape(2, 3, 4)\n"
        "    tensors[dtype] = paddle.to_tensor(x).cast(dtype)\n"
        f"client.publish({name + '/before'!r}, tensors)\n"
        "report = share_(tensors, client)\n"
        f"p = client.publish({name + '/after'!r}, tensors, copy=False)"
    )
    assert paddle_peer.ask("(report.tensors, report.left)") == (len(PADDLE_DTYPES), 0)
    assert paddle_peer.ask("p.path") == "allocated"
    assert paddle_peer.ask("[str(t.dtype)[7:] for t in tensors.values()]") == PADDLE_DTYPES
    before, after = client.get(f"{name}/before").flat, client.get(f"{name}/after").flat
    for dtype in PADDLE_DTYPES:
        a, b = before[dtype], after[dtype]
        assert (a.dtype, b.dtype, b.shape) == (dtype, dtype, (2, 3, 4))
        assert a._address
        assert b._address
        assert string_at(a._address, a.nbytes) == string_at(b._address, b.nbytes)


def test_paddle_layouts(client: tidl.Client, paddle_peer: Peer, name: str) -> None:
    """Tied views of any layout; Tensor.set_ would have written to the old memory of some."""
    paddle_peer.do(
        "a = paddle.arange(24, dtype='float32').reshape([2, 3, 4])\nold = np.asarray(a).copy()\n"
        "tensors = {'a': a, 'gaps': a[:, ::2], 'permuted': a.transpose([2, 0, 1]),\n"
        "  'flat': a.reshape([24]), 'part': a[1], 'scalar': a[1, 2, 3], 'detached': a.detach(),\n"
        "  'repeated': paddle.as_strided(paddle.ones([1]), [3], [0]),\n"
        "  'zero': paddle.zeros([0, 3])}\n"
        "layouts = {k: (list(t.shape), t.strides, t.is_contiguous()) for k, t in tensors.items()}\n"
        "contents = {k: t.tolist() for k, t in tensors.items()}\n"
        "report = share_(tensors, client)\n"
        f"p = client.publish({name!r}, tensors, copy=False)"
    )
    assert paddle_peer.ask("(report.tensors, report.bytes, report.left)") == (8, 100, 1)
    assert paddle_peer.ask("p.path") == "allocated"
    assert paddle_peer.ask(
        "layouts == {k: (list(t.shape), t.strides, t.is_contiguous()) for k, t in tensors.items()}"
    )
    assert paddle_peer.ask("contents == {k: t.tolist() for k, t in tensors.items()}")
    mine = client.get(name, access="write").flat["gaps"].to_numpy()
    mine[1, 1, 3] = -1
    assert (
        paddle_peer.ask(
            "[float(tensors[k].flatten()[-1]) for k in ('a', 'flat', 'part', 'scalar', 'detached')]"
        )
        == [-1] * 5
    )
    assert paddle_peer.ask("float(tensors['permuted'][3, 1, 2])") == -1
    paddle_peer.do("a.fill_(5)")
    assert (mine == 5).all()


def test_paddle_state_dicts(
    client: tidl.Client, paddle_peer: Peer, name: str, tmp_path: Path
) -> None:
    """What loads, sets and writes in place does so in shared memory; what does not is told."""
    file = str(tmp_path / "model.pdparams")
    paddle_peer.do(
        "model, optimizer = make()\nreport = share_(model.state_dict(), client)\n"
        f"p = client.publish({name!r}, model.state_dict())\n"
        f"paddle.save(model.state_dict(), {file!r})"
    )
    assert paddle_peer.ask("(report.left, p.path)") == (0, "allocated")
    mine = client.get(name).flat["inner.0.weight"].to_numpy()
    saved = mine.copy()
    paddle_peer.do("model.set_state_dict({k: v * 0 for k, v in model.state_dict().items()})")
    assert (mine == 0).all()
    paddle_peer.do(f"model.set_state_dict(paddle.load({file!r}))")
    assert (mine == saved).all()
    paddle_peer.do("model.inner[0].weight.set_value(np.full((8, 16), 2, 'f4'))")
    assert (mine == 2).all()
    paddle_peer.do("with paddle.no_grad(): model.inner[0].weight[1, 2] = 3")
    assert mine[1, 2] == 3
    # Other memory: Paddle's own doing, and told by the next report.
    paddle_peer.do(
        "model.outer.to(dtype='float64'); model.outer.to(dtype='float32')\n"
        "report = share_(model, client)"
    )
    assert paddle_peer.ask("report.tensors") == 2


def test_paddle_goes_backward_through_it(paddle_peer: Peer) -> None:
    """Shared between forward and backward; torch refuses that by itself."""
    paddle_peer.do(
        "twins()\nstep()\nloss = model(data).square().mean()\nshare_(model, client)\n"
        "loss.backward(); optimizer.step(); optimizer.clear_grad()\ntrain(twin, twin_optimizer)"
    )
    assert paddle_peer.ask("same()")
    paddle_peer.do(
        "def notes(layer):\n"
        "    return [(p.stop_gradient, p.inplace_version) for p in layer.parameters()]"
    )
    assert paddle_peer.ask("notes(model) == notes(twin)")


def test_paddle_compiled(paddle_peer: Peer) -> None:
    """What was captured before uses the new memory."""
    paddle_peer.do(
        "twins()\nrun = paddle.jit.to_static(model.forward)\nmodel.forward = run\nstep()\n"
        "share_(model, client)\nstep()"
    )
    assert paddle_peer.ask("same()")


@pytest.mark.parametrize(
    ("make", "code", "text"),
    [
        ("paddle.sparse.sparse_coo_tensor([[0], [0]], [1.0], [2, 2])", "DEVICE", "dense"),
        ("paddle.from_dlpack(np.arange(4.0)[::-1])", "LAYOUT", "negative"),
        ("lazy()", "INVALID_ARGUMENT", "no memory yet"),
        ("paddle.from_dlpack(np.arange(3, dtype='uint32'))", "INVALID_ARGUMENT", "uint32"),
    ],
    ids=["sparse", "negative", "lazy", "uint32"],
)
def test_what_paddle_cannot_move(paddle_peer: Peer, make: str, code: str, text: str) -> None:
    paddle_peer.do(
        "def lazy():\n    with paddle.LazyGuard():\n        return paddle.nn.Linear(2, 2)\n"
        f"plain = paddle.ones([3]); before = plain.data_ptr(); refused = {make}"
    )
    with pytest.raises(PeerError, match=text) as caught:
        paddle_peer.do("share_({'plain': plain, 'refused': refused}, client)")
    assert caught.value.code == code
    assert paddle_peer.ask("(plain.data_ptr() == before, plain.tolist())") == (True, [1, 1, 1])


def test_paddle_gets_it_in_the_same_process(paddle_peer: Peer, name: str) -> None:
    """Paddle imports no address twice: neither the block's, nor what was moved away from it."""
    paddle_peer.do(
        "a = paddle.arange(4, dtype='float32'); share_(a, client)\n"
        f"client.publish({name!r}, a)\ny = client.get({name!r}, access='write')\n"
        "t = y.to_paddle()\n"
        "t[1] = 9"
    )
    assert paddle_peer.ask("a.tolist()") == [0, 9, 2, 3]
    paddle_peer.do("view = t[1:]\nwith tidl.connect() as other:\n    share_(t, other)\nt[1] = -9")
    assert paddle_peer.ask("(a.tolist(), view.tolist())") == ([0, 9, 2, 3], [9, 2, 3])
    with pytest.raises(PeerError) as caught:
        paddle_peer.do("y.to_paddle()")
    assert caught.value.code == "BUSY"
    paddle_peer.do("del view; gc.collect()")
    assert paddle_peer.ask("y.to_paddle().tolist()") == [0, 9, 2, 3]
