# SPDX-License-Identifier: Apache-2.0
"""A broker with an honest client for all tests, and brokers of a test's own.

After each test that takes `world` or `peer` the broker must be as it was before: its descriptors,
what it charges, what it lists, who holds what.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

sys.path.extend(str(Path(__file__).resolve().parents[1] / name) for name in ("ctl", "python"))

from raw_peer import RawPeer
from tidld_process import Broker, runtime_folder
from world import QUOTA_OPTIONS, World


@pytest.fixture
def folder() -> Iterator[Path]:
    """For the sockets of a test's own brokers."""
    path = runtime_folder()
    yield path
    shutil.rmtree(path)


@pytest.fixture
def start_broker(folder: Path) -> Iterator[Callable[..., Broker]]:
    """Starts brokers, by default with the options that a `World` expects.

    Those that still run at the end of the test must end well."""
    started: list[Broker] = []

    def start(*options: str, is_ready: bool = True, **arguments: Any) -> Broker:
        broker = Broker(folder, *(options or QUOTA_OPTIONS), **arguments)
        started.append(broker)
        if is_ready:
            broker.await_ready()
        return broker

    yield start
    try:
        for broker in started:
            if broker.is_running:
                broker.stop()
            broker.check_reports()
    finally:
        for broker in started:
            broker.dispose()


@pytest.fixture(scope="session")
def shared_world() -> Iterator[World]:
    folder = runtime_folder()
    broker = Broker(folder, *QUOTA_OPTIONS)
    try:
        broker.await_ready()
        world = World(broker)
        yield world
        world.close()
        broker.stop()
    finally:
        broker.dispose()
        shutil.rmtree(folder)


@pytest.fixture
def world(shared_world: World) -> Iterator[World]:
    with shared_world.unharmed():
        yield shared_world


@pytest.fixture
def peer(world: World) -> RawPeer:
    """A connection that has said hello."""
    return world.connect()


@pytest.fixture
def make_world() -> Iterator[Callable[..., World]]:
    """Puts an honest client beside a test's own broker."""
    with ExitStack() as worlds:

        def make(broker: Broker, **arguments: Any) -> World:
            world = World(broker, **arguments)
            worlds.callback(world.close)
            return world

        yield make
