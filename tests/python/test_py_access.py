# SPDX-License-Identifier: Apache-2.0
"""How a tensor may be used by whoever attached it."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable

import numpy as np
import pytest
from python_peer import Peer, PeerDiedError, PeerError

import tidl


@pytest.mark.dlpack_rule("P8", "P23")
def test_read_is_the_default_and_numpy_honours_it(client: tidl.Client, name: str) -> None:
    x = client.full((4,), 1, dtype="int32")
    client.publish(name, x)
    y = client.get(name)
    assert y.access == "read"
    assert y.readonly
    for array in (y.to_numpy(), np.asarray(y), np.from_dlpack(y), np.array(y, copy=False)):
        assert not array.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 2
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.flags.writeable = True
    assert memoryview(y).readonly
    x.to_numpy()[:] = 5
    assert y.to_numpy().tolist() == [5] * 4


@pytest.mark.dlpack_rule("P8", "X2")
def test_the_mapping_itself_is_read_only(
    client: tidl.Client, start_peer: Callable[..., Peer], name: str
) -> None:
    client.publish(name, np.zeros(4))
    # A sanitizer is to leave this crash to the kernel.
    quiet = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":handle_segv=0"}
    peer = start_peer("import ctypes\nc = tidl.connect()", environment=quiet)
    peer.do(f"y = c.get({name!r})")
    with pytest.raises(PeerDiedError):
        peer.do("ctypes.memset(y.to_numpy().ctypes.data, 1, 1)")
    assert peer.process.returncode == -signal.SIGSEGV
    assert client.get(name).to_numpy().tolist() == [0] * 4


def test_write_access(client: tidl.Client, peer: Peer, name: str) -> None:
    client.publish(name, np.zeros(4))
    mine = client.get(name, access="write")
    assert (mine.access, mine.readonly) == ("write", False)
    peer.do(f"y = client.get({name!r}, access='write')\ny.to_numpy()[1] = 7")
    assert mine.to_numpy().tolist() == [0, 7, 0, 0]


def test_copy_on_write_keeps_writes_private(client: tidl.Client, peer: Peer, name: str) -> None:
    client.publish(name, np.arange(4))
    mine = client.get(name, access="copy_on_write")
    assert (mine.access, mine.readonly) == ("copy_on_write", False)
    mine.to_numpy()[:] = 9
    assert peer.ask(f"client.get({name!r}).to_numpy().tolist()") == [0, 1, 2, 3]
    assert mine.to_numpy().tolist() == [9] * 4


def test_copy_on_write_is_refused_while_somebody_writes(
    client: tidl.Client, peer: Peer, name: str
) -> None:
    client.publish(name, np.arange(4))
    peer.do(f"y = client.get({name!r}, access='write')")
    with pytest.raises(tidl.BusyError, match=str(peer.pid)) as caught:
        client.get(name, access="copy_on_write")
    assert caught.value.code == "BUSY"
    peer.do("y.release(); client.list()")  # a round trip: the release has arrived
    client.get(name, access="copy_on_write")


def test_copy_on_write_is_granted_the_moment_a_copy_is_published(
    client: tidl.Client, peer: Peer, name: str
) -> None:
    """The publisher of a copy keeps no map of it, so a waiting get may not find it a writer."""
    for i in range(20):
        wanted = f"{name}/{i}"
        peer.start(f"y = client.get({wanted!r}, access='copy_on_write', timeout=60)")
        client.publish(wanted, np.arange(4))
        peer.finish()
        assert client.inspect(wanted).holders[0].access == "copy_on_write"


@pytest.mark.parametrize("framework", ["torch", "paddle"])
def test_frameworks_refuse_read_only_memory_before_they_are_imported(
    peer: Peer, name: str, framework: str
) -> None:
    """torch and Paddle take seconds to import: the refusal does not wait for that if they do not
    exist, and names the ways out if they do."""
    peer.do(f"client.publish({name!r}, np.zeros(4))\ny = client.get({name!r})")
    with pytest.raises(PeerError) as caught:
        peer.do(f"sys.modules[{framework!r}] = None\ny.to_{framework}()")
    assert caught.value.kind in ("MissingFrameworkError", "ReadOnlyError")


def test_taichi_arrays_of_read_only_memory(client: tidl.Client, name: str) -> None:
    client.publish(name, np.zeros((2, 2)))
    y = client.get(name)
    with pytest.raises(tidl.ReadOnlyError, match="copy_on_write") as caught:
        y.to_taichi()
    assert "readonly_ok=True" in str(caught.value)
    assert 'access="write"' in str(caught.value)
    assert y.to_taichi(readonly_ok=True).tolist() == [[0, 0], [0, 0]]


def test_missing_framework(peer: Peer) -> None:
    peer.do("x = client.empty((2,))")
    modules = {"tvm": "tvm_ffi"}
    for framework in ("torch", "paddle", "jax", "tensorflow", "mxnet", "tvm"):
        module = modules.get(framework, framework)
        with pytest.raises(PeerError, match=r"cannot be imported .* install ") as caught:
            peer.do(f"sys.modules[{module!r}] = None\nx.to_{framework}()")
        assert (caught.value.kind, caught.value.code) == (
            "MissingFrameworkError",
            "MISSING_FRAMEWORK",
        )


def test_to_taichi_refuses_what_it_would_copy(client: tidl.Client) -> None:
    a = client.empty((4, 5), dtype="float32")
    assert a.to_taichi().ctypes.data == a.to_numpy().ctypes.data
    with pytest.raises(tidl.DtypeError, match="complex64"):
        client.empty((2,), dtype="complex64").to_taichi()
    with pytest.raises(tidl.LayoutError, match="12 dimensions"):
        client.empty((1,) * 13).to_taichi()


def test_to_taichi_of_permuted_tensors_wants_axes(client: tidl.Client, name: str) -> None:
    a = client.empty((2, 3, 4), dtype="float32").to_numpy()
    client.publish(name, a.transpose(2, 0, 1))
    y = client.get(name, access="write")
    assert y.shape == (4, 2, 3)
    assert y.compact_axes == (1, 2, 0)
    with pytest.raises(tidl.LayoutError, match=r"axes=\(1, 2, 0\)"):
        y.to_taichi()
    array = y.to_taichi(axes=y.compact_axes)
    assert array.flags.c_contiguous
    array[:] = np.arange(24).reshape(2, 3, 4)
    assert a.tolist() == np.arange(24).reshape(2, 3, 4).tolist()
    for axes in ((0, 1), (0, 1, 1), (0, 1, 3), "abc", 7):
        with pytest.raises(tidl.InvalidArgumentError, match="axes"):
            y.to_taichi(axes=axes)  # type: ignore[arg-type]


@pytest.mark.parametrize("view", ["a[:, ::2]", "a[::-1]", "np.broadcast_to(a[0], (3, 4))"])
def test_to_taichi_of_what_no_order_makes_compact(
    client: tidl.Client, name: str, view: str
) -> None:
    a = client.empty((3, 4), dtype="float32").to_numpy()
    client.publish(name, eval(view, {"a": a, "np": np}))
    y = client.get(name, access="write")
    assert y.compact_axes is None
    with pytest.raises(tidl.LayoutError, match="whole tensor"):
        y.to_taichi()


@pytest.mark.dlpack_rule("X2")
def test_peer_cannot_reach_the_memory_by_writing_the_descriptor(
    client: tidl.Client, name: str
) -> None:
    """Attaching leaves no descriptor of the segment open."""
    client.publish(name, np.zeros(4))
    y = client.get(name)
    address = y.to_numpy().ctypes.data
    libc = ctypes.CDLL(None, use_errno=True)
    page = ctypes.c_void_p(address - address % 4096)
    assert libc.mprotect(page, ctypes.c_size_t(4096), 3) == -1
