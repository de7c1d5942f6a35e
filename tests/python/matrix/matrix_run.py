# SPDX-License-Identifier: Apache-2.0
"""Runs every exchange of the matrix, and keeps what came of it.

Each framework has two workers: the first publishes, and takes from the other frameworks; the twin
takes from its own framework. All go to the broker of the tests' session.
"""

from __future__ import annotations

import importlib.util
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import python_debian
from matrix_cases import CASES
from matrix_frameworks import FRAMEWORKS, OldNumPy, OldTorch
from python_brokers import eventually
from python_mxnet import MXNET_PYTHON, mxnet_peer
from python_peer import Peer

import tidl

HERE = Path(__file__).parent

# Frameworks' own threads only get into each other's way here.
ONE_THREAD = {
    name: "1"
    for name in (
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "TF_NUM_INTRAOP_THREADS",
        "TF_NUM_INTEROP_THREADS",
        "MXNET_CPU_WORKER_NTHREADS",
    )
}

FLOAT32 = next(number for number, case in enumerate(CASES) if case.label == "float32")

Answer = tuple[Any, ...]


@dataclass
class Pair:
    """What one framework's process made of another's tensors."""

    taken: dict[int, Answer]
    written: list[int]
    seen: list[bytes]
    own: bytes
    readonly: tuple[Answer, Answer]
    is_let_go: bool
    after_consumer: bytes
    after_publisher: bytes


@dataclass
class Matrix:
    missing: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    published: dict[str, list[Answer]] = field(default_factory=dict)
    own: dict[str, Answer] = field(default_factory=dict)
    pairs: dict[tuple[str, str], Pair] = field(default_factory=dict)

    @property
    def frameworks(self) -> list[str]:
        return list(self.versions)


def absence(framework: str) -> str | None:
    """Why a framework takes no part here; None if it does."""
    if framework == "cupy":
        return "needs a GPU"
    if framework == "mxnet":
        return None if MXNET_PYTHON.exists() else f"there is no {MXNET_PYTHON}"
    module = FRAMEWORKS[framework].module
    if is_debian(framework):
        return python_debian.absence(module)
    return None if importlib.util.find_spec(module) else f"{module} is not installed"


def is_debian(framework: str) -> bool:
    """Whether it is the system's Python that has this framework."""
    return issubclass(FRAMEWORKS[framework], OldNumPy | OldTorch)


class Runner:
    def __init__(self, client: tidl.Client, folder: Path, stack: ExitStack) -> None:
        self.client = client
        self.folder = folder  # of this run's own
        self.stack = stack
        self.matrix = Matrix()
        self.workers: dict[tuple[str, str], Peer] = {}

    def run(self) -> Matrix:
        here = []
        for framework in FRAMEWORKS:
            reason = absence(framework)
            if reason:
                self.matrix.missing[framework] = reason
            else:
                here.append(framework)
        self.start(here)
        for framework in here:
            self.publish(framework)
        for publisher in here:
            for consumer in here:
                self.exchange(publisher, consumer)
        return self.matrix

    def start(self, frameworks: list[str]) -> None:
        sides = [(framework, side) for framework in frameworks for side in ("first", "twin")]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for _ in pool.map(self.start_worker, sides):
                pass
        for framework in frameworks:
            version = self.workers[framework, "first"].ask("worker.version()")
            self.matrix.versions[framework] = version

    def start_worker(self, key: tuple[str, str]) -> None:
        framework, _ = key
        setup = (
            f"sys.path.insert(0, {str(HERE)!r})\n"
            "from matrix_worker import Worker\n"
            f"worker = Worker({framework!r})"
        )
        if framework == "mxnet":
            peer = mxnet_peer(setup, self.folder, ONE_THREAD)
        elif is_debian(framework):
            peer = python_debian.debian_peer(setup, self.folder, ONE_THREAD)
        else:
            peer = Peer(setup, environment=ONE_THREAD)
        self.workers[key] = self.stack.enter_context(peer)

    def publish(self, framework: str) -> None:
        worker = self.workers[framework, "first"]
        prefix = f"matrix/{framework}"
        self.matrix.published[framework] = worker.ask(f"worker.publish_cases({prefix!r})")
        self.matrix.own[framework] = worker.ask(f"worker.publish_own({prefix + '/own'!r})")

    def exchange(self, publisher: str, consumer: str) -> None:
        giver = self.workers[publisher, "first"]
        taker = self.workers[consumer, "twin" if publisher == consumer else "first"]
        prefix = f"matrix/{publisher}"
        answers = self.matrix.published[publisher]
        numbers = [number for number, answer in enumerate(answers) if answer[0] == "published"]
        taken = taker.ask(f"worker.take_cases({prefix!r}, {numbers})")
        written = taker.ask(f"worker.write_cases({prefix!r}, {numbers})")
        seen = giver.ask(f"worker.check_and_restore({prefix!r}, {written})")
        taker.do(f"worker.drop({prefix!r})")
        own = taker.ask(f"worker.take_one({prefix + '/own'!r})")
        taker.do(f"worker.drop({prefix!r})")
        readonly = taker.ask(f"worker.take_readonly({f'{prefix}/{FLOAT32}'!r})")
        self.matrix.pairs[publisher, consumer] = Pair(
            dict(zip(numbers, taken, strict=True)),
            written,
            seen,
            own,
            readonly,
            *self.lives(giver, taker),
        )

    def lives(self, giver: Peer, taker: Peer) -> tuple[bool, bytes, bytes]:
        """Lets first the consumer, then the publisher of a tensor go before the other."""
        first, second = "lives/consumer", "lives/publisher"
        for name in (first, second):
            giver.do(f"worker.publish_plain({name!r})")
            taker.do(f"worker.take_one({name!r})")
        taker.do(f"worker.drop({first!r})")
        is_let_go = eventually(lambda: taker.pid not in self.holders(first))
        after_consumer = giver.ask(f"worker.read({first!r})")
        giver.do(f"worker.drop({second!r})")
        self.client.remove(second)
        after_publisher = taker.ask(f"worker.read({second!r})")
        taker.do(f"worker.drop({second!r})")
        giver.do(f"worker.drop({first!r})")
        self.client.remove(first)
        return is_let_go, after_consumer, after_publisher

    def holders(self, name: str) -> list[int]:
        return [holder.pid for holder in self.client.inspect(name).holders]
