# SPDX-License-Identifier: Apache-2.0
"""release() in the midst of another use of the same tensor: that use goes on with whole memory.

Each runs in a process of its own, where malloc() overwrites what is freed.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import tidl

# A finaliser that runs whenever the collector does, which may be inside any allocation.
FINALISER = """
import gc, tidl

class Releases:
    def __init__(self, tensor):
        self.tensor = tensor
        self.cycle = self

    def __del__(self):
        self.tensor.release()
        self.kept = [bytearray(b"\\xa5" * size) for size in range(60, 400)]

shape = (1, 2, 1, 1) * 10
client = tidl.connect()
client.publish(name, client.empty(shape, dtype="int8"), metadata={"key": "word" * 20}, replace=True)
gc.set_threshold(1, 1, 1)
for _ in range(50):
    gc.disable()
    tensor = client.get(name)
    Releases(tensor)
    gc.enable()
    try:
        found = use(tensor)
    except tidl.ReleasedError:
        continue
    assert found == expected, found
"""

USES = {
    "shape": ("tensor.shape", "shape"),
    "strides": ("tensor.strides", "memoryview(client.empty(shape, dtype='int8')).strides"),
    "name": ("tensor.name", "name"),
    "metadata": ("tensor._metadata_json", '\'{"key":"\' + "word" * 20 + \'"}\''),
    "array interface": ("tensor.__array_interface__['shape']", "shape"),
    "buffer": ("memoryview(tensor).shape", "shape"),
}

THREADS = """
import threading
import numpy, tidl

class Held:
    def __init__(self, capsule):
        self.capsule = capsule

    def __dlpack__(self, **_):
        return self.capsule

    def __dlpack_device__(self):
        return (1, 0)

shape = (1 << 18, 7)
client = tidl.connect()
for _ in range(30):
    tensor = client.empty(shape)
    go = threading.Event()
    thread = threading.Thread(
        target=lambda: (go.wait(), tensor.release(), [bytearray(200) for _ in range(500)])
    )
    thread.start()
    go.set()
    try:
        capsule = tensor.__dlpack__(copy=True, max_version=version)
    except tidl.ReleasedError:
        continue
    finally:
        thread.join()
    assert numpy.from_dlpack(Held(capsule)).shape == shape
"""


def run(script: str) -> None:
    environment = {**os.environ, "MALLOC_PERTURB_": "165"}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("use", "expected"), USES.values(), ids=USES.keys())
def test_released_by_a_finaliser(
    session_client: tidl.Client, name: str, use: str, expected: str
) -> None:
    script = f"name = {name!r}\nuse = lambda tensor: {use}\n{FINALISER}"
    run(script.replace("found == expected", f"found == {expected}"))


@pytest.mark.parametrize("version", [(1, 1), None])
def test_released_by_another_thread(
    session_client: tidl.Client, version: tuple[int, int] | None
) -> None:
    run(f"version = {version}\n{THREADS}")
