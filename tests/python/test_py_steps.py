# SPDX-License-Identifier: Apache-2.0
"""Steps of live tensors: updates, commits, waiting, snapshots, turns, and writers that go."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from python_brokers import end_brokers, eventually
from python_peer import Peer, PeerError

import tidl

# futex on x86-64 and elsewhere.
FUTEX_CALLS = ("202", "98")


def is_asleep(pid: int) -> bool:
    """Whether the main thread of a process of ours comes to sleep on a futex."""
    path = Path(f"/proc/{pid}/syscall")
    return eventually(lambda: path.read_text().split()[0] in FUTEX_CALLS)


@pytest.fixture(params=["shared", "live"])
def writer(request: pytest.FixtureRequest, client: tidl.Client, name: str) -> tidl.Tensor:
    """Published under `name`, by this process."""
    tensor = client.zeros((4, 3), dtype="int64")
    client.publish(name, tensor, access=request.param)
    return tensor


# ---- making steps ----


def test_updates_and_commits_count(client: tidl.Client, name: str, writer: tidl.Tensor) -> None:
    reader = client.get(name)
    assert (writer.step, reader.step) == (0, 0)
    with writer.update() as step:
        assert step == 1
        assert reader.step == 0
        writer.to_numpy()[:] = 7
    assert (writer.step, reader.step) == (1, 1)
    assert writer.commit() == 2
    assert reader.wait(2, 0) == 2
    assert reader.wait(1) == 2, "what it is by now"
    assert reader.read().tolist() == [[7] * 3] * 4


def test_a_tensor_released_in_its_update_completes_the_step(client: tidl.Client, name: str) -> None:
    tensor = client.zeros(1)
    client.publish(name, tensor)
    reader = client.get(name)
    with tensor.update():
        tensor.release()
    assert reader.step == 1


def test_an_update_that_raises_is_a_step(client: tidl.Client, name: str) -> None:
    tensor = client.zeros(3)
    with pytest.raises(ZeroDivisionError), tensor.update():
        1 / 0  # noqa: B018
    assert tensor.step == 1
    with tensor.update():
        pass
    assert tensor.step == 2


def test_one_update_at_a_time(client: tidl.Client, name: str, peer: Peer) -> None:
    tensor = client.zeros(3)
    client.publish(name, tensor)
    peer.do(f"x = client.get({name!r}, access='write')")
    with tensor.update():
        for attempt in (tensor.commit, tensor.update().__enter__):
            with pytest.raises(tidl.BusyError):
                attempt()
        with pytest.raises(PeerError) as caught:
            peer.do("x.update().__enter__()")
        assert caught.value.code == "BUSY"
    with pytest.raises(tidl.BusyError), tensor.update():
        peer.do("with x.update(take_over=True): pass")
    assert tensor.step == 2
    assert tensor.commit() == 3


def test_who_may(client: tidl.Client, name: str, writer: tidl.Tensor) -> None:
    reader = client.get(name)
    for refused in (reader.commit, reader.update().__enter__):
        with pytest.raises(tidl.ReadOnlyError) as caught:
            refused()
        assert caught.value.code == "READ_ONLY"
    reader.release()
    for gone in (reader.commit, lambda: reader.step, lambda: reader.wait(1), reader.read):
        with pytest.raises(tidl.ReleasedError):
            gone()


def test_immutable_tensors_make_no_steps(client: tidl.Client, name: str) -> None:
    tensor = client.zeros(3)
    tensor.commit()
    client.publish(name, tensor, access="immutable")
    reader = client.get(name)
    assert reader.wait(1) == 1
    with pytest.raises(tidl.AccessError):
        reader.wait(2)
    with pytest.raises(tidl.ReadOnlyError):
        tensor.commit()


@pytest.mark.parametrize(
    ("access", "advice"),
    [
        ("shared", "attach it for writing"),
        ("live", "wait for those of its producer"),
        ("immutable", "read it as it is"),
    ],
)
def test_readers_are_not_sent_to_write_what_they_cannot(
    client: tidl.Client, name: str, access: str, advice: str
) -> None:
    client.publish(name, client.zeros(3), access=access)
    with pytest.raises(tidl.ReadOnlyError, match=advice):
        client.get(name).commit()


def test_tensors_without_elements_make_none(client: tidl.Client) -> None:
    tensor = client.empty((0, 3))
    uses: list[Callable[[], object]] = [
        lambda: tensor.step,
        tensor.commit,
        tensor.read,
        lambda: tensor.wait(0),
        tensor.update().__enter__,
        tensor.turns(1).take(0).__enter__,
    ]
    for use in uses:
        with pytest.raises(tidl.InvalidArgumentError, match="without elements"):
            use()


@pytest.mark.parametrize("step", [-1, 2**63, 1.5, "1", None, True])
def test_steps_are_whole_numbers(client: tidl.Client, step: object) -> None:
    with pytest.raises(tidl.InvalidArgumentError):
        client.zeros(3).wait(step, 0)  # type: ignore[arg-type]


@pytest.mark.parametrize("timeout", [-1, float("nan"), "1"])
def test_timeouts_are_seconds(client: tidl.Client, timeout: object) -> None:
    tensor = client.zeros(3)
    for use in (lambda: tensor.wait(1, timeout), lambda: tensor.read(timeout=timeout)):  # type: ignore[arg-type]
        with pytest.raises(tidl.InvalidArgumentError):
            use()


def test_tensors_over_one_memory_share_steps(client: tidl.Client, name: str) -> None:
    whole = client.zeros((2, 3))
    rows = whole.to_numpy()
    client.publish(f"{name}/a", rows[0])
    client.publish(f"{name}/b", rows[1])
    first, second = client.get(f"{name}/a"), client.get(f"{name}/b")
    whole.commit()
    assert (first.step, second.step) == (1, 1)


# ---- waiting ----


def test_time_outs(client: tidl.Client, name: str, writer: tidl.Tensor) -> None:
    reader = client.get(name)
    for timeout in (0, 0.05):
        with pytest.raises(tidl.TimedOutError) as caught:
            reader.wait(1, timeout)
        assert isinstance(caught.value, TimeoutError)
    with writer.update(), pytest.raises(tidl.TimedOutError, match="an update is open"):
        reader.read(timeout=0)


def test_many_readers_follow(
    client: tidl.Client, name: str, writer: tidl.Tensor, start_peer: Callable[..., Peer]
) -> None:
    steps = 500
    readers = [start_peer("client = tidl.connect()") for _ in range(3)]
    for reader in readers:
        reader.do(f"x = client.get({name!r}); x.step")
        reader.start(
            "step = 0\n"
            f"while step < {steps}:\n"
            "    step = x.wait(step + 1)\n"
            "    copy, seen = x.read(return_step=True)\n"
            "    assert seen >= step and (copy == seen).all(), (copy, seen, step)\n"
        )
    array = writer.to_numpy()
    for _ in range(steps):
        with writer.update() as step:
            array[:] = step
    for reader in readers:
        reader.finish()
        assert reader.ask("step") == steps


def test_ctrl_c_ends_a_wait(
    client: tidl.Client, name: str, writer: tidl.Tensor, peer: Peer
) -> None:
    peer.do(f"x = client.get({name!r}); x.step")
    peer.start("x.wait(1)")
    assert is_asleep(peer.pid)
    peer.interrupt()
    with pytest.raises(PeerError) as caught:
        peer.finish()
    assert caught.value.kind == "KeyboardInterrupt"
    writer.commit()
    assert peer.ask("x.wait(1)") == 1


def test_a_signal_handler_that_returns_lets_the_wait_go_on(
    client: tidl.Client, name: str, writer: tidl.Tensor, peer: Peer
) -> None:
    peer.do("import signal\nsignal.signal(signal.SIGUSR1, lambda *a: sign('handled'))")
    peer.do(f"x = client.get({name!r}); x.step")
    peer.start("x.wait(1)", is_expression=True)
    assert is_asleep(peer.pid)
    peer.process.send_signal(signal.SIGUSR1)
    assert peer.await_sign() == "handled"
    writer.commit()
    assert peer.finish() == 1


def test_a_wait_holds_up_no_other_thread(client: tidl.Client, name: str) -> None:
    tensor = client.zeros(3)
    client.publish(name, tensor)
    with ThreadPoolExecutor(3) as pool:
        waits = [pool.submit(tensor.wait, 1) for _ in range(3)]
        seen = len(client.list(name))
        tensor.commit()
        assert [wait.result(30) for wait in waits] == [1, 1, 1]
    assert seen == 1


def test_close_ends_waits(name: str) -> None:
    client = tidl.connect()
    tensor = client.zeros(3)
    assert tensor.step == 0  # from here on its page is mapped
    with ThreadPoolExecutor(1) as pool:
        wait = pool.submit(tensor.wait, 1)
        assert eventually(wait.running)
        client.close()
        with pytest.raises(tidl.ClosedError):
            wait.result(30)
    assert tensor.commit() == 1, "what is mapped goes on"
    assert tensor.wait(1) == 1


# ---- writers that go ----


@pytest.mark.parametrize("access", ["shared", "live"])
def test_the_death_of_the_writer(client: tidl.Client, name: str, peer: Peer, access: str) -> None:
    peer.do(f"x = client.zeros(3); client.publish({name!r}, x, access={access!r}); x.commit()")
    reader = client.get(name)
    with ThreadPoolExecutor(2) as pool:
        waits = [pool.submit(reader.wait, 2) for _ in range(2)]
        peer.kill()
        for wait in waits:
            with pytest.raises(tidl.WriterGoneError, match="has ended") as caught:
                wait.result(30)
            assert caught.value.code == "WRITER_GONE"
            assert isinstance(caught.value, EOFError)
    assert reader.wait(1) == 1
    with pytest.raises(tidl.WriterGoneError):
        reader.wait(2, timeout=1000)
    assert reader.read().tolist() == [0, 0, 0]


def test_death_within_an_update(client: tidl.Client, name: str, peer: Peer) -> None:
    peer.do(f"x = client.zeros(3); client.publish({name!r}, x); x.update().__enter__()")
    heir = client.get(name, access="write")
    peer.kill()
    with pytest.raises(tidl.WriterGoneError):
        heir.read()
    with heir.update():  # nobody else is left: it is taken over
        heir.to_numpy()[:] = 5
    assert heir.read(return_step=True)[1] == 1


def test_the_broker_goes(own_runtime: Path) -> None:
    with tidl.connect() as producer, tidl.connect() as consumer:
        tensor = producer.zeros(3)
        producer.publish("x", tensor)
        reader = consumer.get("x")
        assert tensor.step == reader.step == 0
        with ThreadPoolExecutor(1) as pool:
            wait = pool.submit(reader.wait, 1)
            assert eventually(wait.running)
            end_brokers(own_runtime)
            with pytest.raises(tidl.BrokerGoneError):
                wait.result(30)
        with ThreadPoolExecutor(1) as pool:
            wait = pool.submit(reader.wait, 1, 1000)
            tensor.commit()
            assert wait.result(30) == 1


def test_in_a_forked_child(client: tidl.Client, name: str) -> None:
    tensor = client.zeros(3)
    client.publish(name, tensor)
    tensor.commit()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            assert tensor.commit() == 2
            assert tensor.wait(3, timeout=1000) == 3
            try:
                tensor.wait(4)
            except tidl.Error:  # nobody would tell the child of a writer that goes
                status = 0
        finally:
            os._exit(status)
    assert tensor.wait(2, timeout=1000) == 2
    tensor.commit()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


# ---- snapshots ----


def test_read_into_an_array(client: tidl.Client, name: str, writer: tidl.Tensor) -> None:
    writer.to_numpy()[:] = np.arange(12).reshape(4, 3)
    out = np.empty((4, 3), np.int64)
    assert writer.read(out=out) is out
    assert out.tolist() == np.arange(12).reshape(4, 3).tolist()
    frozen = out.copy()
    frozen.flags.writeable = False
    for wrong in (frozen, out.T, out[:2], out.astype(np.int32), out[:, ::-1], [0]):
        with pytest.raises(tidl.InvalidArgumentError, match="out must be"):
            writer.read(out=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", ["bool", "float16", "complex128", "uint8"])
def test_read_of_any_dtype(client: tidl.Client, name: str, dtype: str) -> None:
    tensor = client.zeros((), dtype=dtype)
    copy = tensor.read()
    assert (copy.dtype, copy.shape) == (np.dtype(dtype), ())
    with pytest.raises(tidl.DtypeError):
        client.zeros(3, dtype="bfloat16").read()


def test_read_of_a_view(client: tidl.Client, name: str) -> None:
    whole = client.zeros((4, 6), dtype="float32")
    array = whole.to_numpy()
    array[:] = np.arange(24).reshape(4, 6)
    client.publish(name, array[::2, ::-2])
    assert client.get(name).read().tolist() == array[::2, ::-2].tolist()


# ---- turns ----

TURNS = """
turns = x.turns({index}, {count})
for i in range({rounds}):
    with turns.take(timeout=60) as step:
        assert step == i * {count} + {index}, step
        assert a[0] == step, (a, step)
        a[0] += 1
"""


@pytest.mark.parametrize("count", [1, 2, 3])
def test_turns(client: tidl.Client, name: str, start_peer: Callable[..., Peer], count: int) -> None:
    rounds = 300
    tensor = client.zeros(1, dtype="int64")
    client.publish(name, tensor)
    others = [start_peer("client = tidl.connect()") for _ in range(1, count)]
    for index, other in enumerate(others, 1):
        other.do(f"x = client.get({name!r}, access='write'); a = x.to_numpy()")
        other.start(TURNS.format(index=index, count=count, rounds=rounds))
    exec(TURNS.format(index=0, count=count, rounds=rounds), {"x": tensor, "a": tensor.to_numpy()})
    for other in others:
        other.finish()
    assert tensor.to_numpy()[0] == tensor.step == rounds * count


def test_a_turn_that_raises_stays(client: tidl.Client, name: str, peer: Peer) -> None:
    tensor = client.zeros(1)
    client.publish(name, tensor)
    peer.do(f"x = client.get({name!r}, access='write')")
    turns = tensor.turns(0)
    with pytest.raises(ZeroDivisionError), turns.take():
        1 / 0  # noqa: B018
    assert tensor.step == 0
    peer.start("with x.turns(1).take(): pass")
    with turns.take() as step:
        assert step == 0
    peer.finish()
    assert tensor.wait(2) == 2


def test_whoever_comes_back_goes_on_with_its_turn(
    client: tidl.Client, name: str, start_peer: Callable[..., Peer]
) -> None:
    tensor = client.zeros(1)
    client.publish(name, tensor)
    turns = tensor.turns(0)
    get = f"client = tidl.connect(); x = client.get({name!r}, access='write')"
    with turns.take():
        pass
    first = start_peer(get)
    first.do("x.turns(1).take().__enter__()")
    first.kill()
    with pytest.raises(tidl.WriterGoneError), turns.take():
        pass
    second = start_peer(get)
    second.start("with x.turns(1).take(timeout=60): pass")
    with turns.take(timeout=60) as step:
        assert step == 2
    second.finish()


def test_turns_time_out(client: tidl.Client) -> None:
    turns = client.zeros(1).turns(1)
    with pytest.raises(tidl.TimedOutError), turns.take(0.01):
        raise AssertionError("it is not its turn")
    assert repr(turns).startswith("<tidl.Turns 1 of 2 over <tidl.Tensor")


@pytest.mark.parametrize(("index", "count"), [(2, 2), (-1, 2), (0, 0), (0.5, 2), (0, None)])
def test_turns_are_numbered_from_zero(client: tidl.Client, index: object, count: object) -> None:
    with pytest.raises(tidl.InvalidArgumentError):
        client.zeros(1).turns(index, count)  # type: ignore[arg-type]


def test_threads_of_one_process_update_one_after_the_other(client: tidl.Client) -> None:
    tensor = client.zeros(1, dtype="int64")
    array = tensor.to_numpy()
    lock = threading.Lock()

    def work() -> None:
        for _ in range(200):
            with lock, tensor.update():
                array[0] += 1

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(work) for _ in range(4)]:
            done.result(60)
    assert tensor.step == array[0] == 800


def test_live_bundles(client: tidl.Client, name: str, peer: Peer) -> None:
    whole = client.zeros((2, 3))
    rows, other = whole.to_numpy(), client.zeros(4)
    client.publish(name, {"a": rows[0], "b": {"c": rows[1], "d": other}}, access="live")
    peer.do(f"bundle = client.get({name!r})")
    for path in ("'a'", "'b']['c'", "'b']['d'"):
        peer.do(f"assert bundle[{path}].step == 0")
    peer.start("bundle['b']['c'].wait(1, 60), bundle['b']['d'].step", is_expression=True)
    with whole.update():
        rows[:] = 3
    assert peer.finish() == (1, 0), "each memory has its own"
    other.commit()
    assert peer.ask("bundle['a'].read().tolist(), bundle['b']['d'].wait(1)") == ([3, 3, 3], 1)


def test_an_open_question_keeps_no_event_loop(client: tidl.Client, name: str) -> None:
    tensor = client.zeros(3)
    client.publish(name, tensor)
    with pytest.raises(tidl.TimedOutError):
        tensor.wait(1, 0.01)  # from here on the broker has something to tell

    async def get() -> tuple[int, ...]:
        return (await client.aget(name, timeout=60)).shape

    assert asyncio.run(get()) == (3,)
    assert asyncio.run(get()) == (3,)
    tensor.commit()
    assert tensor.wait(1) == 1
