# SPDX-License-Identifier: Apache-2.0
"""Events: what happens to names, and to those who hold them."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Never, Self

from tidl import _arguments, _core
from tidl._errors import ArgumentTypeError, CancelledError, InvalidArgumentError, UnsupportedError
from tidl._loops import Loops

#: Values of enum tidl_event_kind, but for "recalled", which no broker sends yet.
KINDS = {
    "published": 1,
    "replaced": 2,
    "removed": 3,
    "leased": 4,
    "released": 5,
    "owner_died": 6,
    "lost": 7,
}

_FOREVER_MS = -1


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened.

    Attributes:
        kind: "published" (the name was free), "replaced", "removed" (by whomever or by time),
            "leased", "released" (both told to the owner, root and the group tidl only),
            "owner_died" (with `retain="owner"`: it goes soon), or "lost" (events were dropped
            here: look for yourself, with `list()`).
        name: what it happened to, in its owner's namespace; None for "lost".
        owner: uid of the owner.
        generation: the generation that it concerns: the new one, or the one that went.
        holder_uid: who leased or released, else None.
        holder_pid: its process, in the broker's pid namespace, else None.
        access: how it was leased: "read", "write" or "copy_on_write", else None.
    """

    kind: str
    name: str | None
    owner: int
    generation: int
    holder_uid: int | None
    holder_pid: int | None
    access: str | None


def kind_bits(kinds: Iterable[str] | None) -> int:
    """The kinds that are wanted, as bits; 0 for all."""
    if kinds is None:
        return 0
    if isinstance(kinds, str) or not isinstance(kinds, Iterable):
        raise ArgumentTypeError(f"kinds is a sequence of words, not {_arguments.shown(kinds)}")
    bits = 0
    for kind in kinds:
        if not isinstance(kind, str) or kind not in KINDS:
            raise InvalidArgumentError(
                f"kinds are of {', '.join(KINDS)}, not {_arguments.shown(kind)}"
            )
        bits |= 1 << KINDS[kind]
    if not bits:
        raise InvalidArgumentError("kinds is empty; None means all")
    return bits


class Watch:
    """Events of the names that match a pattern, made by `Client.watch()`.

    An iterator and an asynchronous iterator, both without end; close it, from any thread, to end
    them. Several threads or tasks may take events from one watch: each event goes to one of them.

    Broker and client keep a few thousand events for a reader that is slow; what is beyond is
    dropped, and one event of kind "lost" stands in its place.
    """

    def __init__(self, client: _core.Client, loops: Loops, pattern: str, bits: int) -> None:
        """Use `Client.watch()`."""
        self.pattern = pattern
        self._loops = loops
        self._key = loops.new_key()
        weakref.finalize(self, loops.drop_key, self._key)
        self._core = client.watch(pattern, bits, self._key)

    # ---- life ----

    def close(self) -> None:
        """Ends the watch: iterations end, also those that wait in other threads and tasks."""
        self._core.close()
        self._loops.tell(self._key)

    @property
    def closed(self) -> bool:
        """Whether `close()` was called."""
        return self._core.closed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<tidl.Watch {self.pattern!r}{' closed' if self.closed else ''}>"

    def __reduce__(self) -> Never:
        raise UnsupportedError("a watch cannot be pickled; open another one on the other side")

    # ---- threads ----

    def next(self, timeout: float | None = None) -> Event | None:
        """The next event, or None when none came in time.

        Args:
            timeout: seconds to wait; 0 looks at what has arrived, None waits for ever.

        Raises:
            CancelledError: the watch was closed.
            BrokerError: the connection ended; events that had come before were told.
        """
        return self._take(_arguments.timeout_ms(timeout))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        try:
            event = self._take(_FOREVER_MS)
        except CancelledError:
            if self.closed:
                raise StopIteration from None
            raise
        assert event is not None
        return event

    def _take(self, timeout_ms: int) -> Event | None:
        fields = self._core.next(timeout_ms)
        return None if fields is None else Event(**fields)

    # ---- asyncio ----

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        taken: list[Event] = []

        def is_ready() -> bool:
            event = self._take(0)
            if event is not None:
                taken.append(event)
            return event is not None

        try:
            while not taken and not is_ready():
                await self._loops.wait_until(self._key, is_ready)
        except CancelledError:
            if self.closed:
                raise StopAsyncIteration from None
            raise
        return taken[0]
