# SPDX-License-Identifier: Apache-2.0
"""What frameworks allocated themselves, shared where it lies: written from both sides, trained in,
freed first by either side, shared again, made private."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from python_peer import Peer, PeerError

import tidl

pytestmark = pytest.mark.frameworks

# Frameworks leave large holes in the heap, which are used first: 16 MiB fit into none. TensorFlow
# takes no less than 64 MiB from malloc at once.
ALONE = {"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=65536", "TF_CPP_MIN_LOG_LEVEL": "3"}
SIDE = 2048
SIDES = {"tensorflow": 4096}

# How each makes a tensor of ones, adds one to it where it lies, and reads an element.
MUTABLE = {
    "numpy": ("np.ones((SIDE, SIDE), np.float32)", "t += 1", "float(t[1, 2])"),
    "torch": ("torch.ones(SIDE, SIDE)", "t.add_(1)", "t[1, 2].item()"),
    "paddle": ("paddle.ones([SIDE, SIDE])", "t.add_(paddle.ones([1]))", "float(t[1, 2])"),
}
CONSTANT = {
    "jax": ("jnp.ones((SIDE, SIDE)).block_until_ready()", "float(t[1, 2])"),
    "tensorflow": ("tf.ones((SIDE, SIDE))", "float(t[1, 2])"),
}
IMPORTS = {"jax": "import jax, jax.numpy as jnp", "tensorflow": "import tensorflow as tf"}


@pytest.fixture
def start(start_peer: Callable[..., Peer]) -> Callable[[str], Peer]:
    def started(framework: str) -> Peer:
        pytest.importorskip(framework, exc_type=ImportError)
        setup = IMPORTS.get(framework, f"import {framework}")
        return start_peer(
            f"{setup}\nimport numpy as np\nclient = tidl.connect()\n"
            f"SIDE = {SIDES.get(framework, SIDE)}",
            environment=ALONE,
        )

    return started


@pytest.mark.parametrize("framework", MUTABLE)
def test_both_sides_write(
    client: tidl.Client, start: Callable[[str], Peer], name: str, framework: str
) -> None:
    make, add, read = MUTABLE[framework]
    owner = start(framework)
    owner.do(f"t = {make}\np = client.publish({name!r}, t, copy=False)")
    assert owner.ask("(p.path, p.neighbour_bytes, p.access)") == ("in-place", 0, "shared")
    mine = client.get(name, access="write").to_numpy()
    assert mine.shape == (SIDE, SIDE)
    assert mine[1, 2] == 1
    owner.do(add)
    assert mine[1, 2] == 2
    mine[1, 2] = 10
    assert owner.ask(read) == 10
    owner.do(add)
    assert (mine[1, 2], mine.sum(dtype=np.float64)) == (11, 3 * SIDE * SIDE + 8)
    # The owner lets go first: what was published stays, and is nobody's but ours by now.
    owner.do(f"del t\nclient.unshare({name!r})")
    assert mine[1, 2] == 11
    # And the other way round; then once more.
    owner.do(f"t = {make}\nclient.publish({name!r}, t, copy=False)")
    mine = client.get(name, access="write").to_numpy()
    mine[1, 2] = 5
    del mine
    owner.do(f"client.unshare({name!r})\n{add}")
    assert owner.ask(read) == 6
    owner.do(f"p = client.publish({name!r}, t, copy=False)")
    assert client.get(name).to_numpy()[1, 2] == 6


@pytest.mark.parametrize("framework", MUTABLE)
def test_a_hostile_writer(
    client: tidl.Client, start: Callable[[str], Peer], name: str, framework: str
) -> None:
    make, _, _ = MUTABLE[framework]
    owner = start(framework)
    owner.do(f"t = {make}\nclient.publish({name!r}, t, copy=False)")
    mine = client.get(name, access="write").to_numpy()
    size = client.inspect(name).segments[0].data_size_bytes
    np.ctypeslib.as_array(
        (np.ctypeslib.ctypes.c_ubyte * size).from_address(mine.ctypes.data & ~4095)
    )[:] = 0xA5
    owner.do(f"client.unshare({name!r})\ndel t\nt = {make}\ndel t")
    assert owner.ask("1") == 1


@pytest.mark.parametrize("framework", CONSTANT)
def test_constants(
    client: tidl.Client, start: Callable[[str], Peer], name: str, framework: str
) -> None:
    make, read = CONSTANT[framework]
    owner = start(framework)
    owner.do(f"t = {make}\np = client.publish({name!r}, t, copy=False)")
    assert owner.ask("(p.path, p.access)") == ("in-place", "live")
    assert client.get(name).to_numpy()[1, 2] == 1
    with pytest.raises(tidl.AccessError):
        client.get(name, access="write")
    owner.do(
        f"client.unshare({name!r})\np = client.publish({name!r}, t, copy=False, writable=True)"
    )
    assert owner.ask("(p.path, p.access)") == ("in-place", "shared")
    client.get(name, access="write").to_numpy()[1, 2] = 7
    assert owner.ask(read) == 7
    owner.do(f"client.unshare({name!r})")


def test_a_tensorflow_variable(
    client: tidl.Client, start: Callable[[str], Peer], name: str
) -> None:
    owner = start("tensorflow")
    owner.do(f"v = tf.Variable(tf.ones((SIDE, SIDE)))\np = client.publish({name!r}, v, copy=False)")
    assert owner.ask("(p.path, p.access)") == ("in-place", "shared")
    client.get(name, access="write").to_numpy()[1, 2] = 7
    assert owner.ask("float(v[1, 2])") == 7


def test_a_pool_is_refused(client: tidl.Client, start: Callable[[str], Peer], name: str) -> None:
    owner = start("tensorflow")
    owner.do("t = tf.ones((500, 500))")
    with pytest.raises(PeerError) as caught:
        owner.do(f"client.publish({name!r}, t, copy=False)")
    assert caught.value.code == "COPY_NEEDED"


# ---- training ----

TORCH_MODEL = """
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 10))
optimizer = torch.optim.Adam(model.parameters())
data = torch.randn(8, 1024)
def step():
    optimizer.zero_grad()
    loss = model(data).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()
"""


def test_torch_trains_in_shared_memory(
    client: tidl.Client, start: Callable[[str], Peer], name: str
) -> None:
    owner = start("torch")
    owner.do(TORCH_MODEL + "import tidl.torch\nlosses = [step() for _ in range(3)]")
    with pytest.raises(PeerError, match="small"):
        owner.do(f"client.publish({name!r}, model.state_dict(), copy=False)")
    owner.do("report = tidl.torch.share_(model, client, below=65536)")
    assert owner.ask("(report.tensors, report.left)") == (3, 1)
    owner.do(f"p = client.publish({name!r}, model.state_dict(), copy=False)")
    assert owner.ask("(p.path, p.copied_count)") == ("in-place", 0)
    mine = {key: t.to_numpy() for key, t in client.get(name, access="write").flat.items()}

    def same() -> bool:
        theirs = owner.ask("{k: v.numpy().tobytes() for k, v in model.state_dict().items()}")
        return {key: array.tobytes() for key, array in mine.items()} == theirs

    assert same()
    owner.do("losses += [step() for _ in range(3)]")
    assert same()
    mine["0.weight"][3, 4] = 2
    assert owner.ask("model[0].weight[3, 4].item()") == 2
    owner.do("with torch.no_grad():\n    model[0].weight *= 0.5")
    assert same()
    owner.do(
        "model.load_state_dict({k: torch.ones_like(v) for k, v in model.state_dict().items()})"
    )
    assert all((array == 1).all() for array in mine.values())
    owner.do(f"client.unshare({name!r})\nlosses.append(step())")
    assert (mine["0.weight"] == 1).all()
    assert owner.ask("bool((model[0].weight != 1).any())")
