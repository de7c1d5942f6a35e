# SPDX-License-Identifier: Apache-2.0
"""Waiting: time-outs, Ctrl-C, threads, and closing under a waiting call."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from python_brokers import await_poll, eventually, is_let_go
from python_peer import Peer, PeerError

import tidl


def test_no_wait(client: tidl.Client, name: str) -> None:
    with pytest.raises(tidl.NotFoundError) as caught:
        client.get(name)
    assert caught.value.code == "NOT_FOUND"
    assert isinstance(caught.value, KeyError)


def test_timeout(client: tidl.Client, name: str) -> None:
    start = time.monotonic()
    with pytest.raises(tidl.TimedOutError) as caught:
        client.get(name, timeout=0.05)
    assert time.monotonic() - start >= 0.05
    assert caught.value.code == "TIMEOUT"
    assert isinstance(caught.value, TimeoutError)
    client.publish(name, np.ones(2))  # the client is fine
    assert client.get(name, timeout=0.05).shape == (2,)


def test_a_late_generation_is_not_said_to_be_a_missing_name(client: tidl.Client, name: str) -> None:
    client.publish(name, np.ones(2))
    seen = client.get(name).generation
    with pytest.raises(tidl.TimedOutError, match=f"got no generation above {seen} within"):
        client.get(name, newer_than=seen, timeout=0.01)
    with pytest.raises(tidl.TimedOutError, match=f"got no generation above {seen} within"):
        client.wait(name, newer_than=seen, timeout=0.01)
    with pytest.raises(tidl.TimedOutError, match="nothing that you may read was published"):
        client.wait(f"{name}/other", timeout=0.01)


def test_wait_ends_when_the_name_appears(client: tidl.Client, peer: Peer, name: str) -> None:
    peer.start(f"client.get({name!r}, timeout=None).to_numpy().tolist()", is_expression=True)
    client.publish(name, np.arange(3))
    assert peer.finish() == [0, 1, 2]


def test_wait_in_one_thread_holds_up_no_other(client: tidl.Client, name: str) -> None:
    with ThreadPoolExecutor(3) as pool:
        waits = [pool.submit(client.get, f"{name}/{i}", timeout=None) for i in range(3)]
        for i in range(20):  # all of it through the same client
            client.publish(f"{name}/other", np.full(2, i), replace=True)
            assert client.get(f"{name}/other").to_numpy().tolist() == [i, i]
        assert not any(wait.done() for wait in waits)
        for i in (2, 0, 1):
            client.publish(f"{name}/{i}", np.full(2, i))
            assert waits[i].result(30).to_numpy().tolist() == [i, i]


@pytest.mark.parametrize("timeout", ["None", "1000"])
def test_ctrl_c_ends_a_wait(client: tidl.Client, peer: Peer, name: str, timeout: str) -> None:
    peer.start(f"client.get({name!r}, timeout={timeout})")
    assert await_poll(peer.pid)
    peer.interrupt()
    with pytest.raises(PeerError) as caught:
        peer.finish()
    assert caught.value.kind == "KeyboardInterrupt"
    client.publish(name, np.ones(3))
    assert client.inspect(name).holders == ()
    assert peer.ask(f"client.get({name!r}).shape") == (3,)


def test_a_signal_handler_that_returns_lets_the_wait_go_on(
    client: tidl.Client, peer: Peer, name: str
) -> None:
    peer.do("import signal\nsignal.signal(signal.SIGUSR1, lambda *a: sign('handled'))")
    peer.start(f"x = client.get({name!r}, timeout=None)")
    assert await_poll(peer.pid)
    peer.process.send_signal(signal.SIGUSR1)
    assert peer.await_sign() == "handled"
    client.publish(name, np.ones(3))
    peer.finish()
    assert peer.ask("x.shape") == (3,)


def test_close_ends_the_waits_of_other_threads(name: str) -> None:
    client = tidl.connect()
    with ThreadPoolExecutor(2) as pool:
        waits = [pool.submit(client.get, name, timeout=None) for _ in range(2)]
        assert eventually(lambda: all(wait.running() for wait in waits))
        client.close()
        for wait in waits:
            with pytest.raises(tidl.ClosedError) as caught:
                wait.result(30)
            assert caught.value.code == "CLOSED"


def test_threads_publish_get_and_release_together(client: tidl.Client, name: str) -> None:
    def work(number: int) -> int:
        total = 0
        for step in range(100):
            mine = f"{name}/{number}"
            client.publish(mine, np.full(4, number), replace=True)
            tensor = client.get(mine)
            total += int(tensor.to_numpy().sum())
            if step % 2:
                tensor.release()
        return total

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8))) == [400 * number for number in range(8)]
    for number in range(8):
        assert is_let_go(client, f"{name}/{number}")


@pytest.mark.dlpack_rule("P15", "P26")
def test_one_tensor_is_exported_and_released_by_many_threads(
    client: tidl.Client, name: str
) -> None:
    client.publish(name, np.arange(1000))
    expected = 499500
    for _ in range(30):
        tensor = client.get(name)
        barrier = threading.Barrier(4)

        def use(tensor: tidl.Tensor = tensor, barrier: threading.Barrier = barrier) -> int | None:
            barrier.wait()
            try:
                return int(np.from_dlpack(tensor).sum())
            except tidl.ReleasedError:
                return None

        def release(
            tensor: tidl.Tensor = tensor, barrier: threading.Barrier = barrier
        ) -> int | None:
            barrier.wait()
            tensor.release()
            return None

        with ThreadPoolExecutor(4) as pool:
            jobs = [pool.submit(work) for work in (use, use, use, release)]
            assert {job.result() for job in jobs} <= {expected, None}
    assert is_let_go(client, name)


@pytest.mark.parametrize("timeout", [-1, float("nan"), "soon"])
def test_bad_timeouts(client: tidl.Client, name: str, timeout: float) -> None:
    with pytest.raises(tidl.InvalidArgumentError, match="timeout"):
        client.get(name, timeout=timeout)


def test_the_gil_is_free_while_waiting(start_peer: Callable[..., Peer], name: str) -> None:
    """Were it held, the thread that publishes could never run."""
    peer = start_peer("import threading\nclient = tidl.connect()\nother = tidl.connect()")
    peer.do(
        f"t = threading.Thread(target=lambda: other.publish({name!r}, b'abc')); t.start()\n"
        f"x = client.get({name!r}, timeout=60)\nt.join()"
    )
    assert peer.ask("x.shape") == (3,)
