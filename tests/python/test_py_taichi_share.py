# SPDX-License-Identifier: Apache-2.0
"""`tidl.taichi.share`: Taichi's own fields and ndarrays, shared where they lie."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import taichi_families
import taichi_shared
from inplace_owners import Memory
from python_brokers import end_brokers, eventually, memfd_inode
from python_peer import Peer, PeerError

import tidl

pytestmark = pytest.mark.frameworks

# In a file: Taichi reads the source of its kernels.
KERNELS = """
import tidl, tidl.taichi
from taichi_layouts import start

start(ti)
client = tidl.connect()
x = ti.field(ti.f32)
builder = ti.FieldsBuilder()
builder.dense(ti.ij, (8, 4)).place(x)
tree = builder.finalize()

@ti.kernel
def paint(value: ti.f32):
    for i, j in x:
        x[i, j] = value

@ti.kernel
def add(count: ti.i32):
    for _ in range(count):
        ti.atomic_add(x[0, 0], 1)

paint(1.0)

def share(name, **options):
    return tidl.taichi.share(x, name, client=client, **options)
"""


@pytest.fixture(scope="module", params=taichi_families.FAMILIES)
def worker(request: pytest.FixtureRequest, session_client: tidl.Client) -> Iterator[Peer]:
    with taichi_families.worker(request.param, "taichi_shared") as peer:
        yield peer


@pytest.mark.parametrize("case", taichi_families.cases_of(taichi_shared))
def test_shared(worker: Peer, name: str, case: str) -> None:
    taichi_families.run(worker, f"taichi_shared.{case}(ti, {name!r})")


@pytest.mark.parametrize(
    "make", ["ti.ndarray(ti.i32, (4096, 4096))", "taichi_shared.tree_of(ti, ti.i32, 4096, 4096)[0]"]
)
def test_there_is_no_second_copy(
    client: tidl.Client, runtime: Path, worker: Peer, name: str, make: str
) -> None:
    worker.do("taichi_shared.start(ti); client = tidl.connect()")
    worker.do(f"x = {make}; x.fill(1)")
    memory = Memory(worker, runtime)
    worker.do(f"tidl.taichi.share(x, {name!r}, client=client)")
    mine = client.get(name, access="write").to_numpy()
    worker.do("x.fill(3)")
    mine[1, 2] = 7
    assert memory.is_more_by(-64, 64, 64), memory
    assert worker.ask("x[1, 2]") == 7
    worker.do(f"client.unshare({name!r})")
    assert memory.is_more_by(0, 0, 64), memory
    mine[1, 2] = 8
    assert worker.ask("x[1, 2]") == 7
    del mine
    assert eventually(lambda: client.dispatch() or memory.is_more_by(0, 0, 0)), memory
    worker.do("client.close(); del x")


@contextmanager
def owner_of(family: str, folder: Path) -> Iterator[Peer]:
    """A process of its own, which a test may end, with a field `x` of ones and kernels over it."""
    (folder / "kernels.py").write_text(f"import {family} as ti\n{KERNELS}")
    first = f"import sys\nsys.path.insert(0, {str(folder)!r})"
    with taichi_families.worker(family, "taichi_layouts", first) as peer:
        peer.do("import kernels")
        yield peer


@pytest.fixture(params=taichi_families.FAMILIES)
def owner(
    request: pytest.FixtureRequest, session_client: tidl.Client, tmp_path: Path
) -> Iterator[Peer]:
    with owner_of(request.param, tmp_path) as peer:
        yield peer


def test_written_from_both_sides(client: tidl.Client, owner: Peer, name: str) -> None:
    owner.do(f"kernels.share({name!r})")
    mine = client.get(name, access="write").to_numpy()
    assert (mine == 1).all()
    owner.do("kernels.paint(0.5)")
    assert (mine == 0.5).all()
    mine[3, 2] = 7
    assert owner.ask("float(kernels.x[3, 2])") == 7
    inode = memfd_inode(mine.ctypes.data)
    assert inode
    assert f" {inode} " in Path(f"/proc/{owner.pid}/maps").read_text()


@pytest.mark.parametrize("framework", ["torch", "paddle"])
def test_frameworks_compute_in_it(
    client: tidl.Client, owner: Peer, name: str, framework: str
) -> None:
    pytest.importorskip(framework)
    owner.do(f"kernels.share({name!r})")
    x = getattr(client.get(name, access="write"), f"to_{framework}")()
    x[:] = 5
    assert owner.ask("float(kernels.x.to_numpy().sum())") == 160
    owner.do("kernels.paint(2.0)")
    assert float(x.sum()) == 64


def test_both_sides_add_at_once(
    client: tidl.Client, owner: Peer, name: str, tmp_path: Path
) -> None:
    """Atomic additions of two processes with Taichi, to one element."""
    owner.do(f"kernels.paint(0.0); kernels.share({name!r})")
    family = owner.ask("ti.__name__")
    (tmp_path / "others.py").write_text(
        f"import {family} as ti\n"
        "from taichi_layouts import start\n"
        "import tidl, tidl.taichi\n"
        "start(ti)\nclient = tidl.connect()\n"
        f"x = tidl.taichi.attach_field(client.get({name!r}, access='write'), framework=ti)\n"
        "@ti.kernel\n"
        "def add(count: ti.i32):\n"
        "    for _ in range(count):\n"
        "        ti.atomic_add(x[0, 0], 1)\n"
    )
    first = f"import sys\nsys.path.insert(0, {str(tmp_path)!r})"
    with taichi_families.worker(family, "taichi_layouts", first) as other:
        other.do("import others")
        owner.start("kernels.add(200000)")
        other.do("others.add(200000)")
        owner.finish()
    assert client.get(name).to_numpy()[0, 0] == 400000


def test_freed_first_by_either_side(client: tidl.Client, owner: Peer, name: str) -> None:
    owner.do(f"kernels.share({name!r})")
    mine = client.get(name, access="write").to_numpy()
    owner.do("kernels.paint(3.0); kernels.tree.destroy(); ti.reset()")
    assert (mine == 3).all()
    mine[:] = 4
    assert (client.get(name).to_numpy() == 4).all()


def test_the_other_side_goes_first(client: tidl.Client, owner: Peer, name: str) -> None:
    owner.do(f"kernels.share({name!r})")
    mine = client.get(name, access="write").to_numpy()
    mine[:] = 4
    del mine
    client.remove(name)
    owner.do("kernels.client.dispatch()")
    assert owner.ask("float(kernels.x.to_numpy().sum())") == 128
    owner.do("kernels.paint(5.0); kernels.tree.destroy()")


def test_the_owner_is_killed(client: tidl.Client, owner: Peer, name: str) -> None:
    owner.do(f"kernels.share({name!r}); kernels.paint(3.0)")
    mine = client.get(name, access="write").to_numpy()
    owner.kill()
    assert eventually(lambda: len(client.inspect(name).holders) == 1)
    assert (mine == 3).all()
    mine[:] = 4
    assert (client.get(name).to_numpy() == 4).all()


def test_who_has_it_is_killed(client: tidl.Client, owner: Peer, name: str) -> None:
    owner.do(f"kernels.share({name!r})")
    with Peer("client = tidl.connect()") as other:
        other.do(f"y = client.get({name!r}, access='write').to_numpy(); y[:] = 4")
        other.kill()
    assert eventually(lambda: len(client.inspect(name).holders) == 1)
    assert owner.ask("float(kernels.x.to_numpy().sum())") == 128
    owner.do("kernels.paint(5.0)")
    assert (client.get(name).to_numpy() == 5).all()


def test_the_broker_ends(owner: Peer, name: str, own_runtime: Path) -> None:
    """What is shared stays shared, and can be made private again or freed."""
    owner.do(f"import os\nos.environ['XDG_RUNTIME_DIR'] = {str(own_runtime)!r}")
    owner.do("kernels.client = tidl.connect()")
    owner.do(f"kernels.share({name!r})")
    with tidl.connect() as client:
        mine = client.get(name, access="write").to_numpy()
        client.shutdown()
    mine[:] = 6
    assert owner.ask("float(kernels.x.to_numpy().sum())") == 192
    owner.do("kernels.client.close(); kernels.paint(2.0)")
    assert owner.ask("float(kernels.x.to_numpy().sum())") == 64
    owner.do("kernels.tree.destroy(); ti.reset()")


def test_where_writers_cannot_be_stopped(
    client: tidl.Client, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No userfaultfd: refused, unless the caller says that no kernel runs."""
    monkeypatch.setenv("TIDL_WITHOUT", "userfaultfd")
    with taichi_families.worker(taichi_families.FAMILIES[0], "taichi_layouts") as peer:
        peer.do(
            "import tidl.taichi\n"
            "taichi_layouts.start(ti)\n"
            "client = tidl.connect()\n"
            "x = ti.ndarray(ti.f32, (3000,)); x.fill(2)\n"
            "try:\n"
            f"    tidl.taichi.share(x, {name!r}, client=client)\n"
            "except tidl.CopyNeededError as error:\n"
            "    reason = error.reason\n"
        )
        assert peer.ask("reason") == "guard"
        assert client.list(name) == []
        peer.do(f"client.publish({name!r}, x, copy=False, nobody_writes=True); x.fill(5)")
        assert client.get(name).to_numpy().sum() == 15000
        peer.do(f"client.unshare({name!r}); x.fill(6)")
        assert peer.ask("float(x.to_numpy().sum())") == 18000
        # What would be wrong to say: `case_no_write_is_lost` without the guard.
        peer.do("import taichi_shared")
        lost = f"taichi_shared.writes_lost(ti, {name!r}, 5000, nobody_writes=True)"
        assert peer.ask(lost) > 0


def test_at_the_end_of_the_interpreter(client: tidl.Client, owner: Peer, name: str) -> None:
    owner.do(f"kernels.share({name!r}); kernels.paint(3.0)")
    assert owner.end() == 0
    assert (client.get(name).to_numpy() == 3).all()


def test_private_again_without_the_broker(own_runtime: Path, owner: Peer) -> None:
    owner.do("kernels.client.close(); kernels.client = tidl.connect(); kernels.share('x')")
    with tidl.connect() as client:
        mine = client.get("x", access="write").to_numpy()
        end_brokers(own_runtime)
        with pytest.raises(PeerError) as caught:
            owner.do("kernels.client.unshare('x')")
        assert caught.value.code == "BROKER_GONE"
        owner.do("kernels.paint(5.0)")
        mine[:] = 6
        assert owner.ask("float(kernels.x.to_numpy().sum())") == 160
        owner.do("kernels.tree.destroy()")
        assert owner.end() == 0


def test_where_no_writer_can_be_stopped(
    client: tidl.Client, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDL_WITHOUT", "userfaultfd")
    with owner_of(taichi_families.FAMILIES[0], tmp_path) as owner:
        with pytest.raises(PeerError) as caught:
            owner.do(f"kernels.share({name!r})")
        assert caught.value.code == "COPY_NEEDED"
        owner.do(f"p = kernels.share({name!r}, nobody_writes=True)")
        assert owner.ask("p.path") == "in-place"
        mine = client.get(name, access="write").to_numpy()
        owner.do("kernels.paint(3.0)")
        assert (mine == 3).all()
        owner.do(f"kernels.client.unshare({name!r}); kernels.paint(4.0)")
        assert (mine == 3).all()
