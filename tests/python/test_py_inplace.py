# SPDX-License-Identifier: Apache-2.0
"""NumPy's own memory shared where it lies, in two processes; and what is refused."""

from __future__ import annotations

import ctypes.util
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from conftest import NUMPY_ONLY
from python_brokers import eventually, is_let_go, memfd_inode
from python_peer import Peer, PeerError

import tidl

pytestmark = pytest.mark.skipif(NUMPY_ONLY, reason="a sanitizer has replaced malloc")

# Before any test has made the heap large: collecting comes first.
if not NUMPY_ONLY:
    tidl.prefer_shareable()

ALONE = {"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=65536"}
SETUP = "import numpy as np\nclient = tidl.connect()"
MEGABYTE = 1 << 20


def array(count: int = 4 * MEGABYTE) -> np.ndarray:
    return np.arange(count, dtype=np.float32)


@pytest.fixture
def other(client: tidl.Client, start_peer: Callable[..., Peer]) -> Peer:
    return start_peer(SETUP, environment=ALONE)


def test_both_sides_see_writes(client: tidl.Client, other: Peer, name: str) -> None:
    mine = array()
    address = mine.ctypes.data
    publication = client.publish(name, mine, copy=False)
    assert (publication.path, publication.copied) == ("in-place", False)
    assert publication.moved_bytes == publication.exposed_bytes
    assert 0 <= publication.moved_bytes - mine.nbytes <= 2 * os.sysconf("SC_PAGE_SIZE")
    assert publication.neighbour_bytes == 0
    assert mine.ctypes.data == address
    assert np.array_equal(mine, array())
    assert memfd_inode(address) == client.inspect(name).segments[0].inode
    assert client.inspect(name).path == "in-place"

    other.do(f"y = client.get({name!r}, access='write').to_numpy()")
    assert other.ask("float(y[7])") == 7
    mine += 1
    assert other.ask("float(y[7])") == 8
    other.do("y *= 2")
    assert mine[7] == 16
    assert np.array_equal(mine, 2 * (array() + 1))

    client.unshare(name)
    assert memfd_inode(address) == 0
    assert np.array_equal(mine, 2 * (array() + 1))
    other.do("y[:] = 0")
    assert mine[7] == 16


@pytest.mark.parametrize("view", ["x[10:20, ::2]", "x.T", "x[::-1]", "x[5, 3:]", "x.reshape(-1)"])
def test_views_share_what_they_are_views_of(
    client: tidl.Client, other: Peer, name: str, view: str
) -> None:
    x = array().reshape(2048, 2048)
    mine = eval(view)
    publication = client.publish(name, mine, copy=False)
    assert publication.path == "in-place"
    other.do(f"y = client.get({name!r}, access='write').to_numpy(); y += 1")
    assert np.array_equal(mine - 1, eval(view, {"x": array().reshape(2048, 2048)}))
    assert (publication.neighbour_bytes > 0) == (mine.size < x.size)
    # The rest of it is recognised.
    whole = client.publish(f"{name}/whole", x)
    assert (whole.path, whole.moved_bytes) == ("in-place", 0)


def test_kept_until_nobody_holds_it(client: tidl.Client, other: Peer, name: str) -> None:
    mine = array()
    address = mine.ctypes.data
    client.publish(name, mine, copy=False)
    other.do(f"y = client.get({name!r}, access='write').to_numpy()")
    client.remove(name)
    del mine
    client.dispatch()
    other.do("y[:] = 3")  # would end the owner, had malloc got its block back
    assert memfd_inode(address) != 0
    other.do("del y; client.dispatch()")

    def is_over() -> bool:
        client.dispatch()
        return memfd_inode(address) == 0

    assert eventually(is_over)


TIDLCTL = Path(tidl.__file__).parent / "bin/tidlctl"


@pytest.mark.parametrize("how", ["tidlctl", "client", "replacement"])
def test_somebody_else_removes_it(client: tidl.Client, other: Peer, name: str, how: str) -> None:
    mine = array()
    address = mine.ctypes.data
    client.publish(name, mine, copy=False)
    other.do(f"y = client.get({name!r}, access='write').to_numpy()")
    if how == "tidlctl":
        subprocess.run([TIDLCTL, "rm", name], check=True)
    elif how == "client":
        other.do(f"client.remove({name!r})")
    else:
        other.do(f"client.publish({name!r}, np.zeros(3), replace=True)")
    client.dispatch()
    other.do("y[7] = 70")
    assert (memfd_inode(address) != 0, mine[7]) == (True, 70)  # it is still held there
    other.do("del y; client.dispatch()")

    def is_over() -> bool:
        client.dispatch()
        return memfd_inode(address) == 0

    assert eventually(is_over)
    assert mine[7] == 70
    # What is shared again under the same name is not taken for what was removed.
    client.publish(name, mine, copy=False, replace=True)
    client.dispatch()
    client.dispatch()
    assert memfd_inode(address) != 0
    client.unshare(name)


# ---- who may write ----


def test_read_only_arrays_are_for_readers(client: tidl.Client, other: Peer, name: str) -> None:
    mine = array()
    mine.flags.writeable = False
    assert client.publish(name, mine, copy=False).access == "live"
    other.do(f"y = client.get({name!r}).to_numpy()")
    with pytest.raises(PeerError) as caught:
        other.do(f"client.get({name!r}, access='write')")
    assert caught.value.code == "ACCESS"
    client.unshare(name)
    assert client.publish(name, mine, copy=False, writable=True).access == "shared"
    other.do(f"y = client.get({name!r}, access='write').to_numpy(); y[0] = 5")
    assert mine[0] == 5


def test_immutable_in_place(client: tidl.Client, other: Peer, name: str) -> None:
    mine = array()
    assert client.publish(name, mine, copy=False, access="immutable").path == "in-place"
    assert other.ask(f"float(client.get({name!r}).to_numpy()[7])") == 7
    client.unshare(name)
    mine[7] = 70
    assert other.ask(f"'{name}' in [entry.name for entry in client.list('**')]") is False


# ---- bundles ----


def test_a_bundle_in_one_segment(client: tidl.Client, other: Peer, name: str) -> None:
    mine = {"a": array(), "b": {"c": array(), "d": array()[:MEGABYTE]}}
    publication = client.publish(name, mine, copy=False)
    assert (publication.path, publication.tensor_count) == ("in-place", 3)
    assert len(client.inspect(name).segments) == 1
    other.do(f"b = client.get({name!r}, access='write')")
    other.do("for t in b.flat.values(): t.to_numpy()[3] = -1")
    assert [mine["a"][3], mine["b"]["c"][3], mine["b"]["d"][3]] == [-1, -1, -1]
    client.unshare(name)
    assert memfd_inode(mine["a"].ctypes.data) == 0


def test_all_of_a_bundle_or_nothing(client: tidl.Client, name: str) -> None:
    mine = {"large": array(), "small": np.ones(3)}
    with pytest.raises(tidl.CopyNeededError, match="small") as caught:
        client.publish(name, mine, copy=False)
    assert caught.value.reason == "small"
    assert memfd_inode(mine["large"].ctypes.data) == 0
    assert np.array_equal(mine["large"], array())


# ---- refused ----


def test_a_mapped_file_is_refused(client: tidl.Client, name: str, tmp_path: Path) -> None:
    mine = np.memmap(tmp_path / "file", dtype=np.uint8, mode="w+", shape=MEGABYTE)
    with pytest.raises(tidl.CopyNeededError) as caught:
        client.publish(name, mine, copy=False)
    assert caught.value.reason in ("mapping", "pool")


def test_unshare_what_was_not_shared(client: tidl.Client, name: str) -> None:
    client.publish(name, np.ones(3))
    with pytest.raises(tidl.NotFoundError):
        client.unshare(name)
    assert client.list(name)


def test_over_quota_nothing_is_moved(
    own_runtime: Path, start_peer: Callable[..., Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDLD_QUOTA_UID", str(8 * MEGABYTE))
    with tidl.connect() as client:
        mine = {"fits": array(MEGABYTE), "does not": array(MEGABYTE), "nor this": array()}
        for what in (mine["nor this"], mine):
            with pytest.raises(tidl.QuotaError):
                client.publish("x", what, copy=False)
            for part in mine.values():
                assert memfd_inode(part.ctypes.data) == 0
                assert np.array_equal(part, array(part.size))


@pytest.mark.parametrize("allocator", ["jemalloc", "tcmalloc_minimal", "mimalloc"])
def test_other_allocators_are_refused(
    client: tidl.Client, start_peer: Callable[..., Peer], name: str, allocator: str
) -> None:
    library = ctypes.util.find_library(allocator)
    if library is None:
        pytest.skip(f"{allocator} is not installed: scripts/setup test installs it")
    peer = start_peer(SETUP, environment={"LD_PRELOAD": library})
    for count in (10, 100_000, 10_000_000):
        peer.do(f"x = np.arange({count}, dtype=np.float32)")
        with pytest.raises(PeerError) as caught:
            peer.do(f"client.publish({name!r}, x, copy=False)")
        assert caught.value.code == "COPY_NEEDED"
        assert peer.ask(f"bool((x == np.arange({count}, dtype=np.float32)).all())")
    with pytest.raises(PeerError) as caught:
        peer.do("tidl.prefer_shareable()")
    assert caught.value.code == "UNSUPPORTED"
    peer.do(f"client.publish({name!r}, x)")


FAKE_CUDA = Path(os.environ.get("TIDL_BUILD_DIR", "")) / "tests/fake_cuda/libcuda.so.1"


@pytest.mark.skipif(not FAKE_CUDA.exists(), reason="the tests' own libcuda.so.1 is not built")
def test_what_cuda_has_registered_is_refused(other: Peer, name: str) -> None:
    other.do(f"import ctypes; cuda = ctypes.CDLL({str(FAKE_CUDA)!r})")
    other.do("x = np.ones(1_000_000); whole = ctypes.c_void_p(x.ctypes.data), 8_000_000")
    other.do("cuda.fake_cuda_register(whole[0], ctypes.c_size_t(whole[1]))")
    other.do(
        "try:\n"
        f"    client.publish({name!r}, {{'x': x}}, copy=False)\n"
        "except tidl.CopyNeededError as error:\n"
        "    told = error.reason, str(error)\n"
    )
    reason, text = other.ask("told")
    assert reason == "pinned"
    assert "'x'" in text
    assert other.ask(f"client.publish({name!r}, x).copied")
    other.do("cuda.fake_cuda_register(whole[0], ctypes.c_size_t(0))")
    assert other.ask(f"client.publish({name!r}, x, copy=False, replace=True).path") == "in-place"
    other.do(f"client.unshare({name!r})")


def test_without_userfaultfd(
    client: tidl.Client, start_peer: Callable[..., Peer], name: str
) -> None:
    peer = start_peer(SETUP, environment={**ALONE, "TIDL_WITHOUT": "userfaultfd"})
    peer.do("x = np.ones(1_000_000)")
    with pytest.raises(PeerError) as caught:
        peer.do(f"client.publish({name!r}, x, copy=False)")
    assert caught.value.code == "COPY_NEEDED"
    peer.do(f"p = client.publish({name!r}, x, copy=False, nobody_writes=True)")
    assert peer.ask("p.path") == "in-place"
    client.get(name, access="write").to_numpy()[3] = 9
    assert peer.ask("float(x[3])") == 9
    peer.do(f"client.unshare({name!r})")


# ---- owners that free without asking ----


@pytest.mark.parametrize("share_of_size", [0.25, 4])
def test_an_array_is_resized(
    client: tidl.Client, other: Peer, name: str, share_of_size: float
) -> None:
    """What is cut stays shared until it is private; what grows goes on elsewhere."""
    is_cut = share_of_size < 1
    size = int(4 * MEGABYTE * share_of_size)
    other.do(f"x = np.ones({4 * MEGABYTE}, np.uint8); client.publish({name!r}, x, copy=False)")
    mine = client.get(name, access="write").to_numpy()
    other.do(f"x.resize({size}, refcheck=False)")
    mine[5] = 5
    assert other.ask("(int(x[5]), x.size, int(x[:1000].sum()))") == (
        (5, size, 1004) if is_cut else (1, size, 1000)
    )
    other.do(f"client.unshare({name!r}); x[6] = 6")
    mine[5] = 7
    assert mine[6] == 1
    assert other.ask("(int(x[5]), int(x[6]))") == (5 if is_cut else 1, 6)
    # By its old size it would take with it what has come to lie behind it.
    other.do(f"y = [np.ones({MEGABYTE}, np.uint8) for _ in range(8)]\ndel x")
    assert other.ask("[int(a.sum()) for a in y]") == [MEGABYTE] * 8


# ---- deaths, children, attackers ----


def test_the_owner_is_killed(client: tidl.Client, other: Peer, name: str) -> None:
    other.do(f"x = np.arange(4_000_000); client.publish({name!r}, x, copy=False)")
    mine = client.get(name, access="write").to_numpy()
    os.kill(other.pid, signal.SIGKILL)
    other.process.wait()
    mine[5] = 50
    assert np.array_equal(mine[6:], np.arange(6, 4_000_000))
    client.remove(name)
    del mine
    assert eventually(lambda: not client.list(name))


def test_a_child_has_the_same_memory(client: tidl.Client, other: Peer, name: str) -> None:
    other.do(f"x = np.zeros(1_000_000); client.publish({name!r}, x, copy=False)")
    other.do(
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    x[1] = 11\n"
        "    client.close()\n"  # its own again: the parent's stays shared
        "    x[2] = 22\n"
        "    os._exit(0 if x[1] == 11 else 1)\n"
        "status = os.waitpid(pid, 0)[1]"
    )
    assert other.ask("status") == 0
    assert other.ask("[float(x[1]), float(x[2])]") == [11, 0]
    mine = client.get(name, access="write").to_numpy()
    mine[3] = 33
    assert other.ask("float(x[3])") == 33


SCRIBBLE = """
import ctypes
t = client.get({name!r}, access='write')
a = t.to_numpy()
first = a.ctypes.data & ~4095
size = sum(s.data_size_bytes for s in client.inspect({name!r}).segments)
ctypes.memset(first, 0xA5, size)
"""


def test_a_hostile_writer_does_not_crash_the_owner(
    client: tidl.Client, other: Peer, peer: Peer, name: str
) -> None:
    other.do(f"x = np.ones(1_000_000); client.publish({name!r}, x, copy=False)")
    peer.do(SCRIBBLE.format(name=name))
    other.do(f"client.unshare({name!r})\ndel x\nx = np.ones(1_000_000)\ndel x")
    # By itself, too: with the name, or with the client.
    other.do(f"x = np.ones(1_000_000); client.publish({name!r}, x, copy=False)")
    peer.do(SCRIBBLE.format(name=name))
    other.do("client.close()\ndel x\nx = np.ones(1_000_000)\ndel x")
    assert other.ask("1") == 1


def test_close_gives_private_memory_back(client: tidl.Client, other: Peer, name: str) -> None:
    other.do(f"x = np.ones(1_000_000); client.publish({name!r}, x, copy=False)")
    mine = client.get(name, access="write").to_numpy()
    other.do("client.close()")
    mine[0] = 5
    assert other.ask("float(x[0])") == 1
    del mine
    assert is_let_go(client, name)


def test_prefer_shareable(other: Peer) -> None:
    assert other.ask("tidl.prefer_shareable()") >= 65536
    assert other.ask("tidl.prefer_shareable(1 << 20)") >= 1 << 20
    for wrong in (0, -1, True, "1", 1 << 40):
        with pytest.raises(PeerError):
            other.do(f"tidl.prefer_shareable({wrong!r})")
