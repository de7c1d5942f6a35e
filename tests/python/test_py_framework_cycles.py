# SPDX-License-Identifier: Apache-2.0
"""100,000 imports and exports in each framework leave no memory, no descriptor and no lease behind.

Each framework runs in a process of its own, whose memory is measured once the first rounds have
filled all caches.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from python_brokers import broker_pids, descriptors, eventually, is_let_go
from python_mxnet import MXNET_PYTHON, mxnet_peer
from python_peer import Peer

import tidl

pytestmark = pytest.mark.frameworks

CYCLES, WARM_UP, CHUNK = 100_000, 10_000, 10_000

# Nothing that could be lost is as small as this.
BYTES_PER_CYCLE = 32


@dataclass(frozen=True)
class Framework:
    module: str
    take: str
    setup: str = ""
    own_loss_bytes: int = 0  # in each cycle, without tidl


FRAMEWORKS = {
    "numpy": Framework("numpy", "x.to_numpy()"),
    "torch": Framework("torch", "x.to_torch()"),
    # paddle.from_dlpack(numpy.ones(3)) loses as much.
    "paddle": Framework("paddle", "x.to_paddle()", own_loss_bytes=80),
    "jax": Framework("jax", "x.to_jax()"),
    "tensorflow": Framework("tensorflow", "x.to_tensorflow()"),
    "mxnet": Framework("mxnet", "x.to_mxnet()"),
    "tvm": Framework("tvm_ffi", "x.to_tvm()"),
    "taichi": Framework(
        "taichi",
        "(x.to_taichi(), tidl.taichi.to_dlpack(own))[0]",
        "import tidl.taichi\ntaichi.init(taichi.cpu, log_level=taichi.ERROR)\n"
        "own = taichi.ndarray(taichi.f32, (3, 4))",
    ),
    "onnxruntime": Framework("onnxruntime", "onnxruntime.OrtValue.from_dlpack(x)"),
    "warp": Framework("warp", "warp.from_dlpack(x)", "warp.init()"),
}

# Takes the shared tensor, hands the framework's out again, and now and then gets and publishes.
LOOP = """
import gc
import {module}
{setup}
client = tidl.connect()
x = client.get({name!r}, access="write")

def run(count):
    global x
    for number in range(count):
        tensor = {take}
        capsule = tidl.to_dlpack(tensor)
        del capsule
        if number % 100 == 0:
            client.publish({name!r} + "/again", tensor, replace=True)
            del tensor
            x.release()
            x = client.get({name!r}, access="write")
    tensor = None
    gc.collect()

def pages():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1])
"""


@pytest.fixture
def start(start_peer: Callable[..., Peer], tmp_path: Path) -> Callable[[str, str], Peer]:
    def start(framework: str, setup: str) -> Peer:
        quiet = {"TF_CPP_MIN_LOG_LEVEL": "3"}
        if framework != "mxnet":
            return start_peer(setup, environment=quiet)
        return mxnet_peer(setup, tmp_path)

    return start


def is_here(framework: str) -> bool:
    if framework == "mxnet":
        return MXNET_PYTHON.exists()
    return importlib.util.find_spec(FRAMEWORKS[framework].module) is not None


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_hundred_thousand_cycles(
    client: tidl.Client,
    runtime: Path,
    start: Callable[[str, str], Peer],
    name: str,
    framework: str,
) -> None:
    if not is_here(framework):
        pytest.skip(f"{framework} is not installed")
    known = FRAMEWORKS[framework]
    client.publish(name, np.ones((3, 4), "float32"))
    (broker,) = broker_pids(runtime)
    setup = LOOP.format(module=known.module, setup=known.setup, take=known.take, name=name)
    with start(framework, setup) as peer:

        def state() -> dict[str, Any]:
            return {
                "mine": len(descriptors(peer.pid)),
                "broker": len(descriptors(broker)),
                "maps": Path(f"/proc/{peer.pid}/maps").read_text().count("/memfd:tidl"),
                "leases": [holder.pid for holder in client.inspect(name).holders],
                "names": len(client.list(f"{name}/**")),
            }

        peer.do(f"run({WARM_UP})")
        before, pages = state(), peer.ask("pages()")
        assert before["leases"] == [peer.pid]
        for _ in range(CYCLES // CHUNK):
            peer.do(f"run({CHUNK})")
        assert eventually(lambda: state() == before), (state(), before)
        grown = (peer.ask("pages()") - pages) * 4096 / CYCLES
        assert grown < BYTES_PER_CYCLE + known.own_loss_bytes
        peer.do("x.release(); client.dispatch()")
        assert is_let_go(client, name)
