# SPDX-License-Identifier: Apache-2.0
"""Clients in asyncio: no threads, any number of event loops.

A loop that waits for something watches the client's descriptor. Whichever thread or loop receives
an answer, its key says which loop to tell. Loops stop watching when nothing is due any more, so
that a client which also works in threads does not wake them for nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from tidl._errors import BrokerError, CancelledError, TimedOutError

if TYPE_CHECKING:
    from tidl import _core

_Answer = TypeVar("_Answer")

#: How long a broker may take to answer what was cancelled.
_GRACE_S = 2.0


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _tell(future: asyncio.Future[None]) -> None:
    """From any thread; a loop that was closed meanwhile needs no word."""
    with contextlib.suppress(RuntimeError):
        future.get_loop().call_soon_threadsafe(_settle, future)


class _Port:
    """One event loop's view of one client's descriptor. All methods run in the loop's thread.

    The loop alone keeps it, and it keeps the futures: a loop that is closed in the middle takes
    all of it along, and what was asked for is given up.
    """

    def __init__(self, loops: Loops, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.futures: set[asyncio.Future[None]] = set()
        self.descriptor = -1
        self._loops = loops
        # A descriptor of its own: the client's may be closed, and its number used again, before
        # the loop forgets it.
        self.descriptor = os.dup(loops.core.fileno())
        try:
            loop.add_reader(self.descriptor, self._on_readable)
        except BaseException:
            self.close_descriptor()
            raise

    def __del__(self) -> None:
        self.close_descriptor()

    def _on_readable(self) -> None:
        try:
            self._loops.core.dispatch()
        except BrokerError:
            self.detach()  # it stays readable for ever
        self._loops.route()
        self.detach_if_idle()

    def detach_if_idle(self) -> None:
        if not self.futures and self.descriptor >= 0 and not self._loops.is_answer_due():
            self.detach()

    def detach(self) -> None:
        """Stops watching, for good."""
        if self.descriptor < 0:
            return
        self._loops.forget(self)
        if not self.loop.is_closed():
            self.loop.remove_reader(self.descriptor)
        self.close_descriptor()

    def close_descriptor(self) -> None:
        """Without a word to the loop: it is closed, or belongs to the parent of this process."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class Loops:
    """The event loops that wait for something of one client."""

    def __init__(self, core: _core.Client) -> None:
        """One for each client."""
        self.core = core
        self._pid = os.getpid()
        self._keys = itertools.count(1)
        self._ports: weakref.WeakValueDictionary[int, _Port] = weakref.WeakValueDictionary()
        # By key, then by identity. No lock: a collection may run a coroutine's end anywhere.
        self._waiting: dict[int, dict[int, weakref.ref[asyncio.Future[None]]]] = {}

    def new_key(self) -> int:
        """A number for a request or watch, until `drop_key()`."""
        self._forget_parent()
        key = next(self._keys)
        self._waiting[key] = {}
        return key

    def drop_key(self, key: int) -> None:
        """Nobody waits for it any more."""
        self._waiting.pop(key, None)

    # ---- waiting, in the loop's thread ----

    async def answer(
        self,
        begin: Callable[[int], _core.Pending],
        take: Callable[[_core.Pending], _Answer],
        timeout: float | None,
        expired: str,
    ) -> _Answer:
        """Begins a request and takes its answer. Whatever ends this sooner cancels the request."""
        key = self.new_key()
        try:
            # First of all: in a forked child this connects.
            pending = begin(key)
            try:
                with self._registered(key) as future:
                    await self._settled(pending, future, timeout)
                return take(pending)
            except CancelledError as error:
                raise TimedOutError(expired) from error
            finally:
                pending.close()
        finally:
            self.drop_key(key)

    async def _settled(
        self, pending: _core.Pending, future: asyncio.Future[None], timeout: float | None
    ) -> None:
        # The word may have come and gone before there was a future to tell.
        if not pending.done:
            await asyncio.wait([future], timeout=timeout)
        if not pending.done:
            # As a blocking call does: what is on its way already is taken all the same.
            pending.cancel()
            await asyncio.wait([future], timeout=_GRACE_S)
        if not pending.done:
            raise TimedOutError(
                "the broker does not answer: check whether it is stopped or overloaded"
            )

    async def wait_until(self, key: int, is_ready: Callable[[], bool]) -> None:
        """Waits for the thing with this key until it is ready."""
        with self._registered(key) as future:
            # As above.
            if not is_ready():
                await future

    @contextlib.contextmanager
    def _registered(self, key: int) -> Iterator[asyncio.Future[None]]:
        loop = asyncio.get_running_loop()
        port = self._port(loop)
        future: asyncio.Future[None] = loop.create_future()
        port.futures.add(future)
        waiting = self._waiting.get(key, {})
        waiting[id(future)] = weakref.ref(future)
        try:
            yield future
        finally:
            waiting.pop(id(future), None)
            port.futures.discard(future)
            # Not at once: who waits in a row keeps the port.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(port.detach_if_idle)

    # ---- ports ----

    def _port(self, loop: asyncio.AbstractEventLoop) -> _Port:
        """The view of this loop, which is running."""
        port = self._ports.get(id(loop))
        if port is None or port.loop is not loop or port.descriptor < 0:
            port = _Port(self, loop)
            self._ports[id(loop)] = port
        return port

    def forget(self, port: _Port) -> None:
        if self._ports.get(id(port.loop)) is port:
            del self._ports[id(port.loop)]

    def is_answer_due(self) -> bool:
        try:
            return self.core.due() > 0
        except BrokerError:
            return False

    def _open_ports(self) -> list[_Port]:
        """In one piece: another thread's loop may come meanwhile, which `values()` cannot bear."""
        ports = (reference() for reference in self._ports.valuerefs())
        return [port for port in ports if port is not None]

    def _forget_parent(self) -> None:
        """In a forked child: the loops are the parent's, and so are the sets they wait with."""
        if self._pid == os.getpid():
            return
        self._pid = os.getpid()
        for port in self._open_ports():
            port.close_descriptor()
        self._ports.clear()
        self._waiting.clear()

    # ---- telling, from any thread ----

    def route(self) -> None:
        """Tells the loops of all that is ready."""
        while True:
            try:
                key = self.core.ready()
            except BrokerError:  # closed: `close()` tells everybody
                return
            if key == 0:
                return
            self.tell(key)

    def tell(self, key: int) -> None:
        """Wakes whoever waits for the thing with this key."""
        for reference in self._waiting.get(key, {}).copy().values():
            future = reference()
            if future is not None:
                _tell(future)

    def close(self) -> None:
        """Wakes everybody: the client was closed."""
        for key in list(self._waiting):
            self.tell(key)
        for port in self._open_ports():
            with contextlib.suppress(RuntimeError):
                port.loop.call_soon_threadsafe(port.detach)
