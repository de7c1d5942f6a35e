# SPDX-License-Identifier: Apache-2.0
"""Clients and tensors in forked children."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
from python_brokers import eventually

import tidl


def in_child(work: Callable[[], object]) -> int:
    """Runs work in a forked child, without this process's exit handlers. Returns its status."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_child_goes_on_with_the_client(client: tidl.Client, name: str) -> None:
    client.publish(f"{name}/parent", np.arange(3))

    def work() -> None:
        assert client.get(f"{name}/parent").to_numpy().tolist() == [0, 1, 2]
        client.publish(f"{name}/child", np.arange(4))

    assert in_child(work) == 0
    assert client.get(f"{name}/child").to_numpy().tolist() == [0, 1, 2, 3]


@pytest.mark.dlpack_rule("X7")
def test_inherited_tensors_stay_mapped_and_are_not_given_back(
    client: tidl.Client, name: str
) -> None:
    client.publish(name, np.arange(3))
    tensor = client.get(name, access="write")
    array = tensor.to_numpy()

    def work() -> None:
        array[0] = 7  # shared with the parent
        tensor.release()
        client.dispatch()
        client.list()
        assert array.tolist() == [7, 1, 2]

    assert in_child(work) == 0
    assert array.tolist() == [7, 1, 2]
    holders = client.inspect(name).holders
    assert [holder.pid for holder in holders] == [os.getpid()]


@pytest.mark.dlpack_rule("X7")
def test_close_in_the_child_leaves_the_parent_alone(client: tidl.Client, name: str) -> None:
    assert in_child(client.close) == 0
    client.publish(name, np.ones(2))
    assert client.get(name).shape == (2,)


def test_fork_while_another_thread_waits(client: tidl.Client, name: str) -> None:
    with ThreadPoolExecutor(1) as pool:
        wait = pool.submit(client.get, f"{name}/later", timeout=None)
        assert eventually(wait.running)

        def work() -> None:
            client.publish(f"{name}/child", np.ones(2))
            client.close()
            assert client.closed

        assert in_child(work) == 0
        assert not wait.done()
        client.publish(f"{name}/later", np.ones(3))
        assert wait.result(30).shape == (3,)


def test_child_of_a_child(client: tidl.Client, name: str) -> None:
    def grandchild() -> None:
        client.publish(name, np.ones(2))

    def child() -> None:
        client.list()
        assert in_child(grandchild) == 0

    assert in_child(child) == 0
    assert client.get(name).shape == (2,)


@pytest.mark.dlpack_rule("X7")
def test_many_children(client: tidl.Client, name: str) -> None:
    x = client.zeros((8,), dtype="int32")
    client.publish(name, x)

    def work(number: int) -> None:
        client.get(name, access="write").to_numpy()[number] = number + 1

    for number in range(8):
        assert in_child(partial(work, number)) == 0
    assert x.to_numpy().tolist() == list(range(1, 9))
    assert eventually(
        lambda: {holder.pid for holder in client.inspect(name).holders} == {os.getpid()}
    )


def _serve_from_fork(name: str, client: tidl.Client) -> None:
    client.get(name, access="write").to_numpy()[:] = 5


def test_multiprocessing_fork(client: tidl.Client, name: str) -> None:
    x = client.zeros((8,), dtype="int32")
    client.publish(name, x)
    process = multiprocessing.get_context("fork").Process(
        target=_serve_from_fork, args=(name, client)
    )
    process.start()
    process.join()
    assert process.exitcode == 0
    assert x.to_numpy().tolist() == [5] * 8


def test_fork_from_a_thread(client: tidl.Client, name: str) -> None:
    statuses: list[int] = []
    thread = threading.Thread(
        target=lambda: statuses.append(in_child(partial(client.publish, name, b"x")))
    )
    thread.start()
    thread.join()
    assert statuses == [0]
    assert client.get(name).shape == (1,)
