# SPDX-License-Identifier: Apache-2.0
"""Publishing with access "live" and "immutable", and reading what is immutable."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from python_brokers import memfd_inode
from python_peer import Peer, PeerDiedError, PeerError

import tidl


def private_kb(address: int) -> int:
    """Pages that a map has of its own, by the kernel's word."""
    with open("/proc/self/smaps") as lines:
        is_found = False
        for line in lines:
            first = line.split(maxsplit=1)[0]
            if "-" in first and not first.endswith(":"):
                begin, end = (int(part, 16) for part in first.split("-"))
                is_found = begin <= address < end
            elif is_found and first == "Anonymous:":
                return int(line.split()[1])
    raise AssertionError("nothing is mapped there")


@contextmanager
def forked_child() -> Iterator[int]:
    pid = os.fork()
    if pid == 0:
        signal.pause()
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_immutable_in_place(client: tidl.Client, peer: Peer, name: str) -> None:
    x = client.empty((300, 7), dtype="int32")
    array = x.to_numpy()
    array[:] = np.arange(2100).reshape(300, 7)
    address = array.ctypes.data
    assert (x.readonly, x.published_as) == (False, None)
    publication = client.publish(name, x, access="immutable")
    assert (publication.copied, publication.path) == (False, "allocated")
    assert (x.readonly, x.access, x.published_as) == (True, "read", "immutable")
    assert x.to_numpy().ctypes.data == address
    assert not x.to_numpy().flags.writeable
    assert array.sum() == 2100 * 2099 // 2
    assert peer.ask(f"int(client.get({name!r}).to_numpy().sum())") == array.sum()
    inspection = client.inspect(name)
    assert inspection.access == "immutable"
    assert "write" in inspection.segments[0].seals
    assert inspection.write_protected
    assert inspection.same_uid_write_protected
    assert inspection.holders[0].access == "read"  # this process, which cannot write any more
    assert memfd_inode(address) == inspection.segments[0].inode
    with pytest.raises(tidl.AccessError, match="immutable"):
        client.get(name, access="write")


def test_a_late_write_ends_the_process(start_peer: Callable[..., Peer], name: str) -> None:
    """So that nobody thinks that an array made before is safe. The tensor itself is fine."""
    quiet = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":handle_segv=0"}
    peer = start_peer("import numpy as np\nc = tidl.connect()", environment=quiet)
    peer.do(f"x = c.zeros((4,))\na = x.to_numpy()\nc.publish({name!r}, x, access='immutable')")
    assert peer.ask("(a.flags.writeable, x.to_numpy().flags.writeable)") == (True, False)
    with pytest.raises(PeerDiedError):
        peer.do("a[0] = 1")
    assert peer.process.returncode == -signal.SIGSEGV


def test_immutable_copies(client: tidl.Client, name: str) -> None:
    foreign = np.arange(5)
    publication = client.publish(name, foreign, access="immutable")
    assert (publication.copied, publication.reason) == (True, "foreign")
    foreign[0] = 9
    y = client.get(name)
    assert y.published_as == "immutable"
    assert y.to_numpy().tolist() == [0, 1, 2, 3, 4]
    x = client.zeros((5,))
    assert client.publish(name, x, access="immutable", copy=True, replace=True).copied
    assert not x.readonly
    x.to_numpy()[:] = 1
    assert client.get(name).to_numpy().tolist() == [0] * 5
    empty = client.publish(name, client.empty((0, 3)), access="immutable", replace=True)
    assert empty.path == "empty"
    assert client.get(name).shape == (0, 3)


def test_immutable_of_a_view_is_about_the_whole_segment(client: tidl.Client, name: str) -> None:
    x = client.zeros((4, 4))
    view = x.to_numpy()[1:3, ::2]
    assert not client.publish(name, view, access="immutable").copied
    assert x.readonly
    assert client.get(name).strides == (4, 2)
    again = client.publish(f"{name}/all", x, access="immutable")
    assert (again.copied, again.path) == (False, "allocated")
    with pytest.raises(tidl.AccessError, match='was published with access "immutable" before'):
        client.publish(f"{name}/shared", x)


def test_a_forked_child_is_in_the_way_and_a_copy_is_not(client: tidl.Client, name: str) -> None:
    x = client.full((4,), 3)
    with forked_child() as pid:
        with pytest.raises(tidl.BusyError, match=rf"process {pid} has.*copy=True") as caught:
            client.publish(name, x, access="immutable")
        assert caught.value.code == "BUSY"
        assert not x.readonly
        x.to_numpy()[0] = 4
        assert client.list(name) == []
        assert client.publish(name, x, access="immutable", copy=True).copied
    assert client.get(name).to_numpy().tolist() == [4, 3, 3, 3]
    assert not client.publish(name, x, access="immutable", replace=True).copied
    assert x.readonly


def test_a_child_inherits_what_is_immutable(client: tidl.Client, name: str) -> None:
    x = client.full((4,), 3)
    client.publish(name, x, access="immutable")
    y = client.get(name)
    pid = os.fork()
    if pid == 0:
        # Private pages from a lease that is the parent's: the child gets the generation again.
        private = y._copy_on_write().to_numpy()
        private[0] = 8
        ok = x.to_numpy().tolist() == [3] * 4 == y.to_numpy().tolist()
        os._exit(0 if ok and private.tolist() == [8, 3, 3, 3] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert y.to_numpy().tolist() == [3] * 4


def test_private_pages_only_where_written(client: tidl.Client, name: str) -> None:
    pages = 64
    client.publish(name, np.ones((pages, 4096), dtype="u1"), access="immutable")
    y = client.get(name)
    writable = y._copy_on_write()
    assert (writable.access, writable.readonly, writable.shape) == (
        "copy_on_write",
        False,
        (pages, 4096),
    )
    array = writable.to_numpy()
    address = array.ctypes.data
    assert address != y.to_numpy().ctypes.data
    assert memfd_inode(address) == memfd_inode(y.to_numpy().ctypes.data)
    assert array.sum() == pages * 4096
    assert private_kb(address) == 0
    array[7] = 2
    assert private_kb(address) == 4
    assert y.to_numpy().sum() == pages * 4096
    # The same private pages for all that is made from this tensor, others for another get.
    assert y._copy_on_write()._address == address
    assert client.get(name)._copy_on_write().to_numpy().sum() == pages * 4096
    writable.release()
    assert y._copy_on_write().to_numpy()[7, 0] == 2
    # Published again, it is what it shows here.
    assert client.publish(f"{name}/mine", y._copy_on_write()).reason == "private_map"
    assert client.get(f"{name}/mine").to_numpy()[7, 0] == 2


def test_private_pages_of_what_others_may_write(client: tidl.Client, name: str) -> None:
    client.publish(name, client.zeros((4,)))
    y = client.get(name)
    assert y.published_as == "shared"
    with pytest.raises(tidl.AccessError, match="is shared, so a private copy"):
        y._copy_on_write()
    with pytest.raises(tidl.ReadOnlyError, match="copy_on_write"):
        y.to_taichi()


def test_taichi_arrays_of_immutable_memory(client: tidl.Client, name: str) -> None:
    client.publish(name, np.zeros((2, 2), dtype="f4"), access="immutable")
    y = client.get(name)
    array = y.to_taichi()
    assert array.flags.writeable
    array[0, 0] = 5
    assert y.to_taichi()[0, 0] == 5
    assert y.to_numpy()[0, 0] == 0
    assert client.get(name).to_taichi()[0, 0] == 0
    readonly = y.to_taichi(readonly_ok=True)
    assert readonly.ctypes.data == y.to_numpy().ctypes.data


def test_live(client: tidl.Client, peer: Peer, name: str) -> None:
    x = client.zeros((4,))
    publication = client.publish(name, x, access="live")
    assert (publication.copied, publication.path) == (False, "allocated")
    assert (x.readonly, x.access, x.published_as) == (False, "write", "live")
    peer.do(f"y = client.get({name!r})\na = y.to_numpy()")
    assert peer.ask("(y.readonly, y.published_as)") == (True, "live")
    for step in range(3):
        x.to_numpy()[:] = step
        assert peer.ask("a.tolist()") == [step] * 4
    with pytest.raises(tidl.AccessError, match="is live: its producer alone writes it"):
        client.get(name, access="write")
    with pytest.raises(PeerError, match=f"process {os.getpid()} can write"):
        peer.do(f"client.get({name!r}, access='copy_on_write')")
    seals = client.inspect(name).segments[0].seals
    assert "future_write" in seals
    assert "write" not in seals


def test_live_needs_memory_of_this_client(client: tidl.Client, name: str) -> None:
    with pytest.raises(tidl.CopyNeededError, match="nobody could write a live copy"):
        client.publish(name, np.zeros(3), access="live")
    with pytest.raises(tidl.CopyNeededError, match="a copy was asked for, and nobody"):
        client.publish(name, client.zeros((3,)), access="live", copy=True)
    client.publish(name, client.empty((0,)), access="live")


def test_nothing_is_sealed_by_a_refusal(client: tidl.Client, name: str) -> None:
    x = client.zeros((3,))
    client.publish(name, np.zeros(3))
    with pytest.raises(tidl.ExistsError):
        client.publish(name, x, access="immutable")
    with pytest.raises(tidl.MetadataError):
        client.publish(f"{name}/2", x, access="immutable", metadata={"a": "b" * 5000})
    with pytest.raises(tidl.NameInvalidError):
        client.publish("a//b", x, access="immutable")
    assert not x.readonly
    assert x.published_as is None
    x.to_numpy()[:] = 1
    client.publish(f"{name}/2", x)


def test_the_mapping_of_a_reader_cannot_be_opened(client: tidl.Client, name: str) -> None:
    x = client.zeros((4,))
    client.publish(name, x, access="immutable")
    libc = ctypes.CDLL(None, use_errno=True)
    for tensor in (x, client.get(name)):
        page = ctypes.c_void_p(tensor._address)
        assert libc.mprotect(page, ctypes.c_size_t(4096), 3) == -1


def test_bundles_are_immutable_as_a_whole(client: tidl.Client, name: str) -> None:
    own = {f"w{number}": client.full((3,), number) for number in range(3)}
    publication = client.publish(name, {**own, "b": {"c": np.arange(4)}}, access="immutable")
    assert publication.copied_count == 1
    assert all(tensor.readonly for tensor in own.values())
    bundle = client.get(name)
    assert len(bundle.to_numpy()["b"]["c"]) == 4
    writable = bundle.to_taichi()
    writable["w1"][:] = 9
    writable["b"]["c"][:] = 9
    assert bundle["w1"].to_numpy().tolist() == own["w1"].to_numpy().tolist() == [1] * 3
    assert bundle["b"]["c"].to_taichi().tolist() == [9] * 4
    part = client.get(name, keys=["b"])["b"]["c"]
    assert part.to_taichi().tolist() == [0, 1, 2, 3]
    pid = os.fork()
    if pid == 0:
        private = bundle["w2"].to_taichi()
        private[:] = 7
        os._exit(0 if bundle["w2"].to_numpy().tolist() == [2] * 3 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    with pytest.raises(tidl.AccessError, match="is immutable"):
        client.get(name, access="write")
    with pytest.raises(tidl.AccessError, match="was published with access"):
        client.publish(f"{name}/2", own)


def test_bundles_are_live_as_a_whole(client: tidl.Client, name: str) -> None:
    own = {"x": client.zeros((3,)), "y": client.zeros((4,))}
    client.publish(name, own, access="live")
    bundle = client.get(name)
    own["y"].to_numpy()[:] = 2
    assert bundle["y"].to_numpy().tolist() == [2] * 4
    with pytest.raises(tidl.CopyNeededError, match=r"'z': the tensor does not lie .* live copy"):
        client.publish(f"{name}/2", {"x": client.zeros((3,)), "z": np.ones(3)}, access="live")
    assert client.list(f"{name}/2") == []


def test_one_child_in_the_way_of_a_bundle(client: tidl.Client, name: str) -> None:
    own = {"x": client.zeros((3,)), "y": client.zeros((4,))}
    with forked_child() as pid:
        with pytest.raises(tidl.BusyError, match=f"process {pid} has"):
            client.publish(name, own, access="immutable")
        assert not own["x"].readonly
        assert not own["y"].readonly
        assert client.publish(name, own, access="immutable", copy=True).copied_count == 2
    assert client.publish(name, own, access="immutable", replace=True).copied_count == 0
