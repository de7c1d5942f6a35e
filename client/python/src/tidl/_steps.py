# SPDX-License-Identifier: Apache-2.0
"""Steps: copies of a tensor as of one, and taking turns with other processes over one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tidl._arguments import timeout_seconds, whole_number
from tidl._errors import BusyError, InvalidArgumentError

if TYPE_CHECKING:
    import numpy.typing

    from tidl._tensor import Tensor

LARGEST_STEP = 2**63 - 1


class Turns:
    """Several processes that take turns over one tensor; see `Tensor.turns()`.

    It is the turn of number `step % count`. Each turn is one step, so readers beside the game can
    follow it with `wait()` and `read()`.
    """

    def __init__(self, tensor: Tensor, index: int, count: int) -> None:
        """Use `Tensor.turns()`."""
        self._tensor = tensor
        self._count = whole_number(count, "count", 1, LARGEST_STEP)
        self._index = whole_number(index, "index", 0, self._count - 1)
        # The step at which a turn was begun that may be open still.
        self._open_at = -1

    def __repr__(self) -> str:
        return f"<tidl.Turns {self._index} of {self._count} over {self._tensor!r}>"

    @property
    def tensor(self) -> Tensor:
        """What the turns are about."""
        return self._tensor

    @contextmanager
    def take(self, timeout: float | None = None) -> Iterator[int]:
        """Waits until it is this one's turn, for `with turns.take() as step:`.

        Inside the block the tensor is nobody else's; its end passes the turn on. When the block
        raises, the turn stays: nobody goes on with half of a step. The next `take()` enters it
        again, and when this process ends the others learn that it has.

        Args:
            timeout: in seconds; None waits for ever.

        Returns:
            A context manager that gives the number of steps that are complete.

        Raises:
            WriterGoneError: another one that took turns has ended or let go of the tensor.
            TimedOutError: the others did not finish their turns in time.
            ReadOnlyError: the tensor was not attached for writing.
            BusyError: this process has an update open by itself.
        """
        step = self._await_turn(timeout)
        is_again = self._open_at == step
        # Before the call: Ctrl-C may come as it returns, and the update is open then.
        self._open_at = step
        try:
            # An update that is open in my turn was mine: of a process that died in my place.
            self._tensor._update_begin(True)
        except BusyError:
            if not is_again:
                self._open_at = -1
                raise
        yield step
        self._tensor._update_end()

    def _await_turn(self, timeout: float | None) -> int:
        limit = timeout_seconds(timeout)
        end = None if limit is None else time.monotonic() + limit
        step = self._tensor.step
        while step % self._count != self._index:
            left = None if end is None else max(0.0, end - time.monotonic())
            step = self._tensor.wait(step + (self._index - step) % self._count, left)
        return step


def read(
    tensor: Tensor, out: numpy.typing.NDArray[Any] | None, limit_ms: int
) -> tuple[numpy.typing.NDArray[Any], int]:
    """A copy of the tensor as of one step, into `out` or a new array, and which step."""
    import numpy

    memory = tensor.to_numpy()
    if out is None:
        out = numpy.empty(memory.shape, memory.dtype)
    elif (
        not isinstance(out, numpy.ndarray)
        or (out.shape, out.dtype) != (memory.shape, memory.dtype)
        or not (out.flags.c_contiguous and out.flags.writeable)
    ):
        raise InvalidArgumentError(
            f"out must be a writable, row-major NumPy array of shape {memory.shape} and dtype "
            f"{memory.dtype}"
        )
    return out, tensor._snapshot(out.reshape(-1).view(numpy.uint8), limit_ms)
