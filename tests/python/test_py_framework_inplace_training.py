# SPDX-License-Identifier: Apache-2.0
"""Training in memory that is shared where it lies: byte for byte what a twin that is not shared
comes to, with what the other process writes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
import pytest
from inplace_owners import start_owner
from python_peer import Peer

import tidl

pytestmark = pytest.mark.frameworks

# 16 MiB: no hole that a framework has left in the heap has so much room. TensorFlow leaves small
# ones only, and is slow.
SIDE = 2048
SIDES = {"tensorflow": 1024}

# A layer and Adam for it; the twin gets the same.
LAYERS = {
    "torch": """
def make():
    torch.manual_seed(0)
    model = torch.nn.Linear(SIDE, SIDE)
    return model, torch.optim.Adam(model.parameters())
data = torch.ones(4, SIDE) / SIDE
def step(model, optimizer):
    optimizer.zero_grad()
    model(data).square().mean().backward()
    optimizer.step()
def halve(model):
    with torch.no_grad():
        model.weight *= 0.5
def load(model):
    model.load_state_dict({k: torch.full_like(v, 0.25) for k, v in model.state_dict().items()})
def state(model):
    return model.state_dict()
import tidl.torch
tidl_share = tidl.torch.share_
""",
    "paddle": """
def make():
    paddle.seed(0)
    model = paddle.nn.Linear(SIDE, SIDE)
    return model, paddle.optimizer.Adam(parameters=model.parameters())
data = paddle.ones([4, SIDE]) / SIDE
def step(model, optimizer):
    model(data).square().mean().backward()
    optimizer.step()
    optimizer.clear_grad()
def halve(model):
    with paddle.no_grad():
        model.weight.scale_(0.5)
def load(model):
    model.set_state_dict({k: paddle.full_like(v, 0.25) for k, v in model.state_dict().items()})
def state(model):
    return model.state_dict()
import tidl.paddle
tidl_share = tidl.paddle.share_
""",
    # A step of these gives other memory.
    "tensorflow": """
def make():
    tf.random.set_seed(0)
    layer = tf.keras.layers.Dense(SIDE, kernel_initializer=tf.keras.initializers.GlorotUniform(0))
    layer.build((None, SIDE))
    return layer, tf.keras.optimizers.Adam()
data = tf.ones((4, SIDE)) / SIDE
def step(layer, optimizer):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(layer(data) ** 2)
    variables = layer.trainable_variables
    optimizer.apply(tape.gradient(loss, variables), variables)
def halve(layer):
    layer.kernel.assign(layer.kernel * 0.5)
def load(layer):
    layer.set_weights([np.full_like(w, 0.25) for w in layer.get_weights()])
def state(layer):
    return {"weight": layer.kernel.value}
""",
    "jax": """
class Layer:
    pass
class Adam:
    count = first = second = 0
def make():
    layer = Layer()
    layer.weight = jax.random.normal(jax.random.key(0), (SIDE, SIDE)).block_until_ready()
    return layer, Adam()
data = jnp.ones((4, SIDE)) / SIDE
slope = jax.jit(jax.grad(lambda weight: jnp.square(data @ weight).mean()))
def step(layer, adam):
    g = slope(layer.weight)
    adam.count += 1
    adam.first = 0.9 * adam.first + 0.1 * g
    adam.second = 0.999 * adam.second + 0.001 * g * g
    mean, square = adam.first / (1 - 0.9**adam.count), adam.second / (1 - 0.999**adam.count)
    layer.weight = (layer.weight - 0.001 * mean / (jnp.sqrt(square) + 1e-8)).block_until_ready()
def halve(layer):
    layer.weight *= 0.5
def load(layer):
    layer.weight = jnp.full_like(layer.weight, 0.25)
def state(layer):
    return {"weight": layer.weight}
""",
}
TWINS = """
import hashlib
def digest(model):
    arrays = {k: np.asarray(v) for k, v in state(model).items()}
    return {k: hashlib.blake2b(v.tobytes()).hexdigest() for k, v in arrays.items()}
shared, alone = make(), make()
def both(do):
    do(*(shared if do is step else shared[:1]))
    do(*(alone if do is step else alone[:1]))
"""


Arrays = dict[str, np.ndarray]


def attached(client: tidl.Client, name: str) -> Arrays:
    return {k: t.to_numpy() for k, t in client.get(name, access="write").flat.items()}


def digest(arrays: Arrays) -> dict[str, str]:
    return {k: hashlib.blake2b(v.tobytes()).hexdigest() for k, v in arrays.items()}


@pytest.fixture
def start(start_peer: Callable[..., Peer]) -> Callable[[str], Peer]:
    def started(framework: str) -> Peer:
        owner = start_owner(start_peer, framework, SIDES.get(framework, SIDE))
        owner.do(LAYERS[framework] + TWINS)
        return owner

    return started


def twins(owner: Peer) -> dict[str, str]:
    """What the state of both is by now: the same."""
    shared, alone = owner.ask("(digest(shared[0]), digest(alone[0]))")
    assert shared == alone
    found: dict[str, str] = shared
    return found


@pytest.mark.parametrize("framework", ["torch", "paddle"])
def test_training_from_both_sides(
    client: tidl.Client, start: Callable[[str], Peer], name: str, framework: str
) -> None:
    """A whole state, of which small tensors were put into shareable memory before."""
    owner = start(framework)
    owner.do("both(step)\nreport = tidl_share(shared[0], client, below=65536)")
    assert owner.ask("(report.tensors, report.left)") == (1, 1)
    before = twins(owner)
    for is_mine_first in (False, True):
        owner.do(f"p = share({name!r}, state(shared[0]))")
        assert owner.ask("(p.path, p.copied, p.moved_bytes > SIDE * SIDE)") == (
            "in-place",
            False,
            True,
        )
        mine = attached(client, name)
        owner.do("both(step)")
        assert before != digest(mine) == twins(owner)
        mine["weight"] *= 0.5
        owner.do("halve(alone[0])")
        assert digest(mine) == twins(owner)
        owner.do("both(step); both(halve)")
        assert digest(mine) == twins(owner)
        owner.do("both(load)")
        assert all((array == 0.25).all() for array in mine.values())
        owner.do("both(step)")
        assert digest(mine) == twins(owner)
        if is_mine_first:
            mine.clear()
        owner.do(f"client.unshare({name!r})")
        before = twins(owner)
        owner.do("both(step)")
        assert before["weight"] != twins(owner)["weight"]
        if mine:
            assert digest(mine)["weight"] == before["weight"]
        before = twins(owner)
    # The layer goes while its weight is shared, and then what was shared.
    owner.do(f"share({name!r}, state(shared[0]))\ndel shared")
    mine = attached(client, name)
    assert digest(mine) == before
    mine["weight"] += 1
    owner.do(f"client.unshare({name!r})\nshared = make()\nboth(step)")
    assert digest(mine) != before


def check_donation(client: tidl.Client, owner: Peer, name: str) -> None:
    """`donate_argnums` would let JAX compute in the memory that others have."""
    owner.do("halved = jax.jit(lambda w: w * 0.5, donate_argnums=0)")
    owner.do(f"w = make_shareable(lambda: jnp.ones((SIDE, SIDE)), {name!r})\nshare({name!r}, w)")
    mine = client.get(name, access="write").to_numpy()
    owner.do("half = halved(w).block_until_ready()")
    assert owner.ask("w.is_deleted()") is False
    assert (mine == 1).all()
    mine[1, 2] = 5
    assert owner.ask("(float(w[1, 2]), float(half[1, 2]))") == (5, 0.5)
    owner.do(f"client.unshare({name!r})\nhalf = halved(w).block_until_ready()")
    assert owner.ask("(w.is_deleted(), float(half[1, 2]))") == (True, 2.5)
    assert mine[1, 2] == 5


@pytest.mark.parametrize("framework", ["tensorflow", "jax"])
def test_steps_that_give_other_memory(
    client: tidl.Client, start: Callable[[str], Peer], name: str, framework: str
) -> None:
    """What the other side writes is trained on; what comes of it is shared anew."""
    owner = start(framework)
    owner.do("both(step)")
    for do in ("step", "halve", "load"):
        owner.do(f"p = share({name!r}, state(shared[0]))")
        assert owner.ask("(p.path, p.moved_bytes >= SIDE * SIDE * 4)") == ("in-place", True)
        mine = attached(client, name)
        assert digest(mine) == twins(owner)
        mine["weight"] *= 0.5
        owner.do("halve(alone[0])")
        before = twins(owner)
        assert digest(mine) == before
        owner.do(f"both({do})")
        assert before != twins(owner)
        assert digest(mine) == before
        mine["weight"] += 1  # is no longer the layer's
        owner.do(f"client.unshare({name!r}); both(step)")
        twins(owner)
    if framework == "jax":
        check_donation(client, owner, name)
