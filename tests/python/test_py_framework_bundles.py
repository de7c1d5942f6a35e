# SPDX-License-Identifier: Apache-2.0
"""State dicts of 2,000 tensors, weights tied, from one process into a fresh model of another."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
from python_brokers import memfd_inode
from python_peer import Peer

import tidl

pytestmark = pytest.mark.frameworks

# 998 layers with weight and bias, an embedding, a norm's buffer and a head tied to the embedding;
# with what the norm counts, 2,001 tensors.
TORCH_MODEL = """
import torch

class Model(torch.nn.Module):
    def __init__(self, fill=None):
        super().__init__()
        self.embedding = torch.nn.Embedding(50, 16)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(16, 16) for _ in range(996))
        self.norm = torch.nn.BatchNorm1d(16)
        self.head = torch.nn.Linear(16, 50)
        self.head.weight = self.embedding.weight

torch.manual_seed(SEED)
model = Model()
client = tidl.connect()
"""


def sums(peer: Peer, expression: str) -> list[float]:
    found: list[float] = peer.ask(f"[float(t.double().sum()) for t in {expression}.values()]")
    return found


def test_torch_state_dict(client: tidl.Client, name: str) -> None:
    pytest.importorskip("torch", exc_type=ImportError)
    with (
        Peer(TORCH_MODEL.replace("SEED", "1")) as producer,
        Peer(TORCH_MODEL.replace("SEED", "2")) as consumer,
    ):
        producer.do(f"s = model.state_dict()\np = client.publish({name!r}, s)")
        assert producer.ask("len(s)") >= 2000
        assert producer.ask("(p.tensor_count, p.copied_count)") == producer.ask("(len(s), len(s))")
        (segment,) = client.inspect(name).segments

        consumer.do(
            f"b = client.get({name!r}, access='write')\nd = b.to_torch()\n"
            "result = model.load_state_dict(d, assign=True)"
        )
        assert consumer.ask("str(result)") == "<All keys matched successfully>"
        assert consumer.ask("list(model.state_dict())") == producer.ask("list(s)")
        assert sums(consumer, "model.state_dict()") == sums(producer, "s")
        assert consumer.ask("type(model.head.weight).__name__") == "Parameter"

        # Nothing was copied: the model's parameters lie in the published memory, all of them.
        addresses = consumer.ask(
            "[t.data_ptr() for t in (*model.parameters(), *model.buffers()) if t.numel()]"
        )
        begin, end = min(addresses), max(addresses)
        assert memfd_inode(begin, consumer.pid) == segment.inode
        assert memfd_inode(end, consumer.pid) == segment.inode
        assert end - begin < segment.data_size_bytes

        # Tied weights came back tied, and copied once.
        assert consumer.ask("d['head.weight'] is d['embedding.weight']")
        assert consumer.ask("model.head.weight.data_ptr() == model.embedding.weight.data_ptr()")
        total = producer.ask("sum(t.nbytes for t in model.parameters())")
        assert segment.data_size_bytes < total + 2100 * 256

        # Whoever attaches it next sees what this one writes.
        consumer.do("with torch.no_grad(): model.layers[3].weight.fill_(5)")
        assert float(client.get(name)["layers.3.weight"].to_numpy().sum()) == 5 * 256
        consumer.do("del d, model, b")


def test_torch_loads_a_copy_without_assign(client: tidl.Client, name: str) -> None:
    """What docs/bundles.md says of torch's own loader."""
    torch = pytest.importorskip("torch", exc_type=ImportError)
    model = torch.nn.Linear(4, 2)
    client.publish(name, model.state_dict())
    other = torch.nn.Linear(4, 2)
    other.load_state_dict(client.get(name).to_torch(readonly_ok=True))
    assert torch.equal(other.weight, model.weight)
    assert memfd_inode(other.weight.data_ptr()) == 0


def test_torch_optimizer_state(client: tidl.Client, name: str) -> None:
    """Nested mappings of tensors; what is no tensor is named."""
    torch = pytest.importorskip("torch", exc_type=ImportError)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    state = {str(key): value for key, value in optimizer.state_dict()["state"].items()}
    client.publish(name, {"model": model.state_dict(), "optimizer": state})
    bundle = client.get(name, access="write")
    nested = bundle["optimizer"].to_torch()
    assert torch.equal(nested["0"]["exp_avg"], state["0"]["exp_avg"])
    assert nested["0"]["step"].shape == ()
    with pytest.raises(tidl.InvalidArgumentError, match="'param_groups': "):
        client.publish(f"{name}/2", {"param_groups": optimizer.state_dict()["param_groups"]})


def test_torch_takes_immutable_weights(client: tidl.Client, name: str) -> None:
    """One private map for all of them: tied weights stay tied, and what is written is its own."""
    torch = pytest.importorskip("torch", exc_type=ImportError)
    weight = torch.arange(6.0)
    client.publish(name, {"a": weight, "b": {"c": weight, "d": weight[2:4]}}, access="immutable")
    mine = client.get(name).to_torch()
    assert mine["a"] is mine["b"]["c"]
    assert mine["b"]["d"].data_ptr() == mine["a"].data_ptr() + 8
    mine["a"][2] = -1
    assert mine["b"]["d"][0] == -1
    assert client.get(name)["a"].to_numpy()[2] == 2


def test_read_only_bundles_are_refused_by_path(client: tidl.Client, name: str) -> None:
    torch = pytest.importorskip("torch", exc_type=ImportError)
    client.publish(name, {"a": {"b": torch.ones(2)}})
    with pytest.raises(tidl.ReadOnlyError, match=r"^'a/b': "):
        client.get(name).to_torch()


PADDLE_MODEL = """
import paddle

class Model(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.embedding = paddle.nn.Embedding(50, 16)
        self.layers = paddle.nn.LayerList([paddle.nn.Linear(16, 16) for _ in range(998)])
        self.norm = paddle.nn.BatchNorm1D(16)
        self.head = paddle.nn.Linear(50, 16)
        self.head.weight = self.embedding.weight

paddle.seed(SEED)
model = Model()
client = tidl.connect()
"""


def test_paddle_state_dict(client: tidl.Client, name: str) -> None:
    pytest.importorskip("paddle", exc_type=ImportError)
    with (
        Peer(PADDLE_MODEL.replace("SEED", "1")) as producer,
        Peer(PADDLE_MODEL.replace("SEED", "2")) as consumer,
    ):
        producer.do(f"s = model.state_dict()\np = client.publish({name!r}, s)")
        assert producer.ask("len(s)") >= 2000
        assert producer.ask("p.tensor_count") == producer.ask("len(s)")
        (segment,) = client.inspect(name).segments

        consumer.do(f"b = client.get({name!r}, access='write')\nd = b.to_paddle()")
        addresses = consumer.ask("[t.data_ptr() for t in d.values()]")
        assert memfd_inode(min(addresses), consumer.pid) == segment.inode
        assert memfd_inode(max(addresses), consumer.pid) == segment.inode
        assert max(addresses) - min(addresses) < segment.data_size_bytes
        assert consumer.ask("d['head.weight'] is d['embedding.weight']")

        # Paddle's own loader copies into the parameters that are there.
        assert consumer.ask("model.set_state_dict(d)") == ([], [])
        total = "[float(t.astype('float64').sum()) for t in {}.values()]"
        assert consumer.ask(total.format("model.state_dict()")) == producer.ask(total.format("s"))
        loaded = consumer.ask("model.head.weight.data_ptr()")
        assert memfd_inode(loaded, consumer.pid) == 0
        consumer.do("del d, b")


@pytest.mark.parametrize(
    ("module", "method"),
    [("jax", "to_jax"), ("tensorflow", "to_tensorflow"), ("tvm_ffi", "to_tvm")],
)
def test_other_frameworks(client: tidl.Client, name: str, module: str, method: str) -> None:
    """Row-major members are aligned to what the strictest framework wants."""
    if not importlib.util.find_spec(module):
        pytest.skip(f"{module} is not installed")
    weight = np.arange(6, dtype=np.float32).reshape(2, 3)
    client.publish(name, {"a": {"w": weight, "b": np.ones(3, np.float32)}, "tied": weight})
    with Peer(f"import {module}\nimport numpy as np\nclient = tidl.connect()") as peer:
        peer.do(f"b = client.get({name!r}, access='write')\nd = b.{method}()")
        assert peer.ask("(list(d), list(d['a']))") == (["a", "tied"], ["w", "b"])
        assert peer.ask("d['a']['w'] is d['tied']")
        assert peer.ask("np.from_dlpack(d['a']['w']).tolist()") == weight.tolist()
        assert peer.ask("np.from_dlpack(d['a']['w']).ctypes.data == b['tied']._address")
        peer.do("del d, b")


def test_cupy_and_taichi(client: tidl.Client, name: str) -> None:
    client.publish(name, {"a": np.ones(2, np.float32)})
    bundle = client.get(name, access="write")
    assert bundle.to_taichi()["a"].tolist() == [1, 1]
    with pytest.raises(tidl.DeviceError, match=r"^'a': "):
        bundle.to_cupy()
