# SPDX-License-Identifier: Apache-2.0
"""Taichi kernels over memory of another process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from python_brokers import memfd_inode
from python_peer import Peer, PeerError

import tidl

pytest.importorskip("taichi", exc_type=ImportError)
pytestmark = pytest.mark.frameworks

# In a file: Taichi reads the source of its kernels.
KERNELS = """
import taichi as ti
import numpy as np

ti.init(arch=ti.cpu, log_level=ti.ERROR, offline_cache=False)

@ti.kernel
def paint(canvas: ti.types.ndarray(dtype=ti.f32, ndim=2), value: ti.f32):
    for i, j in canvas:
        canvas[i, j] = value

@ti.kernel
def number(canvas: ti.types.ndarray(dtype=ti.f32, ndim=3), a: ti.i32, b: ti.i32, c: ti.i32):
    for x, y, z in canvas:
        canvas[x, y, z] = ti.cast(a * x + b * y + c * z, ti.f32)

@ti.kernel
def increment(canvas: ti.types.ndarray(ndim=1)):
    for i in canvas:
        canvas[i] += 1

@ti.kernel
def only_reads(canvas: ti.types.ndarray(dtype=ti.f32, ndim=2)) -> ti.f32:
    total = 0.0
    for i, j in canvas:
        total += canvas[i, j]
    return total
"""


@pytest.fixture(scope="module")
def taichi_peer(
    session_client: tidl.Client, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Peer]:
    folder: Path = tmp_path_factory.mktemp("kernels")
    (folder / "kernels.py").write_text(KERNELS)
    setup = f"sys.path.insert(0, {str(folder)!r})\nfrom kernels import *\nclient = tidl.connect()"
    with Peer(setup, environment={"ENABLE_TAICHI_HEADER_PRINT": "False"}) as peer:
        yield peer


def test_kernel_paints_the_publishers_memory(
    client: tidl.Client, taichi_peer: Peer, name: str
) -> None:
    mine = client.full((8, 4), 1).to_numpy()
    client.publish(name, mine)
    taichi_peer.do(
        f"y = client.get({name!r}, access='write'); canvas = y.to_taichi(); paint(canvas, 0.0)"
    )
    assert not mine.any()
    mine[:] = 2
    assert taichi_peer.ask("only_reads(canvas)") == 64
    inode = memfd_inode(mine.ctypes.data)
    assert inode
    assert memfd_inode(taichi_peer.ask("canvas.ctypes.data"), taichi_peer.pid) == inode


def test_permuted_view_through_its_axes(client: tidl.Client, taichi_peer: Peer, name: str) -> None:
    view = client.empty((2, 3, 4)).to_numpy().transpose(2, 0, 1)
    client.publish(name, view)
    taichi_peer.do(
        f"y = client.get({name!r}, access='write')\n"
        "axes = y.compact_axes\n"
        "weights = [(100, 10, 1)[axis] for axis in axes]\n"
        "number(y.to_taichi(axes=axes), *weights)"
    )
    i, j, k = np.indices(view.shape)
    assert np.array_equal(view, 100 * i + 10 * j + k)


def test_column_major_tensors_are_not_copied_in_and_out(
    client: tidl.Client, taichi_peer: Peer, name: str
) -> None:
    client.publish(name, client.empty((8, 4)).to_numpy().T)
    with pytest.raises(PeerError, match=r"axes=\(1, 0\)") as caught:
        taichi_peer.do(f"paint(client.get({name!r}, access='write').to_taichi(), 1.0)")
    assert caught.value.code == "LAYOUT"


DTYPES = [
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
]


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(client: tidl.Client, taichi_peer: Peer, name: str, dtype: str) -> None:
    mine = client.full((5,), 3, dtype=dtype).to_numpy()
    client.publish(name, mine)
    taichi_peer.do(f"increment(client.get({name!r}, access='write').to_taichi())")
    assert mine.tolist() == [4] * 5


def test_taichis_own_dtype_words(taichi_peer: Peer) -> None:
    words = "f16 f32 f64 i8 i16 i32 i64 u8 u16 u32 u64 u1"
    names = taichi_peer.ask(
        f"[client.empty((1,), dtype=getattr(ti, word)).dtype for word in {words!r}.split()]"
    )
    assert names == [
        *("float16", "float32", "float64", "int8", "int16", "int32", "int64"),
        *("uint8", "uint16", "uint32", "uint64", "bool"),
    ]


def test_read_only_memory_is_refused(client: tidl.Client, taichi_peer: Peer, name: str) -> None:
    client.publish(name, client.full((2, 2), 3))
    with pytest.raises(PeerError, match="readonly_ok=True") as caught:
        taichi_peer.do(f"client.get({name!r}).to_taichi()")
    assert caught.value.code == "READ_ONLY"
    read = f"only_reads(client.get({name!r}).to_taichi(readonly_ok=True))"
    assert taichi_peer.ask(read) == 12


def test_taichi_publishes_what_paints_itself(
    client: tidl.Client, taichi_peer: Peer, name: str
) -> None:
    taichi_peer.do(
        "x = client.empty((3, 4), dtype=ti.f32); canvas = x.to_taichi(); paint(canvas, 7.0)\n"
        f"p = client.publish({name!r}, canvas)"
    )
    assert taichi_peer.ask("p.copied") is False
    assert client.get(name).to_numpy().tolist() == [[7.0] * 4] * 3


@pytest.mark.parametrize("take", ["y.to_taichi()", "tidl.taichi.from_dlpack(y)"])
def test_immutable_memory_is_written_privately(
    client: tidl.Client, taichi_peer: Peer, name: str, take: str
) -> None:
    """Taichi writes through whatever it gets: here to pages of its own."""
    client.publish(name, np.ones((4, 8), dtype="f4"), access="immutable")
    taichi_peer.do(f"import tidl.taichi\ny = client.get({name!r})\na = {take}\npaint(a, 7.0)")
    assert taichi_peer.ask("float(only_reads(a))") == 7 * 32
    assert taichi_peer.ask("float(y.to_numpy().sum())") == 32
    assert client.get(name).to_numpy().sum() == 32
