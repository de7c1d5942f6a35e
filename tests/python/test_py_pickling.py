# SPDX-License-Identifier: Apache-2.0
"""Tensors in pickles, queues and pools: the name travels, and the memory stays where it is."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from python_brokers import end_brokers, memfd_inode
from python_peer import Peer

import tidl

METHODS = ("fork", "forkserver", "spawn")


@pytest.fixture(params=METHODS)
def context(request: pytest.FixtureRequest, runtime: Path) -> Any:
    context = multiprocessing.get_context(request.param)
    if request.param == "forkserver":
        # One server serves the session, with the environment of its start.
        context.set_forkserver_preload(["tidl"])
    return context


def inode(tensor: tidl.Tensor) -> int:
    address = tensor._address
    assert address
    return memfd_inode(address)


# ---- what other processes run ----


def facts(tensor: tidl.Tensor) -> tuple[Any, ...]:
    array = tensor.to_numpy()
    return tensor.name, tensor.generation, tensor.access, inode(tensor), array.tolist()


def add_one(tensor: tidl.Tensor) -> tidl.Tensor:
    tensor.to_numpy()[...] += 1
    return tensor


def relay(incoming: Any, outgoing: Any) -> None:
    outgoing.put(facts(incoming.get()))


def total(bundle: tidl.Bundle) -> dict[str, float]:
    return {path: float(tensor.to_numpy().sum()) for path, tensor in bundle.flat.items()}


# ---- in one process ----


def test_it_comes_back_as_the_same_memory(client: tidl.Client, name: str) -> None:
    client.publish(name, np.arange(4))
    for access in ("read", "write"):
        tensor = client.get(name, access=access)
        data = pickle.dumps(tensor)
        assert len(data) < 300
        again = pickle.loads(data)
        assert again is not tensor
        assert facts(again) == facts(tensor)
        tensor.release()  # each has a lease of its own
        assert again.to_numpy().tolist() == [0, 1, 2, 3]


def test_unpickled_once_or_often(client: tidl.Client, name: str) -> None:
    client.publish(name, np.arange(4))
    data = pickle.dumps(client.get(name))
    tensors = [pickle.loads(data) for _ in range(20)]
    assert len({inode(tensor) for tensor in tensors}) == 1


def test_what_was_published_as_it_is_can_be_pickled(client: tidl.Client, name: str) -> None:
    tensor = client.zeros((3,), dtype="int64")
    with pytest.raises(tidl.InvalidArgumentError, match="publish it first"):
        pickle.dumps(tensor)
    client.publish(name, tensor, copy=True)  # another memory
    with pytest.raises(tidl.InvalidArgumentError, match="publish it first"):
        pickle.dumps(tensor)
    client.publish(name, tensor, replace=True)
    again = pickle.loads(pickle.dumps(tensor))
    again.to_numpy()[0] = 7
    assert tensor.to_numpy().tolist() == [7, 0, 0]


def test_what_nobody_else_may_write_is_attached_for_reading(client: tidl.Client, name: str) -> None:
    tensor = client.zeros((3,), dtype="int64")
    client.publish(name, tensor, access="live")
    again = pickle.loads(pickle.dumps(tensor))
    assert again.readonly
    tensor.to_numpy()[0] = 7
    assert again.to_numpy().tolist() == [7, 0, 0]


def test_copy_on_write_stays_private(client: tidl.Client, name: str) -> None:
    client.publish(name, np.zeros(3))
    tensor = client.get(name, access="copy_on_write")
    tensor.to_numpy()[0] = 7
    assert pickle.loads(pickle.dumps(tensor)).access == "copy_on_write"


def test_a_replaced_generation_is_kept_in_transit(client: tidl.Client, name: str) -> None:
    client.publish(name, np.full(3, 1))
    tensor = client.get(name)
    client.publish(name, np.full(3, 2), replace=True)
    data = pickle.dumps(tensor)  # held, yet not current any more
    tensor.release()
    del tensor
    client.remove(name)
    assert pickle.loads(data).to_numpy().tolist() == [1, 1, 1]


def test_a_vanished_generation_is_a_key_error(client: tidl.Client, name: str) -> None:
    client.publish(name, np.ones(3))
    tensor = client.get(name)
    function, arguments = tensor.__reduce__()
    gone = (*arguments[:3], 2**40, *arguments[4:])
    with pytest.raises(tidl.GenerationGoneError, match="gone") as caught:
        function(*gone)
    assert isinstance(caught.value, KeyError)


def test_a_released_tensor_cannot_be_pickled(client: tidl.Client, name: str) -> None:
    client.publish(name, np.ones(3))
    tensor = client.get(name)
    tensor.release()
    with pytest.raises(tidl.ReleasedError):
        pickle.dumps(tensor)


def test_a_closed_client_is_no_obstacle_to_what_is_still_there(
    client: tidl.Client, name: str
) -> None:
    client.publish(f"{name}/stays", np.ones(3))
    client.publish(f"{name}/goes", np.ones(3))
    with tidl.connect() as other:
        stays = other.get(f"{name}/stays")
        goes = other.get(f"{name}/goes")
    assert pickle.loads(pickle.dumps(stays)).shape == (3,)
    client.remove(f"{name}/goes")  # the lease has ended with its client
    with pytest.raises(tidl.GenerationGoneError):
        pickle.dumps(goes)


def test_copies_are_refused(client: tidl.Client, name: str) -> None:
    client.publish(name, np.ones(3))
    for copying in (copy.copy, copy.deepcopy):
        with pytest.raises(tidl.UnsupportedError, match="to_numpy"):
            copying(client.get(name))


def test_many_threads_pickle_and_unpickle(client: tidl.Client, name: str) -> None:
    client.publish(name, np.arange(4))
    tensor = client.get(name)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(50):
                assert pickle.loads(pickle.dumps(tensor)).to_numpy().sum() == 6
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


# ---- between processes ----


def test_through_a_queue(client: tidl.Client, name: str, context: Any) -> None:
    client.publish(name, np.arange(4))
    tensor = client.get(name, access="write")
    incoming, outgoing = context.Queue(), context.Queue()
    process = context.Process(target=relay, args=(incoming, outgoing))
    process.start()
    incoming.put(tensor)
    assert outgoing.get(timeout=60) == facts(tensor)
    process.join()
    assert process.exitcode == 0


def test_through_a_pool_and_back(client: tidl.Client, name: str, context: Any) -> None:
    client.publish(name, np.arange(4))
    tensor = client.get(name, access="write")
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        for i in range(1, 4):
            back = pool.submit(add_one, tensor).result(60)
            assert inode(back) == inode(tensor)
            assert tensor.to_numpy().tolist() == [i, 1 + i, 2 + i, 3 + i]


def test_a_sender_that_lets_go_and_ends(
    client: tidl.Client, peer: Peer, name: str, tmp_path: Path
) -> None:
    """The pin outlives the tensor, the name, the connection and the process."""
    file = tmp_path / "pickle"
    client.publish(name, np.arange(4))
    peer.do(
        "import pickle\n"
        f"tensor = client.get({name!r})\n"
        f"open({str(file)!r}, 'wb').write(pickle.dumps(tensor))\n"
    )
    client.remove(name)
    peer.kill()
    assert pickle.loads(file.read_bytes()).to_numpy().tolist() == [0, 1, 2, 3]


@pytest.fixture
def other_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    folder = Path(os.path.realpath(tmp_path_factory.mktemp("o")))
    yield {"XDG_RUNTIME_DIR": str(folder)}
    end_brokers(folder)


def test_another_broker_is_a_clear_error(
    client: tidl.Client, name: str, other_broker: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "pickle"
    client.publish(name, np.ones(3))
    file.write_bytes(pickle.dumps(client.get(name)))
    loads = f"pickle.loads(open({str(file)!r}, 'rb').read())"
    with (
        Peer(
            "import pickle\ntry: tidl.connect(autostart=False)\nexcept tidl.NoBrokerError: pass",
            environment=other_broker,
        ) as nowhere,
        pytest.raises(Exception, match="NoBrokerError"),
    ):
        nowhere.do(loads)
    with Peer("import pickle\nclient = tidl.connect()", environment=other_broker) as elsewhere:
        with pytest.raises(Exception, match="knows no way to that one"):
            elsewhere.do(loads)
        # Once it is connected to that broker, too, it has a way.
        elsewhere.do(f"right = tidl.connect({client.broker.address!r})")
        assert elsewhere.ask(f"{loads}.shape") == (3,)


def test_a_process_without_a_client_opens_one_and_keeps_it(
    client: tidl.Client, name: str, start_peer: Any
) -> None:
    client.publish(name, np.ones(3))
    data = pickle.dumps(client.get(name))
    peer = start_peer("import pickle")
    peer.do(f"tensor = pickle.loads({data!r})")
    assert peer.ask("tensor.to_numpy().tolist()") == [1.0, 1.0, 1.0]
    peer.do(f"for _ in range(5): pickle.loads({data!r})")
    assert peer.ask("len(tidl._pickling.open_clients())") == 1
    assert sorted(
        holder.process.pid for holder in client.inspect(name).holders if holder.kind == "lease"
    ) == [peer.pid]


# ---- bundles ----


def test_bundles_and_their_tensors(client: tidl.Client, name: str, context: Any) -> None:
    client.publish(name, {"a": np.ones(3), "deep": {"b": np.full(2, 5.0), "c": np.zeros(1)}})
    bundle = client.get(name)
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        assert pool.submit(total, bundle).result(60) == {"a": 3.0, "deep/b": 10.0, "deep/c": 0.0}
        part = client.get(name, keys=["deep"])
        assert pool.submit(total, part).result(60) == {"deep/b": 10.0, "deep/c": 0.0}
        member = bundle["deep"]["b"]
        assert isinstance(member, tidl.Tensor)
        assert pool.submit(facts, member).result(60) == facts(member)
    with pytest.raises(tidl.UnsupportedError, match="to_numpy"):
        copy.deepcopy(bundle)


def part_facts(part: tidl.Bundle) -> tuple[Any, ...]:
    """Where its tensors lie, too: equal in processes that have the same memory."""
    places = {path: inode(tensor) for path, tensor in part.flat.items() if tensor.nbytes}
    return part.name, part.generation, part.access, total(part), places, part.segment_count


def test_parts_of_bundles(client: tidl.Client, name: str, context: Any) -> None:
    """The other side attaches what the part has, and nothing else of the bundle."""
    deep = {"x/y": {"b": client.zeros(2), "c": client.zeros(3)}, "empty": {}}
    client.publish(name, {"a": client.zeros(4), "deep": deep})
    bundle = client.get(name, access="write")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        for part, count in ((bundle["deep"], 2), (bundle["deep"]["x/y"], 2)):  # type: ignore[index]
            assert isinstance(part, tidl.Bundle)
            sent = pool.submit(part_facts, part).result(60)
            assert sent[:-1] == part_facts(part)[:-1]
            assert sent[-1] == count


def part(bundle: tidl.Bundle, *levels: str) -> tidl.Bundle:
    for level in levels:
        below = bundle[level]
        assert isinstance(below, tidl.Bundle)
        bundle = below
    return bundle


def test_parts_of_parts(client: tidl.Client, name: str) -> None:
    client.publish(
        name, {"deep": {"x": {"b": np.ones(2), "c": np.ones(3)}, "xy": np.ones(1), "empty": {}}}
    )
    whole = client.get(name)
    again: tidl.Bundle = pickle.loads(pickle.dumps(part(whole, "deep")))
    assert list(again) == ["x", "xy", "empty"]
    assert list(pickle.loads(pickle.dumps(part(again, "x")))) == ["b", "c"]
    assert list(pickle.loads(pickle.dumps(part(whole, "deep", "empty")))) == []
    some = client.get(name, keys=["deep/x/c", "deep/xy"])
    assert list(pickle.loads(pickle.dumps(part(some, "deep", "x")))) == ["c"]
    assert list(pickle.loads(pickle.dumps(part(some, "deep"))).flat) == ["x/c", "xy"]
    for key in ("deep", "deep/x"):
        below = client.get(name, keys=[key])
        assert list(pickle.loads(pickle.dumps(part(below, "deep", "x")))) == ["b", "c"]


def test_what_was_tied_stays_tied(client: tidl.Client, name: str) -> None:
    """Each tensor of a pickle has a lease of its own, and the memory is mapped once."""
    weight = np.arange(6.0).reshape(2, 3)
    client.publish(name, {"in": {"w": weight}, "out": {"w": weight, "view": weight[1]}})
    bundle = client.get(name, access="write")
    flat = bundle.flat
    tensors = {path: flat[path] for path in flat}
    together = pickle.loads(pickle.dumps(tensors))
    apart = {path: pickle.loads(pickle.dumps(tensor)) for path, tensor in tensors.items()}
    again: tidl.Bundle = pickle.loads(pickle.dumps(part(bundle, "out")))
    bundle.release()
    for made in (together, apart):
        assert made["in/w"]._address == made["out/w"]._address
        made["in/w"].to_numpy()[1, 0] += 1
        assert made["out/view"].to_numpy().tolist() == made["out/w"].to_numpy()[1].tolist()
    arrays = again.to_numpy()
    assert arrays["w"][1].tolist() == arrays["view"].tolist() == [5.0, 4.0, 5.0]


def test_a_released_part_cannot_be_pickled(client: tidl.Client, name: str) -> None:
    client.publish(name, {"deep": {"x": np.ones(1)}})
    bundle = client.get(name)
    deep = bundle["deep"]
    bundle.release()
    with pytest.raises(tidl.ReleasedError):
        pickle.dumps(deep)


def test_clients_come_while_others_are_gone_through(client: tidl.Client, name: str) -> None:
    client.publish(name, np.arange(3))
    pickled = pickle.dumps(client.get(name))
    others: list[tidl.Client] = []

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        """Does at every line of the collection of clients what another thread may do there."""
        if "weakref" in frame.f_code.co_filename and len(others) < 20:
            others.append(tidl.connect())
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        loaded = pickle.loads(pickled)
    finally:
        sys.settrace(before)
        for other in others:
            other.close()
    assert loaded.to_numpy().tolist() == [0, 1, 2]
    assert others
