# SPDX-License-Identifier: Apache-2.0
"""`tidl.taichi.attach_field`: fields of Taichi that are tensors of other processes."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import taichi_attached
import taichi_families
from python_brokers import eventually, memfd_inode
from python_peer import Peer, PeerDiedError

import tidl

pytestmark = pytest.mark.frameworks

# In a file: Taichi reads the source of its kernels.
KERNELS = """
import tidl, tidl.taichi
from taichi_layouts import start

start(ti)
client = tidl.connect()

def take(name, **options):
    global x
    access = options.pop("access", "write")
    x = tidl.taichi.attach_field(client.get(name, access=access), framework=ti, **options)

def paint(value):
    kernel_paint(value)

@ti.kernel
def before() -> ti.i32:
    return 1

before()  # kernels that were there already do not mind

@ti.kernel
def kernel_paint(value: ti.f32):
    for i, j in x:
        x[i, j] = value

@ti.kernel
def add(count: ti.i32):
    for _ in range(count):
        ti.atomic_add(x[0, 0], 1)
"""


@pytest.fixture(scope="module", params=taichi_families.FAMILIES)
def worker(request: pytest.FixtureRequest, session_client: tidl.Client) -> Iterator[Peer]:
    with taichi_families.worker(request.param, "taichi_attached") as peer:
        yield peer


@pytest.mark.parametrize("case", taichi_families.cases_of(taichi_attached))
def test_attached(worker: Peer, name: str, case: str) -> None:
    taichi_families.run(worker, f"taichi_attached.{case}(ti, {name!r})")


@pytest.fixture(params=taichi_families.FAMILIES)
def painter(
    request: pytest.FixtureRequest, session_client: tidl.Client, tmp_path: Path
) -> Iterator[Peer]:
    """A process of its own, which a test may end, with kernels over a field `x`."""
    (tmp_path / "kernels.py").write_text(f"import {request.param} as ti\n{KERNELS}")
    first = f"import sys\nsys.path.insert(0, {str(tmp_path)!r})"
    with taichi_families.worker(request.param, "taichi_layouts", first) as peer:
        peer.do("import kernels")
        yield peer


def test_written_from_both_sides(client: tidl.Client, painter: Peer, name: str) -> None:
    mine = client.full((8, 4), 1).to_numpy()
    client.publish(name, mine)
    painter.do(f"kernels.take({name!r}); kernels.paint(0.5)")
    assert (mine == 0.5).all()
    mine[3, 2] = 7
    assert painter.ask("float(kernels.x[3, 2])") == 7
    painter.do("kernels.add(1000)")
    assert mine[0, 0] == 1000.5
    inode = memfd_inode(mine.ctypes.data)
    maps = Path(f"/proc/{painter.pid}/maps").read_text()
    assert f" {inode} " in maps


@pytest.mark.parametrize("framework", ["torch", "paddle"])
def test_tensors_of_frameworks(
    client: tidl.Client, painter: Peer, name: str, framework: str
) -> None:
    pytest.importorskip(framework)
    x = getattr(client.empty((8, 4)), f"to_{framework}")()
    x[:] = 1
    client.publish(name, x)
    painter.do(f"kernels.take({name!r}); kernels.paint(0.0)")
    assert float(x.sum()) == 0
    x[1, 1] = 3
    assert painter.ask("float(kernels.x.to_numpy().sum())") == 3


def test_freed_first_by_either_side(client: tidl.Client, painter: Peer, name: str) -> None:
    mine = client.full((8, 4), 1).to_numpy()
    client.publish(name, mine)
    painter.do(f"kernels.take({name!r}); kernels.paint(2.0)")
    client.remove(name)
    del mine
    painter.do("kernels.paint(3.0)")
    assert painter.ask("float(kernels.x.to_numpy().sum())") == 96

    mine = client.full((8, 4), 1).to_numpy()
    client.publish(name, mine)
    painter.do(f"tidl.taichi.detach_field(kernels.x); kernels.take({name!r})")
    painter.do("kernels.paint(4.0); tidl.taichi.detach_field(kernels.x)")
    assert mine.sum() == 128


def test_the_producer_is_killed(painter: Peer, session_client: tidl.Client, name: str) -> None:
    with Peer("client = tidl.connect()") as producer:
        producer.do(f"x = client.full((8, 4), 1); client.publish({name!r}, x)")
        painter.do(f"kernels.take({name!r})")
        producer.kill()
    painter.do("kernels.paint(3.0)")
    assert session_client.get(name).to_numpy().sum() == 96


def test_the_painter_is_killed(client: tidl.Client, painter: Peer, name: str) -> None:
    mine = client.full((8, 4), 1).to_numpy()
    client.publish(name, mine)
    painter.do(f"kernels.take({name!r}); kernels.paint(2.0)")
    assert len(client.inspect(name).holders) == 2
    painter.kill()
    assert eventually(lambda: len(client.inspect(name).holders) == 1)
    assert mine.sum() == 64


def test_writing_to_what_may_be_read_only(client: tidl.Client, painter: Peer, name: str) -> None:
    client.publish(name, client.full((8, 4), 1))
    painter.do(f"kernels.take({name!r}, access='read', readonly_ok=True)")
    assert painter.ask("float(kernels.x.to_numpy().sum())") == 32
    with pytest.raises(PeerDiedError, match=f"status -{int(signal.SIGSEGV)}"):
        painter.do("kernels.paint(3.0)")
    assert client.get(name).to_numpy().sum() == 32


def test_in_order_at_the_end_of_the_interpreter(
    client: tidl.Client, painter: Peer, name: str
) -> None:
    client.publish(name, client.full((8, 4), 1))
    painter.do(f"kernels.take({name!r}); kernels.paint(2.0)")
    assert painter.end() == 0
    assert eventually(lambda: client.inspect(name).holders == ())
    assert client.get(name).to_numpy().sum() == 64
