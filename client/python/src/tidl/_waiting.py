# SPDX-License-Identifier: Apache-2.0
"""The part of a client that waits for generations and watches names, without attaching them."""

from __future__ import annotations

from collections.abc import Iterable

from tidl import _arguments, _core
from tidl._loops import Loops
from tidl._watch import Watch, kind_bits


def expired(name: str, above: int, seconds: float | None) -> str:
    """What to say when a name, or a generation of it, did not come in time."""
    what = f"{name!r} got no generation above {above}"
    if not above:
        what = f"nothing that you may read was published as {name!r}"
    return f"{what} within {seconds} seconds: wait longer, or check that its publisher runs"


class Waiting:
    """What `Client` inherits."""

    def __init__(self, core: _core.Client) -> None:
        """Use `tidl.connect()`."""
        self._core = core
        self._loops = Loops(core)

    def wait(
        self, name: str, *, newer_than: int | None = None, timeout: float | None = None
    ) -> int:
        """Waits for a name, or for its next generation, without attaching it.

            seen = 0
            while True:
                seen = client.wait("frames/next", newer_than=seen)

        Args:
            name: as for `get()`.
            newer_than: wait for a generation above this one; None or 0: for any.
            timeout: seconds to wait; 0 looks, None waits for ever.

        Returns:
            The current generation. Those in between may have come and gone.

        Raises:
            TimedOutError: it did not come in time.
        """
        return self._core.wait(
            _arguments.name_text(name),
            _arguments.timeout_ms(timeout),
            _arguments.newer_than_number(newer_than),
            False,
            0,
        )

    async def await_generation(
        self, name: str, *, newer_than: int | None = None, timeout: float | None = None
    ) -> int:
        """`wait()` for asyncio; cancelling the task cancels the request at the broker, too."""
        text = _arguments.name_text(name)
        above = _arguments.newer_than_number(newer_than)
        seconds = _arguments.timeout_seconds(timeout)
        return await self._loops.answer(
            lambda key: self._core.wait_begin(text, above, False, 0, key),
            lambda pending: pending.generation(),
            seconds,
            expired(name, above, seconds),
        )

    def wait_released(
        self, name: str, *, generation: int | None = None, timeout: float | None = None
    ) -> int:
        """Waits until no other connection holds a generation of a name.

        Leases and pins count, allocations do not. Afterwards the memory can be written anew
        without anybody seeing it, as long as nobody gets it again: remove or replace the name
        first.

        Args:
            name: as for `get()`.
            generation: which one; it may have been replaced or removed. None: the current one.
            timeout: seconds to wait; 0 looks, None waits for ever.

        Returns:
            The generation that is free.

        Raises:
            TimedOutError: somebody still holds it; `inspect()` tells who.
            NotFoundError: nothing that may be read has this name.
            GenerationGoneError: that generation is gone altogether.
        """
        return self._core.wait(
            _arguments.name_text(name),
            _arguments.timeout_ms(timeout),
            0,
            True,
            _arguments.generation_number(generation),
        )

    async def await_released(
        self, name: str, *, generation: int | None = None, timeout: float | None = None
    ) -> int:
        """`wait_released()` for asyncio; cancelling the task cancels the request, too."""
        text = _arguments.name_text(name)
        wanted = _arguments.generation_number(generation)
        seconds = _arguments.timeout_seconds(timeout)
        return await self._loops.answer(
            lambda key: self._core.wait_begin(text, 0, True, wanted, key),
            lambda pending: pending.generation(),
            seconds,
            f"somebody still holds {name!r} after {seconds} seconds: wait longer, or see who it "
            "is with inspect()",
        )

    def watch(self, pattern: str = "**", *, kinds: Iterable[str] | None = None) -> Watch:
        """Events of names, from now on; an iterator for threads and for asyncio.

            with client.watch("frames/*") as watch:
                for event in watch:            # or `async for`
                    print(event.kind, event.name)

        What happened before is not told: open the watch first, then `list()`. Blocks for one
        round trip.

        Args:
            pattern: as for `list()`.
            kinds: words of `Event.kind` that are wanted; None: all. "lost" comes in any case.
        """
        return Watch(self._core, self._loops, _arguments.name_text(pattern), kind_bits(kinds))
