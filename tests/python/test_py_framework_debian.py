# SPDX-License-Identifier: Apache-2.0
"""Consumers of years ago: Debian 12's NumPy 1.24 and PyTorch 1.13, in the system's Python.

They ask for DLPack's old capsule, or give one, and know nothing of its flags.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import python_debian
from python_brokers import descriptors, eventually, is_let_go, memfd_inode
from python_peer import Peer, PeerError

import tidl

pytestmark = [
    pytest.mark.frameworks,
    *(
        pytest.mark.skipif(reason is not None, reason=str(reason))
        for reason in map(python_debian.absence, python_debian.VERSIONS)
    ),
]

SETUP = """
import gc
import numpy as np
import torch
from torch.utils import dlpack
client = tidl.connect()
"""

# How each takes a tensor `x` by an import of its own, and the address of what it makes.
IMPORTS = {
    "numpy": ("np.from_dlpack(x)", "a.ctypes.data"),
    "torch": ("torch.from_dlpack(x)", "a.data_ptr()"),
    "capsule": ("dlpack.from_dlpack(x.__dlpack__())", "a.data_ptr()"),
    "pair": ("dlpack.from_dlpack(tidl.to_dlpack(x))", "a.data_ptr()"),
}


@pytest.fixture(scope="module")
def old(session_client: tidl.Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    with python_debian.debian_peer(SETUP, tmp_path_factory.mktemp("package")) as peer:
        yield peer


def test_versions(old: Peer) -> None:
    versions = python_debian.VERSIONS
    assert old.ask("np.__version__").startswith(versions["numpy"])
    assert old.ask("torch.__version__").startswith(versions["torch"])
    # What they are here for.
    old.do(
        "asked = []\nclass Spy:\n"
        "    def __init__(self): self.x = client.empty((2,))\n"
        "    def __dlpack_device__(self): return self.x.__dlpack_device__()\n"
        "    def __dlpack__(self, **options):\n"
        "        asked.append(options.get('max_version'))\n"
        "        return self.x.__dlpack__(**options)\n"
        "np.from_dlpack(Spy()); torch.from_dlpack(Spy())"
    )
    assert old.ask("asked") == [None, None]


@pytest.mark.parametrize("kind", IMPORTS)
def test_their_import_is_the_same_memory(
    client: tidl.Client, old: Peer, name: str, kind: str
) -> None:
    mine = client.empty((3, 4)).to_numpy()
    mine[:] = np.arange(12).reshape(3, 4)
    client.publish(name, mine[:, 1:])
    take, address = IMPORTS[kind]
    old.do(f"x = client.get({name!r}, access='write'); a = {take}")
    assert old.ask("a.tolist()") == mine[:, 1:].tolist()
    assert old.ask(f"{address} == x._address")
    mine[2, 3] = 99
    assert old.ask("float(a[2, 2])") == 99
    if kind == "numpy":  # before 2.1 NumPy takes every import for read-only
        assert old.ask("a.flags.writeable") is False
    else:
        old.do("a.mul_(2)")
        assert mine[2, 3] == 198
    inode = memfd_inode(mine.ctypes.data)
    assert memfd_inode(old.ask(address), old.pid) == inode


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_memory_of_theirs_is_published_without_a_copy(
    client: tidl.Client, old: Peer, name: str, framework: str
) -> None:
    old.do(
        f"x = client.empty((4, 6)); t = x.to_{framework}(); t[:] = 1\n"
        f"p = client.publish({name!r}, t[1:3, ::2])"
    )
    assert old.ask("(p.copied, p.path)") == (False, "allocated")
    mine = client.get(name, access="write").to_numpy()
    assert (mine.shape, mine.sum()) == ((2, 3), 6)
    mine[:] = 5
    assert old.ask("t[1:3].tolist()") == [[5, 1, 5, 1, 5, 1]] * 2
    assert old.ask("t[0].tolist()") == [1] * 6


@pytest.mark.parametrize("make", ["np.arange(6, dtype='f4')", "torch.arange(6.0)"])
def test_own_memory_is_copied_once(client: tidl.Client, old: Peer, name: str, make: str) -> None:
    old.do(f"p = client.publish({name!r}, {make})")
    assert old.ask("(p.copied, p.reason)") == (True, "foreign")
    assert client.get(name).to_numpy().tolist() == [0, 1, 2, 3, 4, 5]


def test_capsules_of_theirs(old: Peer) -> None:
    old.do("t = torch.arange(6.0); a = np.from_dlpack(tidl.from_dlpack(dlpack.to_dlpack(t)))")
    assert old.ask("(a.tolist(), a.ctypes.data == t.data_ptr())") == ([0, 1, 2, 3, 4, 5], True)
    old.do("b = dlpack.from_dlpack(tidl.to_dlpack(np.ones(3, 'f4')))")
    assert old.ask("b.tolist()") == [1, 1, 1]


def test_own_memory_is_shared_in_place(
    client: tidl.Client, name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    environment = {"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=65536"}
    with python_debian.debian_peer(SETUP, tmp_path_factory.mktemp("package"), environment) as peer:
        peer.do(f"t = torch.ones(512, 1024); p = client.publish({name!r}, t[8:, ::2], copy=False)")
        assert peer.ask("(p.path, p.copied)") == ("in-place", False)
        mine = client.get(name, access="write").to_numpy()
        mine[0, 0] = 5
        assert peer.ask("t[8, 0].item()") == 5
        peer.do(f"client.unshare({name!r}); t += 1")
        assert mine[0, 0] == 5


def test_numpys_allocator(client: tidl.Client, old: Peer, name: str) -> None:
    old.do(
        "with tidl.numpy_allocator(client) as made:\n"
        "    a = np.zeros((40, 50)); b = np.fromstring('1 ' * 5000, sep=' ')\n"
        "    a.resize((80, 50), refcheck=False)\n"
        f"p = client.publish({name!r}, {{'a': torch.from_numpy(a), 'b': b}}, copy=False)"
    )
    assert old.ask("(p.path, p.copied, made.arrays, made.error)") == ("allocated", False, 2, None)
    mine = client.get(name, access="write").to_numpy()
    assert (mine["a"].sum(), mine["b"].sum()) == (0, 5000)
    mine["a"][79, 49] = 5
    assert old.ask("float(a[79, 49])") == 5
    old.do("del a, b; gc.collect()")
    assert old.ask("made.arrays") == 0
    assert mine["a"][79, 49] == 5


# ---- read-only memory ----


@pytest.fixture
def readonly(client: tidl.Client, old: Peer, name: str) -> Peer:
    """The peer, with a tensor attached for reading as `x`."""
    client.publish(name, np.arange(3, dtype="f4"))
    old.do(f"x = client.get({name!r})")
    return old


@pytest.mark.parametrize("kind", IMPORTS)
def test_an_old_capsule_cannot_say_read_only(readonly: Peer, kind: str) -> None:
    take, _ = IMPORTS[kind]
    with pytest.raises(PeerError) as caught:
        readonly.do(take)
    assert (caught.value.kind, caught.value.code) == ("ReadOnlyError", "READ_ONLY")
    assert readonly.ask("issubclass(tidl.ReadOnlyError, BufferError)")


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_vouched_for_it_is_taken(readonly: Peer, kind: str) -> None:
    take, address = IMPORTS[kind]
    readonly.do(f"y = x; x = y.unflagged(); a = {take}")
    assert readonly.ask(f"(a.tolist(), {address} == y._address)") == ([0, 1, 2], True)


def test_adapters_on_read_only_memory(readonly: Peer) -> None:
    readonly.do("a = x.to_numpy()")
    assert readonly.ask("a.flags.writeable") is False
    with pytest.raises(PeerError) as caught:
        readonly.do("x.to_torch()")
    assert caught.value.code == "READ_ONLY"
    readonly.do("a = x.to_torch(readonly_ok=True)")
    assert readonly.ask("(a.tolist(), a.data_ptr() == x._address)") == ([0, 1, 2], True)


# ---- what the old ones would crash on ----


def test_negative_strides_are_refused_before_torch_aborts(
    client: tidl.Client, old: Peer, name: str
) -> None:
    client.publish(name, client.zeros((4,)).to_numpy()[::-1])
    old.do(f"x = client.get({name!r}, access='write')")
    with pytest.raises(PeerError) as caught:
        old.do("x.to_torch()")
    assert caught.value.code == "LAYOUT"
    assert old.ask("x.to_numpy().strides") == (-4,)


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "uint64", "float8_e5m2"])
def test_dtypes_that_torch_did_not_have(old: Peer, dtype: str) -> None:
    with pytest.raises(PeerError) as caught:
        old.do(f"client.empty((2,), dtype={dtype!r}).to_torch()")
    assert caught.value.code == "DTYPE"
    assert "1.13" in str(caught.value)


# ---- lifetimes ----


@pytest.mark.parametrize("kind", IMPORTS)
def test_a_view_keeps_the_lease(client: tidl.Client, old: Peer, name: str, kind: str) -> None:
    client.publish(name, np.arange(8, dtype="f4"))
    take, _ = IMPORTS[kind]
    old.do(f"x = client.get({name!r}, access='write'); a = {take}[2:]\ndel x; gc.collect()")
    client.remove(name)
    assert old.ask("a.tolist()") == [2, 3, 4, 5, 6, 7]
    client.publish(name, np.arange(8, dtype="f4"))
    old.do(f"x = client.get({name!r}, access='write'); a = {take}[2:]\ndel x; gc.collect()")
    assert old.pid in {holder.pid for holder in client.inspect(name).holders}
    old.do("del a; gc.collect(); client.dispatch()")
    assert is_let_go(client, name)


def test_tensors_without_elements(client: tidl.Client, old: Peer, name: str) -> None:
    """torch 1.13 forgets the deleters of those."""
    client.publish(name, client.empty((0, 3)))
    for take in ("x.to_torch()", "x.to_numpy()"):
        old.do(f"x = client.get({name!r}, access='write'); a = {take}")
        assert old.ask("tuple(a.shape)") == (0, 3)
        old.do("del x, a; gc.collect(); client.dispatch()")
        assert is_let_go(client, name)


@pytest.mark.parametrize("kind", IMPORTS)
def test_many_imports_leave_nothing(client: tidl.Client, old: Peer, name: str, kind: str) -> None:
    client.publish(name, np.zeros(8, "f4"))
    take, _ = IMPORTS[kind]
    cycle = f"for _ in range(500): x = client.get({name!r}, access='write'); a = {take}; del x, a"
    old.do(cycle)
    before = len(descriptors(old.pid))
    old.do(f"{cycle}\ngc.collect(); client.dispatch()")
    assert len(descriptors(old.pid)) == before
    assert is_let_go(client, name)


def test_imports_alive_at_the_end(
    client: tidl.Client, name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    client.publish(name, np.zeros(8, "f4"))
    with python_debian.debian_peer(SETUP, tmp_path_factory.mktemp("package")) as peer:
        takes = ", ".join(take for take, _ in IMPORTS.values())
        peer.do(f"x = client.get({name!r}, access='write'); kept = [{takes}]")
        assert peer.end() == 0
        assert eventually(
            lambda: peer.pid not in {holder.pid for holder in client.inspect(name).holders}
        )
