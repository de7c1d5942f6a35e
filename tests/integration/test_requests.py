# SPDX-License-Identifier: Apache-2.0
"""All other requests: allocate, get, release, cancel, list, inspect, remove."""

from __future__ import annotations

import fcntl
import mmap
import os
from typing import Any

import pytest
from child import Child, ChildPipe
from raw_peer import RawPeer
from tidl_wire import Attach, Code
from world import CONTENT, PAGE_BYTES, QUOTA_BYTES, WITNESS, World

NAME = "some/x"
F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_WRITE, F_SEAL_EXEC = 1, 2, 4, 8, 32
NOT_FOUND = 'nothing that you may read is published as "{}": publish it first, or wait for it'
NOT_FOUND_THERE = r'nothing that you may read is published as "{}": ask its owner to publish it'


# ---- allocate ----


@pytest.mark.parametrize(
    ("size", "code", "sentence"),
    [
        (0, Code.INVALID_ARGUMENT, "a segment of 0 bytes was asked for: a tensor without elements"),
        (2**64 - 1, Code.LIMIT, f"a segment of {2**64 - 1} bytes is larger than any file can be"),
        (2**63 - 1, Code.LIMIT, "larger than any file can be: use a smaller tensor"),
        (2**63 - 2 * PAGE_BYTES, Code.QUOTA, "all processes of uid [0-9]+ may have at most"),
        (QUOTA_BYTES, Code.QUOTA, f"may have at most {QUOTA_BYTES} bytes of shared memory, has"),
    ],
)
def test_allocate_too_much(peer: RawPeer, size: int, code: Code, sentence: str) -> None:
    peer.refuses(code, sentence, "allocate", data_size_bytes=size)


@pytest.mark.parametrize("size", [1, PAGE_BYTES - 1, PAGE_BYTES, PAGE_BYTES + 1, 1 << 20])
def test_allocated_memory(peer: RawPeer, size: int) -> None:
    """One page more than the data; of fixed size, private to its owner, no program."""
    memory = peer.allocate(size)
    assert memory.data_bytes == -size % PAGE_BYTES + size
    assert memory.size_bytes == memory.data_bytes + PAGE_BYTES
    for fd in (memory.write_fd, memory.read_fd):
        status = os.fstat(fd)
        assert status.st_size == memory.size_bytes
        assert status.st_mode & 0o7777 == 0o400
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
        assert seals & ~F_SEAL_EXEC == F_SEAL_SHRINK | F_SEAL_GROW
        with pytest.raises(PermissionError):
            os.truncate(f"/proc/self/fd/{fd}", 0)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.pwrite(memory.read_fd, b"x", 0)
    with pytest.raises(PermissionError):
        mmap.mmap(memory.read_fd, PAGE_BYTES, mmap.MAP_SHARED, mmap.PROT_WRITE)
    assert os.pwrite(memory.write_fd, b"x", 0) == 1
    assert os.pread(memory.read_fd, 1, 0) == b"x"
    assert os.fstat(memory.write_fd).st_blocks <= 8  # the broker has reserved nothing


# ---- get ----


@pytest.mark.parametrize("kind", ["get", "inspect", "remove"])
def test_nothing_there(peer: RawPeer, kind: str) -> None:
    fields: dict[str, Any] = {"attach": Attach.READ} if kind == "get" else {}
    peer.refuses(Code.NOT_FOUND, NOT_FOUND.format("no/x"), kind, name="no/x", **fields)
    for uid in (4711, 2**32 - 1):
        there = NOT_FOUND_THERE.format(f"{uid}:no/x")
        peer.refuses(Code.NOT_FOUND, there, kind, name="no/x", owner_uid=uid, **fields)


@pytest.mark.parametrize("attach", [0, 4, 2**31 - 1])
def test_attach_out_of_range(peer: RawPeer, attach: int) -> None:
    peer.send("get", number=3, name=WITNESS, attach=attach)
    peer.ends_with(Code.PROTOCOL, f"field attach is {attach}, outside 1 to 3", request_id=3)


def test_keys_of_a_single_tensor(peer: RawPeer) -> None:
    sentence = f'"{WITNESS}" is one tensor and has no keys'
    peer.refuses(
        Code.INVALID_ARGUMENT, sentence, "get", name=WITNESS, attach=Attach.READ, keys=["a"]
    )


@pytest.mark.parametrize("waits", [False, True])
def test_generation_that_is_gone(peer: RawPeer, waits: bool) -> None:
    """Or that has not come yet: it never will under this name, so nobody waits for it."""
    memory = peer.must_publish(NAME, b"first")
    old = peer.inspection(NAME).generation
    new = peer.publish(NAME, memory.id, 1, replace=True).packet.published.generation
    for generation in (old, new + 1, 2**64 - 1):
        peer.refuses(
            Code.GENERATION_GONE,
            rf'generation {generation} of "{NAME}" is not published '
            r"\(not any more, or not yet\): get it",
            "get",
            name=NAME,
            attach=Attach.READ,
            generation=generation,
            wait=waits,
        )
    assert peer.must_get(NAME, generation=new).packet.granted.generation == new
    assert peer.remove(NAME).kind == "done"
    peer.refuses(
        Code.GENERATION_GONE,
        f"generation {new} of",
        "get",
        name=NAME,
        attach=Attach.READ,
        generation=new,
        wait=waits,
    )


def test_replaced_and_removed_content_stays_with_its_readers(world: World, peer: RawPeer) -> None:
    peer.must_publish(NAME, b"first")
    reader = world.connect()
    first = reader.must_get(NAME)
    peer.must_publish(NAME, b"second", replace=True)
    second = reader.must_get(NAME)
    assert peer.remove(NAME).kind == "done"
    peer.close()
    reader.get(NAME).fails_with(Code.NOT_FOUND, "nothing that you may read")
    assert os.pread(first.fds[0], 5, 0) == b"first"
    assert os.pread(second.fds[0], 6, 0) == b"second"


def test_get_does_not_wait_unless_asked(world: World, peer: RawPeer) -> None:
    waiting = peer.send("get", name=NAME, attach=Attach.WRITE, wait=True)
    peer.goes_on()  # a wait holds up nothing
    world.connect().must_publish(NAME, b"x")
    reply = peer.answer(waiting)
    assert reply.kind == "granted"
    assert os.pread(reply.fds[0], 1, 0) == b"x"
    assert peer.remove(NAME).kind == "done"


@pytest.mark.parametrize("attach", Attach)
def test_what_a_lease_gives(world: World, peer: RawPeer, attach: Attach) -> None:
    memory = peer.must_publish(NAME, b"abc")
    peer.release(segments=[memory.id])
    peer.goes_on()
    reader = world.connect()
    reply = reader.must_get(NAME, attach)
    granted = reply.packet.granted
    assert granted.attach == attach
    assert granted.owner_uid == os.getuid()
    assert not granted.HasField("segment_owner_uid")  # the owner's, as a rule
    assert granted.segments[0].id == memory.id
    is_writable = fcntl.fcntl(reply.fds[0], fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR
    assert is_writable == (attach == Attach.WRITE)
    assert fcntl.fcntl(reply.fds[0], fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    assert os.fstat(reply.fds[0]).st_ino == os.fstat(memory.read_fd).st_ino
    assert peer.remove(NAME).kind == "done"


# ---- copy on write ----


def test_copy_on_write_of_what_somebody_writes(world: World, peer: RawPeer) -> None:
    other, reader = world.connect(), world.connect()
    busy = (
        rf'process {os.getpid()} can write "{NAME}", so it cannot be attached copy-on-write: '
        "wait until that process has released it, or attach it for reading"
    )
    memory = peer.must_publish(NAME, b"abc")

    def is_refused() -> None:
        reader.refuses(Code.BUSY, busy, "get", name=NAME, attach=Attach.COPY_ON_WRITE)

    is_refused()  # its maker still has it
    assert peer.must_get(NAME, Attach.COPY_ON_WRITE)  # who may do as he likes
    lease = other.must_get(NAME, Attach.WRITE).packet.granted.lease_id
    peer.release(segments=[memory.id])
    peer.goes_on()
    is_refused()  # a writer
    other.release(leases=[lease])
    other.goes_on()
    assert reader.must_get(NAME, Attach.COPY_ON_WRITE)
    writer = world.connect()
    assert writer.must_get(NAME, Attach.WRITE)
    is_refused()
    writer.close()
    # Nobody tells when the broker has seen the end of a connection.
    while reader.get(NAME, Attach.COPY_ON_WRITE).kind == "failure":
        pass
    assert peer.remove(NAME).kind == "done"


def test_private_pages_of_copy_on_write(peer: RawPeer, world: World) -> None:
    memory = peer.must_publish(NAME, b"abc")
    peer.release(segments=[memory.id])
    peer.goes_on()
    fd = world.connect().must_get(NAME, Attach.COPY_ON_WRITE).fds[0]
    with mmap.mmap(fd, PAGE_BYTES, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE) as pages:
        pages[0:1] = b"X"
        assert os.pread(memory.read_fd, 3, 0) == b"abc"
    with pytest.raises(PermissionError):
        mmap.mmap(fd, PAGE_BYTES, mmap.MAP_SHARED, mmap.PROT_WRITE)
    assert peer.remove(NAME).kind == "done"


# ---- seals ----


def test_write_lease_of_another_process_makes_the_seals_final(world: World, peer: RawPeer) -> None:
    memory = peer.must_publish(NAME, b"abc")

    def seals() -> int:
        return int(peer.inspection(NAME).segments[0].seals) & ~F_SEAL_EXEC

    def work(pipe: ChildPipe) -> None:
        with RawPeer(world.broker.socket) as writer:
            fd = writer.must_get(NAME, Attach.WRITE).fds[0]
            try:
                fcntl.fcntl(fd, fcntl.F_ADD_SEALS, F_SEAL_WRITE)
            except PermissionError:
                os.pwrite(fd, b"A", 0)
                pipe.send("sealed")

    assert peer.must_get(NAME, Attach.WRITE)
    assert world.connect().must_get(NAME, Attach.READ)
    assert seals() == F_SEAL_SHRINK | F_SEAL_GROW
    with Child(work) as child:
        assert child.receive() == "sealed"
        child.await_end()
    assert seals() == F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL
    assert os.pread(memory.read_fd, 3, 0) == b"Abc"
    assert peer.remove(NAME).kind == "done"


def test_creator_who_seals_for_himself(world: World, peer: RawPeer) -> None:
    """Sealing against writing breaks one's own tensor, and no promise of the broker."""
    memory = peer.must_publish(NAME, b"abc")
    fcntl.fcntl(memory.write_fd, fcntl.F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SEAL)
    assert world.connect().must_get(NAME, Attach.READ)
    reply = world.connect().get(NAME, Attach.WRITE)
    assert reply.kind in ("granted", "failure")
    assert world.probe.inspection(NAME).segments[0].seals & F_SEAL_WRITE
    assert peer.remove(NAME).kind == "done"


# ---- release, cancel ----


def test_release_of_what_is_not_ones_own(world: World, peer: RawPeer) -> None:
    memory = peer.must_publish(NAME, b"abc")
    lease = peer.must_get(NAME).packet.granted.lease_id
    other = world.connect()
    others = other.must_get(NAME).packet.granted.lease_id
    before = peer.inspection(NAME).holders
    other.release(
        leases=[lease, 0, 1 << 50, 2**64 - 1, memory.id], segments=[memory.id, lease, others, 0]
    )
    other.goes_on()
    assert len(peer.inspection(NAME).holders) == len(before) == 3
    for _ in range(3):
        other.release(leases=[others, others])
    other.goes_on()
    assert len(peer.inspection(NAME).holders) == 2
    assert peer.remove(NAME).kind == "done"


def test_release_is_per_lease(peer: RawPeer) -> None:
    memory = peer.must_publish(NAME, b"abc")
    leases = [peer.must_get(NAME).packet.granted.lease_id for _ in range(100)]
    assert len(set(leases)) == 100
    peer.release(leases=leases[:99], segments=[memory.id])
    assert len(peer.inspection(NAME).holders) == 1
    peer.release(leases=leases)
    assert len(peer.inspection(NAME).holders) == 0
    assert peer.remove(NAME).kind == "done"


def test_cancel_of_what_does_not_wait(world: World, peer: RawPeer) -> None:
    waiting = peer.send("get", name=NAME, attach=Attach.READ, wait=True)
    other = world.connect()
    for number in (0, waiting, waiting + 1, 2**64 - 1):
        other.cancel(number)
    other.goes_on()
    for number in (0, waiting + 1, 2**64 - 1):
        peer.cancel(number)
    peer.goes_on()
    peer.cancel(waiting)
    peer.answer(waiting).fails_with(Code.CANCELLED, "the request was cancelled by its own client")
    peer.cancel(waiting)
    peer.goes_on()


def test_cancel_that_comes_too_late(world: World, peer: RawPeer) -> None:
    waiting = peer.send("get", name=NAME, attach=Attach.READ, wait=True)
    peer.goes_on()
    world.connect().must_publish(NAME, b"x")
    peer.cancel(waiting)
    assert peer.answer(waiting).kind == "granted"
    peer.goes_on()
    assert peer.remove(NAME).kind == "done"


# ---- list, inspect ----


@pytest.mark.parametrize("cursor", [1 << 40, 2**63, 2**64 - 1])
def test_cursors_beyond_the_end(peer: RawPeer, cursor: int) -> None:
    assert peer.ask("list", pattern="**", cursor=cursor).packet.listing.entries == []
    page = peer.inspection(WITNESS, tensor_cursor=cursor)
    assert not page.tensors
    assert not page.holders
    assert not page.next_tensor_cursor
    page = peer.inspection(WITNESS, holder_cursor=cursor)
    assert not page.next_holder_cursor


def test_inspect_of_another_generation(peer: RawPeer) -> None:
    generation = peer.inspection(WITNESS).generation
    assert peer.inspection(WITNESS, generation=generation)
    peer.refuses(
        Code.GENERATION_GONE,
        r"is neither published nor held \(any more\): inspect it again without a number",
        "inspect",
        name=WITNESS,
        generation=generation + 1,
    )


def test_pages_of_a_long_list(peer: RawPeer) -> None:
    """Each is shown once, though some go and some come meanwhile."""
    memory = peer.allocate(1)
    names = [f"many/{number:03}/" + "x" * 240 for number in range(300)]
    for name in names:
        assert peer.publish(name, memory.id, 1).kind == "published"
    page = peer.ask("list", pattern="many/**").packet.listing
    shown = [entry.name.decode() for entry in page.entries]
    assert 0 < len(shown) < 300
    assert peer.remove(shown[-1]).kind == "done"
    assert peer.remove(names[-1]).kind == "done"
    assert peer.publish("many/late", memory.id, 1).kind == "published"
    while page.next_cursor:
        page = peer.ask("list", pattern="many/**", cursor=page.next_cursor).packet.listing
        shown += [entry.name.decode() for entry in page.entries]
    assert shown == [*names[:-1], "many/late"]
    for name in {*shown, *names} - {shown[63], names[-1]}:
        peer.remove(name)
    for name in peer.names("many/**"):
        assert peer.remove(name).kind == "done"


def test_pages_of_many_holders(world: World, peer: RawPeer) -> None:
    memory = peer.must_publish(NAME, b"abc")
    for _ in range(120):
        peer.must_get(NAME).close()
    shown = []
    page = peer.inspection(NAME)
    while True:
        shown += [(holder.kind, holder.process.pid) for holder in page.holders]
        if not page.next_holder_cursor:
            break
        page = peer.inspection(NAME, holder_cursor=page.next_holder_cursor)
    assert shown == [(2, os.getpid())] + [(1, os.getpid())] * 120
    assert len(world.client.inspect(NAME).holders) == 121
    assert memory.id
    assert peer.remove(NAME).kind == "done"


def test_content_is_the_same_for_all(peer: RawPeer) -> None:
    fd = peer.must_get(WITNESS).fds[0]
    data = os.pread(fd, 4 * len(CONTENT), 0)
    assert list(memoryview(data).cast("i")) == CONTENT
