# SPDX-License-Identifier: Apache-2.0
"""Code written for the frameworks' own `to_dlpack` and `from_dlpack`, with tidl in the middle."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest
from python_mxnet import MXNET_PYTHON, mxnet_peer
from python_peer import Peer

pytestmark = pytest.mark.frameworks

QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3"}

# What is imported, a tensor of 0, 1, 2, its capsule, and how a capsule is taken, as each has it.
OLD_CODE = {
    "torch": (
        "import torch\nfrom torch.utils import dlpack",
        "torch.arange(3, dtype=torch.float32)",
        "dlpack.to_dlpack(t)",
        "dlpack.from_dlpack(c).tolist()",
    ),
    "paddle": (
        "import paddle\nfrom paddle.utils import dlpack",
        "paddle.arange(3, dtype='float32')",
        "dlpack.to_dlpack(t)",
        "dlpack.from_dlpack(c).tolist()",
    ),
    "tensorflow": (
        "import tensorflow as tf\nfrom tensorflow.experimental import dlpack",
        "tf.range(3.0)",
        "dlpack.to_dlpack(t)",
        "dlpack.from_dlpack(c).numpy().tolist()",
    ),
    "mxnet": (
        "import mxnet as mx",
        "mx.nd.arange(3)",
        "mx.nd.to_dlpack_for_write(t)",
        "mx.nd.from_dlpack(c).asnumpy().tolist()",
    ),
}


@pytest.mark.dlpack_rule("P2")
@pytest.mark.parametrize("framework", OLD_CODE)
def test_capsules_both_ways(
    start_peer: Callable[..., Peer], tmp_path: Path, framework: str
) -> None:
    setup, make, export, take = OLD_CODE[framework]
    setup += "\nimport numpy as np"
    if framework == "mxnet":
        if not MXNET_PYTHON.exists():
            pytest.skip(f"there is no {MXNET_PYTHON}")
        # MXNet calls the deleter of a NumPy array without the GIL, and NumPy 1.23 does not take it.
        # Python's development mode would end the process for that.
        with mxnet_peer(setup, tmp_path, {"PYTHONMALLOC": "default"}) as peer:
            exchange(peer, make, export, take)
    elif not importlib.util.find_spec(framework):
        pytest.skip(f"{framework} is not installed")
    else:
        exchange(start_peer(setup, environment=QUIET), make, export, take)


def exchange(peer: Peer, make: str, export: str, take: str) -> None:
    peer.do(f"t = {make}")
    # Their capsule, and their tensor itself, for a consumer that takes objects only.
    for source in (export, "t"):
        peer.do(f"a = np.from_dlpack(tidl.from_dlpack({source}))")
        assert peer.ask("a.tolist()") == [0, 1, 2]
        peer.do("del a")
    # And a capsule for them: of their own tensor, of somebody else's, and of shared memory.
    peer.do("client = tidl.connect()\nx = client.full((3,), 7)\nn = np.ones(3, 'float32')")
    for source, values in (("t", [0, 1, 2]), ("n", [1, 1, 1]), ("x", [7, 7, 7])):
        peer.do(f"c = tidl.to_dlpack({source})")
        assert peer.ask(take) == values


@pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("jax", "paddle")), reason="not installed"
)
def test_producers_that_jax_does_not_understand(start_peer: Callable[..., Peer]) -> None:
    peer = start_peer("import paddle, jax\ntake = jax.dlpack.from_dlpack")
    peer.do("p = paddle.ones([64, 4])\na = take(tidl.from_dlpack(p), copy=False)")
    assert peer.ask("(a.unsafe_buffer_pointer() == p.data_ptr(), float(a.sum()))") == (True, 256)
    peer.do("b = take(tidl.from_dlpack(tidl.to_dlpack(p)))")
    assert peer.ask("float(b.sum())") == 256
