# SPDX-License-Identifier: Apache-2.0
"""Waiting in event loops: answers, cancelling, several loops, loops beside threads."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from python_brokers import descriptors, eventually
from python_peer import Peer, PeerError

import tidl


async def until(is_true: Callable[[], bool]) -> None:
    """Lets the loop go round until it is so."""
    while not is_true():
        await asyncio.sleep(0)


async def begun(client: tidl.Client, work: Awaitable[Any]) -> asyncio.Task[Any]:
    """A task whose request is on its way."""
    before = client._core.due()
    task = asyncio.ensure_future(work)
    await until(lambda: client._core.due() > before)
    return task


async def settled(client: tidl.Client) -> None:
    """The loop has heard of all that was given up, and does not watch the client any more."""
    await until(lambda: client._core.due() == 0 and not client._loops._ports)


def holder_count(client: tidl.Client, name: str) -> int:
    return len(client.inspect(name).holders)


def test_a_tensor_is_awaited(client: tidl.Client, peer: Peer, name: str) -> None:
    async def main() -> list[int]:
        task = await begun(client, client.aget(name, timeout=None))
        peer.start(f"client.publish({name!r}, np.arange(3))")
        tensor = await task
        assert tensor.name == name
        return list(tensor.to_numpy())

    assert asyncio.run(main(), debug=True) == [0, 1, 2]
    peer.finish()


def test_what_is_there_already_comes_without_waiting(client: tidl.Client, name: str) -> None:
    publication = client.publish(name, np.arange(3))

    async def main() -> None:
        with await client.aget(name) as tensor:
            assert tensor.generation == publication.generation
        with await client.aget(name, access="write", generation=publication.generation) as tensor:
            assert not tensor.readonly
        await settled(client)

    asyncio.run(main(), debug=True)
    assert holder_count(client, name) == 0


def test_a_bundle_or_a_part_of_it(client: tidl.Client, name: str) -> None:
    async def main() -> None:
        task = await begun(client, client.aget(name, timeout=None))
        client.publish(name, {"a": np.ones(2), "deep": {"b": np.zeros(3)}})
        bundle = await task
        assert isinstance(bundle, tidl.Bundle)
        assert list(bundle.flat) == ["a", "deep/b"]
        bundle.release()
        with await client.aget(name, keys=["deep"]) as part:
            assert list(part.flat) == ["deep/b"]
        with pytest.raises(tidl.NotFoundError):
            await client.aget(name, keys=["none"])
        await settled(client)

    asyncio.run(main(), debug=True)
    assert holder_count(client, name) == 0


def test_a_bundle_that_comes_in_several_packets(client: tidl.Client, name: str) -> None:
    """Several at once, beside calls that wait, and one that is given up on the way."""
    count = 600
    client.publish(name, {f"k{i}": client.zeros(1) for i in range(count)})

    async def main() -> None:
        tasks = [asyncio.ensure_future(client.aget(name)) for _ in range(3)]
        given_up = await begun(client, client.aget(name))
        await asyncio.to_thread(client.inspect, name)
        given_up.cancel()
        for bundle in await asyncio.gather(*tasks):
            assert isinstance(bundle, tidl.Bundle)
            assert bundle.segment_count == count
            bundle.release()
        await settled(client)

    asyncio.run(main(), debug=True)
    assert eventually(lambda: holder_count(client, name) == 0)


def test_errors_are_those_of_get(client: tidl.Client, name: str) -> None:
    async def main() -> None:
        with pytest.raises(tidl.NotFoundError):
            await client.aget(name)
        with pytest.raises(tidl.NameInvalidError):
            await client.aget("a//b")
        with pytest.raises(tidl.InvalidArgumentError):
            await client.aget(name, access="rw")
        with pytest.raises(tidl.InvalidArgumentError):
            await client.aget(name, timeout=-1)
        with pytest.raises(tidl.TimedOutError) as caught:
            await client.aget(name, timeout=0.02)
        assert caught.value.code == "TIMEOUT"
        assert name in str(caught.value)
        with pytest.raises(tidl.TimedOutError, match="nothing that you may read was published"):
            await client.await_generation(name, timeout=0.02)
        seen = client.publish(name, np.ones(3)).generation
        with pytest.raises(tidl.TimedOutError, match=f"got no generation above {seen} within"):
            await client.aget(name, newer_than=seen, timeout=0.02)
        await settled(client)

    asyncio.run(main(), debug=True)


def test_cancelling_cancels_at_the_broker(client: tidl.Client, name: str) -> None:
    async def main() -> None:
        task = await begun(client, client.aget(name, timeout=None))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await client.aget(name, timeout=None)
        await settled(client)

    asyncio.run(main(), debug=True)
    client.publish(name, np.ones(3))
    assert holder_count(client, name) == 0


def test_a_tensor_that_nobody_takes_any_more_is_given_back(client: tidl.Client, name: str) -> None:
    async def main() -> None:
        task = await begun(client, client.aget(name, timeout=None))
        client.publish(name, np.ones(3))  # receives the tensor's grant, too
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await settled(client)

    asyncio.run(main(), debug=True)
    assert holder_count(client, name) == 0


def test_an_abandoned_loop_leaves_nothing(client: tidl.Client, name: str) -> None:
    """A loop that is closed in the middle, its tasks never finished."""
    client.fileno()  # makes descriptors of its own, once
    gc.collect()  # what tests before this one left
    before = descriptors()
    loop = asyncio.new_event_loop()

    async def begin() -> None:
        await begun(client, client.aget(name, timeout=None))

    loop.run_until_complete(begin())
    for task in asyncio.all_tasks(loop):
        task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()
    del loop, task
    gc.collect()
    client.publish(name, np.ones(3))
    assert eventually(lambda: holder_count(client, name) == 0)
    assert client.get(name).shape == (3,)

    async def other() -> None:
        (await client.aget(name)).release()
        await settled(client)

    asyncio.run(other(), debug=True)
    gc.collect()
    assert descriptors() == before


def test_hundreds_at_once(client: tidl.Client, peer: Peer, name: str) -> None:
    count = 300
    client.fileno()
    before = descriptors()

    async def main() -> int:
        tasks = [
            asyncio.ensure_future(client.aget(f"{name}/{i}", timeout=None)) for i in range(count)
        ]
        await until(lambda: client._core.due() == count)
        assert len(descriptors()) - len(before) < 20  # the loop's own and one for all
        peer.do(f"for i in range({count}): client.publish(f'{name}/{{i}}', np.full(2, i))")
        total = 0
        for tensor in await asyncio.gather(*tasks):
            total += int(tensor.to_numpy()[0])
            tensor.release()
        await settled(client)
        return total

    assert asyncio.run(main()) == sum(range(count))
    gc.collect()
    assert descriptors() == before


def test_loops_and_threads_share_a_client(client: tidl.Client, name: str) -> None:
    """Any of them may receive what another one waits for."""
    rounds = 40

    def loop_main(number: int) -> int:
        async def main() -> int:
            total = 0
            for i in range(rounds):
                tensor = await client.aget(f"{name}/loop{number}/{i}", timeout=None)
                total += int(tensor.to_numpy()[0])
                tensor.release()
            return total

        return asyncio.run(main())

    def thread_main(number: int) -> int:
        total = 0
        for i in range(rounds):
            with client.get(f"{name}/thread{number}/{i}", timeout=None) as tensor:
                total += int(tensor.to_numpy()[0])
        return total

    with ThreadPoolExecutor(6) as pool:
        jobs = [pool.submit(loop_main, number) for number in range(3)]
        jobs += [pool.submit(thread_main, number) for number in range(3)]
        for i in range(rounds):
            for number in range(3):
                client.publish(f"{name}/loop{number}/{i}", np.full(2, i))
                client.publish(f"{name}/thread{number}/{i}", np.full(2, i))
        assert [job.result(60) for job in jobs] == [sum(range(rounds))] * 6
    assert eventually(lambda: not client._loops._waiting)


def test_close_ends_what_loops_wait_for(name: str) -> None:
    before = descriptors()
    client = tidl.connect()
    ready = threading.Event()

    def loop_main() -> str:
        async def main() -> str:
            task = await begun(client, client.aget(name, timeout=None))
            ready.set()
            with pytest.raises(tidl.ClosedError) as caught:
                await task
            await until(lambda: not client._loops._ports)
            return str(caught.value.code)

        return asyncio.run(main(), debug=True)

    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(loop_main)
        assert ready.wait(30)
        client.close()
        assert job.result(30) == "CLOSED"

    async def too_late() -> None:
        with pytest.raises(tidl.ClosedError):
            await client.aget(name)

    asyncio.run(too_late())
    gc.collect()
    assert descriptors() == before


def test_the_loop_that_closes_its_own_client(name: str) -> None:
    async def main() -> None:
        with tidl.connect() as client:
            task = await begun(client, client.aget(name, timeout=None))
        with pytest.raises(tidl.ClosedError):
            await task
        await until(lambda: not client._loops._ports)

    asyncio.run(main(), debug=True)


def test_ctrl_c_ends_a_loop_that_waits(client: tidl.Client, peer: Peer, name: str) -> None:
    peer.do(
        "import asyncio\n"
        "async def main():\n"
        f"    task = asyncio.ensure_future(client.aget({name!r}, timeout=None))\n"
        "    while not client._core.due(): await asyncio.sleep(0)\n"
        "    sign()\n"
        "    await task\n"
    )
    peer.start("asyncio.run(main())")
    peer.await_sign()
    peer.interrupt()
    with pytest.raises(PeerError) as caught:
        peer.finish()
    assert caught.value.kind == "KeyboardInterrupt"
    client.publish(name, np.ones(3))
    assert peer.ask(f"client.get({name!r}).shape") == (3,)
    peer.do("client.dispatch()")
    assert eventually(lambda: holder_count(client, name) <= 1)


def test_a_broker_that_dies_ends_the_wait(own_runtime: os.PathLike[str], name: str) -> None:
    from python_brokers import end_brokers

    async def main() -> None:
        with tidl.connect() as client:
            task = await begun(client, client.aget(name, timeout=None))
            end_brokers(own_runtime)  # type: ignore[arg-type]
            with pytest.raises(tidl.BrokerGoneError):
                await task
            with pytest.raises(tidl.BrokerGoneError):
                await client.aget(name)

    asyncio.run(main(), debug=True)


def test_a_forked_child_has_loops_of_its_own(client: tidl.Client, name: str) -> None:
    from test_py_fork import in_child

    client.publish(f"{name}/there", np.arange(3))

    async def main() -> None:
        task = await begun(client, client.aget(name, timeout=None))

        def work() -> None:
            asyncio._set_running_loop(None)

            async def child() -> list[int]:
                return list((await client.aget(f"{name}/there")).to_numpy())

            loop = asyncio.new_event_loop()
            assert loop.run_until_complete(child()) == [0, 1, 2]
            loop.close()

        assert in_child(work) == 0
        client.publish(name, np.ones(2))
        (await task).release()  # the parent's loop still watches
        await settled(client)

    asyncio.run(main(), debug=True)
