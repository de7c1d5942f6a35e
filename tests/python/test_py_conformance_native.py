# SPDX-License-Identifier: Apache-2.0
"""Rules of DLPack that take a producer or a consumer in C: threads, locks, the end of Python.

`foreign.c` has both. Its producer makes its structure untouchable in the deleter, so that every
second look at it, and every second deletion, is a crash.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fake_dlpack as dl
import fake_foreign
import numpy as np
import pytest
from python_brokers import is_let_go
from python_peer import Peer

import tidl


@pytest.fixture(scope="module")
def foreign() -> Any:
    return fake_foreign.load(fake_foreign.library_path())


@pytest.fixture(params=[True, False], ids=["versioned", "legacy"])
def producer(foreign: Any, request: pytest.FixtureRequest) -> Iterator[fake_foreign.Producer]:
    with fake_foreign.producer(foreign, 4, is_versioned=request.param) as made:
        yield made


def consumed(tensor: tidl.Tensor, **words: Any) -> dl.Consumer:
    consumer = dl.Consumer(tensor.__dlpack__(**words))
    consumer.consume()
    return consumer


EXPORTS: dict[str, dict[str, Any]] = {
    "versioned": {"max_version": (1, 0)},
    "legacy": {},
    "versioned copy": {"max_version": (1, 0), "copy": True},
    "legacy copy": {"copy": True},
}


@pytest.mark.dlpack_rule("P14", "P15")
@pytest.mark.parametrize("words", EXPORTS.values(), ids=EXPORTS)
def test_p14_p15_deleter_on_a_thread_that_never_saw_python(
    client: tidl.Client, name: str, foreign: Any, words: dict[str, Any]
) -> None:
    """Without the GIL, which this thread keeps meanwhile; and once more, as old frameworks do."""
    client.publish(name, np.ones(3))
    tensor = client.get(name, access="write")
    consumer = consumed(tensor, **words)
    tensor.release()
    fake_foreign.delete_on_thread(foreign, consumer, 2)
    assert is_let_go(client, name)


@pytest.mark.dlpack_rule("P14", "P15")
def test_p14_p15_deleter_of_an_export_that_is_watched(client: tidl.Client, foreign: Any) -> None:
    """Such as Paddle gets."""
    capsule, watch = client.empty((3,))._export_watched()
    consumer = dl.Consumer(capsule)
    consumer.consume()
    assert watch.alive
    fake_foreign.delete_on_thread(foreign, consumer, 2)
    assert not watch.alive


@pytest.mark.dlpack_rule("P14")
@pytest.mark.parametrize("words", EXPORTS.values(), ids=EXPORTS)
def test_p14_deleter_and_destructor(client: tidl.Client, words: dict[str, Any]) -> None:
    """A consumer that deletes what it refuses, and leaves the capsule as it was (torch 1.13)."""
    consumer = dl.Consumer(client.empty((3,)).__dlpack__(**words))
    consumer.delete()
    consumer.capsule = None


AT_EXIT = """
import ctypes, sys
sys.path.insert(0, {folder!r})
import fake_dlpack as dl, fake_foreign
foreign = fake_foreign.load({library!r})
client = tidl.connect()
tensor = client.get({name!r})
consumer = dl.Consumer(tensor.__dlpack__(max_version=(1, 0)))
consumer.consume()
tensor.release()
out = os.open({out!r}, os.O_CREAT | os.O_WRONLY)
foreign.tt_delete_at_exit(consumer.pointer, consumer.managed.deleter, 2, out)
"""


@pytest.mark.dlpack_rule("P15")
def test_p15_deleter_after_the_interpreter(
    client: tidl.Client, start_peer: Callable[..., Peer], name: str, tmp_path: Path
) -> None:
    client.publish(name, np.ones(3))
    peer = start_peer()
    out = tmp_path / "out"
    peer.do(
        AT_EXIT.format(
            folder=os.path.dirname(__file__),
            library=str(fake_foreign.library_path()),
            name=name,
            out=str(out),
        )
    )
    assert len(client.inspect(name).holders) == 1
    assert peer.end() == 0
    assert out.read_text() == "unmapped\n"
    assert is_let_go(client, name)


@pytest.mark.dlpack_rule("P16")
def test_p16_deleter_while_a_framework_holds_its_lock(
    client: tidl.Client, name: str, producer: fake_foreign.Producer
) -> None:
    """publish() calls a deleter, which waits for a thread that calls one of ours."""
    client.publish(f"{name}/a", np.ones(3))
    tensor = client.get(f"{name}/a", access="write")
    producer.chain(consumed(tensor), 2)
    tensor.release()
    client.publish(f"{name}/b", producer.capsule())
    assert producer.deleted == 1
    assert is_let_go(client, f"{name}/a")


@pytest.mark.dlpack_rule("C5", "C15")
def test_c5_c15_nothing_is_touched_after_the_deleter(
    client: tidl.Client, name: str, producer: fake_foreign.Producer
) -> None:
    """Whose deleter is called once, with the GIL, which that of NumPy 1.23 needs."""
    client.publish(name, producer.capsule())
    assert (producer.deleted, producer.without_gil) == (1, 0)
    assert client.get(name).to_numpy().tolist() == [0, 1, 2, 3]
    assert client.inspect(name).tensors[0].shape == (4,)


@pytest.mark.dlpack_rule("C4", "C5")
def test_c4_c5_failures_delete_once(
    client: tidl.Client, name: str, producer: fake_foreign.Producer
) -> None:
    client.publish(name, b"taken")
    with pytest.raises(tidl.ExistsError):
        client.publish(name, producer.capsule())
    assert (producer.deleted, producer.without_gil) == (1, 0)


@pytest.mark.dlpack_rule("C5", "C15")
def test_c5_c15_from_dlpack_hands_the_structure_on(producer: fake_foreign.Producer) -> None:
    array = np.from_dlpack(tidl.from_dlpack(producer.capsule()))
    assert array.tolist() == [0, 1, 2, 3]
    assert producer.deleted == 0
    del array
    assert producer.deleted == 1
