# SPDX-License-Identifier: Apache-2.0
"""Events, waiting for generations and releases, and what ends by itself; with real processes."""

from __future__ import annotations

import asyncio
import gc
import pickle
import select
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from python_brokers import await_poll, descriptors, end_brokers, eventually
from python_peer import Peer, PeerError

import tidl

LONG_S = 60.0


def told(watch: tidl.Watch, count: int) -> list[tuple[str, str | None]]:
    """Kind and name of the next events."""
    events = [watch.next(LONG_S) for _ in range(count)]
    return [(event.kind, event.name) for event in events if event]


def told_until_removed(watch: tidl.Watch) -> bool:
    while True:
        event = watch.next(LONG_S)
        assert event
        if event.kind == "removed":
            return True


def waiting_count(client: tidl.Client) -> int:
    """Calls of other threads that this client has in flight."""
    return len(client._loops._waiting)


# ---- events ----


def test_the_life_of_a_name(client: tidl.Client, name: str) -> None:
    with client.watch(f"{name}/**") as watch:
        first = client.publish(f"{name}/x", np.ones(3))
        second = client.publish(f"{name}/x", np.ones(3), replace=True)
        client.remove(f"{name}/x")
        client.publish(f"{name}x", np.ones(3))  # another's
        events = [watch.next(LONG_S) for _ in range(3)]
        assert watch.next(0) is None
    kinds = [(event.kind, event.generation) for event in events if event]
    assert kinds == [
        ("published", first.generation),
        ("replaced", second.generation),
        ("removed", second.generation),
    ]
    event = events[0]
    assert event
    assert (event.name, event.owner) == (f"{name}/x", client.broker.uid)
    assert (event.holder_uid, event.holder_pid, event.access) == (None, None, None)


def test_who_holds(client: tidl.Client, peer: Peer, name: str) -> None:
    publication = client.publish(name, np.ones(3))
    with client.watch(name, kinds=["leased", "released"]) as watch:
        peer.do(f"tensor = client.get({name!r}, access='write')")
        event = watch.next(LONG_S)
        assert event == tidl.Event(
            kind="leased",
            name=name,
            owner=client.broker.uid,
            generation=publication.generation,
            holder_uid=client.broker.uid,
            holder_pid=peer.pid,
            access="write",
        )
        peer.kill()
        event = watch.next(LONG_S)
        assert event
        assert (event.kind, event.holder_pid, event.access) == ("released", peer.pid, "write")


def test_a_dead_owner(client: tidl.Client, peer: Peer, name: str) -> None:
    peer.do(f"client.publish({name!r}, np.ones(3), retain='owner')")
    with client.watch(name) as watch:
        peer.kill()
        assert told(watch, 2) == [("owner_died", name), ("removed", name)]


def test_an_owner_that_closes_has_not_died(client: tidl.Client, peer: Peer, name: str) -> None:
    peer.do(f"client.publish({name!r}, np.ones(3), retain='owner')")
    with client.watch(name) as watch:
        peer.do("client.close()")
        assert told(watch, 1) == [("removed", name)]
        assert watch.next(0) is None


def test_a_script_that_ends_has_not_died(client: tidl.Client, peer: Peer, name: str) -> None:
    """Without close(), as scripts end."""
    peer.do(f"client.publish({name!r}, np.ones(3), retain='owner')")
    with client.watch(name) as watch:
        assert peer.end() == 0
        assert told(watch, 1) == [("removed", name)]


def test_slow_readers_find_a_gap(client: tidl.Client, name: str) -> None:
    count = 8000
    with tidl.connect() as other:
        watch = other.watch(f"{name}/x", kinds=["published", "replaced"])
        publication = client.publish(f"{name}/x", np.ones(1))
        tensor = client.get(f"{name}/x")
        for _ in range(count):
            client.publish(f"{name}/x", tensor, replace=True)
        last = client.publish(f"{name}/x", tensor, replace=True).generation
        kinds = []
        generations = []
        while not generations or generations[-1] != last:
            event = watch.next(LONG_S)
            assert event
            kinds.append(event.kind)
            if event.kind == "lost":
                assert event.name is None
                break
            generations.append(event.generation)
        assert "lost" in kinds
        assert generations == sorted(set(generations))
        assert generations[0] == publication.generation
        # The connection is fine, and so is the watch.
        assert other.get(f"{name}/x").generation == last
        client.publish(f"{name}/x", tensor, replace=True)
        while True:
            event = watch.next(LONG_S)
            assert event
            if event.generation > last:
                break


def test_iteration_ends_with_close(client: tidl.Client, name: str) -> None:
    watch = client.watch(f"{name}/*")
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(lambda: [event.name for event in watch])
        client.publish(f"{name}/a", np.ones(1))
        client.publish(f"{name}/b", np.ones(1))
        assert eventually(lambda: watch._core.next(0) is None)
        watch.close()
        names = job.result(LONG_S)
    assert set(names) <= {f"{name}/a", f"{name}/b"}
    assert watch.closed
    assert list(watch) == []
    with pytest.raises(tidl.CancelledError):
        watch.next(0)
    watch.close()


def test_each_event_goes_to_one_thread(client: tidl.Client, name: str) -> None:
    watch = client.watch(f"{name}/*")
    count = 200
    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(lambda: [event.generation for event in watch]) for _ in range(4)]
        sent = {client.publish(f"{name}/{i}", b"x").generation for i in range(count)}
        # What is published last is seen last.
        assert eventually(
            lambda: (
                client.dispatch() is None
                and watch._core.next(0) is None
                and client.list("none") == []
            )
        )
        watch.close()
        seen = [generation for job in jobs for generation in job.result(LONG_S)]
    assert len(seen) == len(set(seen))
    assert set(seen) <= sent


def test_close_of_the_client_ends_a_watch(name: str) -> None:
    client = tidl.connect()
    watch = client.watch(name)
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(watch.next)
        client.close()
        with pytest.raises(tidl.ClosedError):
            job.result(LONG_S)
    with pytest.raises(tidl.ClosedError):
        watch.next(0)
    watch.close()


def test_ctrl_c_ends_an_iteration(peer: Peer, name: str) -> None:
    peer.do(f"watch = client.watch({name!r})")
    peer.start("for event in watch: pass")
    assert await_poll(peer.pid)
    peer.interrupt()
    with pytest.raises(PeerError) as caught:
        peer.finish()
    assert caught.value.kind == "KeyboardInterrupt"
    peer.do(f"client.publish({name!r}, np.ones(3))")
    assert peer.ask("watch.next(60).kind") == "published"


def test_a_dead_broker_comes_behind_the_last_event(own_runtime: Any, name: str) -> None:
    with tidl.connect() as client:
        watch = client.watch(name)
        client.publish(name, np.ones(1))
        # The broker tells after it has answered: wait until it has.
        assert select.select([client.fileno()], [], [], LONG_S)[0]
        end_brokers(own_runtime)
        assert told(watch, 1) == [("published", name)]
        with pytest.raises(tidl.BrokerGoneError):
            watch.next()
        with pytest.raises(tidl.BrokerGoneError):
            next(iter(watch))


def test_kinds_that_no_broker_tells_are_refused(client: tidl.Client, name: str) -> None:
    with pytest.raises(tidl.InvalidArgumentError, match="owner_died, lost, not 'recalled'"):
        client.watch(name, kinds=["recalled"])


def test_watches_leave_nothing(client: tidl.Client, name: str) -> None:
    before = descriptors()
    for _ in range(50):
        with client.watch(name):
            pass
        client.watch(name)  # forgotten
    gc.collect()
    assert waiting_count(client) == 0
    assert descriptors() == before
    with pytest.raises(tidl.UnsupportedError, match="pickled"):
        pickle.dumps(client.watch(name))


# ---- events in loops ----


def test_async_for(client: tidl.Client, peer: Peer, name: str) -> None:
    async def main() -> list[str | None]:
        names = []
        async with client.watch(f"{name}/*", kinds=["published"]) as watch:
            peer.start(f"for i in range(50): client.publish(f'{name}/{{i}}', np.ones(1))")
            async for event in watch:
                names.append(event.name)
                if len(names) == 50:
                    break
        return names

    assert asyncio.run(main(), debug=True) == [f"{name}/{i}" for i in range(50)]
    peer.finish()
    assert waiting_count(client) == 0


def test_async_iteration_ends_with_close_and_cancel(client: tidl.Client, name: str) -> None:
    async def collect(watch: tidl.Watch) -> list[str | None]:
        return [event.name async for event in watch]

    async def main() -> None:
        watch = client.watch(f"{name}/*")
        task = asyncio.ensure_future(collect(watch))
        await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await anext(watch)
        client.publish(f"{name}/a", np.ones(1))
        # A cancelled wait has taken nothing along.
        while client._core.due() or watch._loops._waiting[watch._key]:
            await asyncio.sleep(0)
            if task.done():
                break
            watch.close()
        assert await task in ([f"{name}/a"], [])
        with pytest.raises(StopAsyncIteration):
            await anext(watch)

    asyncio.run(main(), debug=True)


def test_loops_and_threads_watch_through_one_client(client: tidl.Client, name: str) -> None:
    """Each with a watch of its own sees all, whoever receives."""
    count = 100
    ready = threading.Barrier(5)

    def loop_main(_: int) -> list[int]:
        async def main() -> list[int]:
            seen = []
            with client.watch(f"{name}/*", kinds=["published"]) as watch:
                ready.wait()
                async for event in watch:
                    seen.append(event.generation)
                    if len(seen) == count:
                        break
            return seen

        return asyncio.run(main())

    def thread_main(_: int) -> list[int]:
        seen = []
        with client.watch(f"{name}/*", kinds=["published"]) as watch:
            ready.wait()
            for event in watch:
                seen.append(event.generation)
                if len(seen) == count:
                    break
        return seen

    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(main, i) for i in range(2) for main in (loop_main, thread_main)]
        ready.wait()
        sent = [client.publish(f"{name}/{i}", b"x").generation for i in range(count)]
        assert [job.result(LONG_S) for job in jobs] == [sent] * 4


# ---- waiting ----


def test_wait_for_a_name_and_its_generations(client: tidl.Client, peer: Peer, name: str) -> None:
    peer.start(
        f"[client.wait({name!r}), client.wait({name!r}, newer_than=client.wait({name!r}))]",
        is_expression=True,
    )
    assert await_poll(peer.pid)
    first = client.publish(name, np.ones(1)).generation
    assert client.wait(name) == first
    assert client.wait(name, newer_than=0) == first
    assert client.wait(name, newer_than=first - 1, timeout=0) == first
    seen = [first]
    while peer_waits(peer):
        seen.append(client.publish(name, np.ones(1), replace=True).generation)
    one, two = peer.finish()
    assert one in seen
    assert two in seen
    assert two > one


def peer_waits(peer: Peer) -> bool:
    return not select.select([peer._from], [], [], 0)[0]


def test_wait_times_out_with_the_reason(client: tidl.Client, name: str) -> None:
    with pytest.raises(tidl.TimedOutError, match=name):
        client.wait(name, timeout=0)
    with pytest.raises(tidl.TimedOutError, match=name):
        client.wait(name, timeout=0.01)
    generation = client.publish(name, np.ones(1)).generation
    with pytest.raises(tidl.TimedOutError, match=f"above {generation}"):
        client.wait(name, newer_than=generation, timeout=0.01)
    tensor = client.get(name)
    with tidl.connect() as other, pytest.raises(tidl.TimedOutError, match="still holds"):
        other.wait_released(name, timeout=0.01)
    assert client.wait_released(name, timeout=0) == generation  # its own do not count
    tensor.release()


def test_get_newer_than(client: tidl.Client, name: str) -> None:
    first = client.publish(name, np.full(1, 1)).generation
    assert client.get(name, newer_than=first - 1).generation == first
    with pytest.raises(tidl.TimedOutError):
        client.get(name, newer_than=first, timeout=0.01)
    with pytest.raises(tidl.NotFoundError):
        client.get(name, newer_than=first)
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(client.get, name, newer_than=first, timeout=None)
        client.publish(name, np.full(1, 2), replace=True)
        assert job.result(LONG_S).to_numpy().tolist() == [2]


@pytest.mark.parametrize("end", ["tensor.release(); client.dispatch()", "client.close()", None])
def test_wait_released(client: tidl.Client, peer: Peer, name: str, end: str | None) -> None:
    publication = client.publish(name, np.ones(1))
    peer.do(f"tensor = client.get({name!r})")
    client.publish(name, np.ones(1), replace=True)
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(
            client.wait_released, name, generation=publication.generation, timeout=None
        )
        assert not job.done()
        if end:
            peer.do(end)
        else:
            peer.kill()
        assert job.result(LONG_S) == publication.generation
    assert client.wait_released(name, timeout=0) > publication.generation


def test_waits_in_loops(client: tidl.Client, peer: Peer, name: str) -> None:
    async def main() -> None:
        task = asyncio.ensure_future(client.await_generation(name))
        peer.start(f"g = client.publish({name!r}, np.ones(1)).generation")
        first = await task
        peer.finish()
        assert peer.ask("g") == first
        assert await client.await_generation(name, timeout=0) == first
        with pytest.raises(tidl.TimedOutError, match=f"above {first}"):
            await client.await_generation(name, newer_than=first, timeout=0.01)
        task = asyncio.ensure_future(client.await_generation(name, newer_than=first))
        client.publish(name, np.ones(1), replace=True)
        second = await task
        assert second > first
        peer.do(f"tensor = client.get({name!r})")
        with pytest.raises(tidl.TimedOutError, match="still holds"):
            await client.await_released(name, timeout=0.01)
        task = asyncio.ensure_future(client.await_released(name))
        peer.kill()
        assert await task == second

    asyncio.run(main(), debug=True)


# ---- what ends by itself, and what is kept ----


def test_seconds_to_live(client: tidl.Client, name: str) -> None:
    with client.watch(name) as watch:
        publication = client.publish(name, np.ones(3), retain=0.05)
        assert publication.retention == "seconds"
        tensor = client.get(name)
        assert told_until_removed(watch)
        assert tensor.to_numpy().tolist() == [1, 1, 1]
    assert client.list(name) == []


def test_keep(client: tidl.Client, name: str) -> None:
    generations = [
        client.publish(name, np.full(1, i), replace=True, keep=3).generation for i in range(5)
    ]
    for i in (2, 3, 4):
        assert client.get(name, generation=generations[i]).to_numpy().tolist() == [i]
    for i in (0, 1):
        with pytest.raises(tidl.GenerationGoneError):
            client.get(name, generation=generations[i])


def test_a_pinned_generation_outlives_its_name(client: tidl.Client, name: str) -> None:
    publication = client.publish(name, np.full(1, 7))
    client._core.pin(name, publication.generation)
    client.remove(name)
    assert client.get(name, generation=publication.generation).to_numpy().tolist() == [7]
    with pytest.raises(tidl.GenerationGoneError):
        client._core.pin(name, 2**40)


def test_a_thousand_replacements_under_readers(
    client: tidl.Client, start_peer: Callable[..., Peer], name: str
) -> None:
    """Each reader follows the name; none sees a torn generation, none keeps an old one."""
    rounds = 300
    client.publish(name, np.full(1000, 0))
    readers = [start_peer("import numpy as np\nclient = tidl.connect()") for _ in range(3)]
    for reader in readers:
        reader.start(
            "seen = 0\n"
            "value = -1\n"
            f"while value < {rounds}:\n"
            f"    with client.get({name!r}, newer_than=seen, timeout=60) as tensor:\n"
            "        seen = tensor.generation\n"
            "        array = tensor.to_numpy()\n"
            "        assert array.min() == array.max() and array[0] > value\n"
            "        value = int(array[0])\n"
            "        del array\n"
            "client.dispatch()"
        )
    for i in range(1, rounds + 1):
        last = client.publish(name, np.full(1000, i), replace=True)
    for reader in readers:
        reader.finish()
    assert client.wait_released(name, timeout=LONG_S) == last.generation
    assert client.inspect(name).holders == ()
