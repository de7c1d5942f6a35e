# SPDX-License-Identifier: Apache-2.0
"""Forked processes: something to kill, to stop, or to be another user."""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import select
import signal
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Self

DEADLINE_S = 20.0
PR_SET_DUMPABLE = 4
STDERR = 2


class ChildError(Exception):
    """What a child's work raised."""


class Child:
    """Runs `work(pipe)` in a forked process, which is killed when the block is left.

    The child has no descriptors of its parent but the standard ones, so that it keeps alive nothing
    that the parent closes.
    """

    def __init__(self, work: Callable[[ChildPipe], object], *, keeps: Sequence[int] = ()) -> None:
        self.pipe, end = multiprocessing.Pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _run(work, end, keeps)
        end.close()
        self.pidfd = os.pidfd_open(self.pid)
        self.status: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
        self.pipe.close()
        os.close(self.pidfd)

    def receive(self) -> Any:
        """The next value that it sent."""
        assert self.pipe.poll(DEADLINE_S), "the child says nothing"
        kind, value = self.pipe.recv()
        if kind == "error":
            raise ChildError(value)
        return value

    def send(self, value: Any) -> None:
        self.pipe.send(value)

    def kill(self) -> None:
        """kill -9, and wait until the kernel has torn the process down."""
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            self._reap()

    def freeze(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)
        os.waitpid(self.pid, os.WUNTRACED)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def await_end(self) -> int:
        assert select.select([self.pidfd], [], [], DEADLINE_S)[0], "the child does not end"
        return self._reap()

    def _reap(self) -> int:
        if self.status is None:
            self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.status


class ChildPipe:
    """The child's end: values go out marked, so that errors can be told apart."""

    def __init__(self, end: Connection) -> None:
        self._end = end

    def send(self, value: Any) -> None:
        self._end.send(("value", value))

    def recv(self) -> Any:
        return self._end.recv()

    def fileno(self) -> int:
        return self._end.fileno()

    def block(self) -> None:
        """Until the parent goes or kills."""
        self._end.poll(None)


def _run(work: Callable[[ChildPipe], object], end: Connection, keeps: Sequence[int]) -> None:
    # No object of the parent may be destroyed here: its descriptor's number may be another's.
    gc.disable()
    gc.freeze()
    kept = sorted({end.fileno(), *keeps})
    status = 1
    try:
        for low, high in zip([STDERR, *kept], [*kept, 1 << 20], strict=True):
            os.closerange(low + 1, high)
        work(ChildPipe(end))
        status = 0
    except BaseException:
        end.send(("error", traceback.format_exc()))
    finally:
        os._exit(status)


def become(uid: int, gid: int, groups: Sequence[int] = ()) -> None:
    """Turns this process into another user's."""
    os.setgroups(list(groups))
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    # Changing users hides /proc/self from oneself, which would make every open there fail for a
    # reason that is not ours.
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)


def as_user(
    uid: int, work: Callable[[], Any], *, gid: int | None = None, groups: Sequence[int] = ()
) -> Any:
    """What work returns when another user does it."""

    def run(pipe: ChildPipe) -> None:
        become(uid, uid if gid is None else gid, groups)
        pipe.send(work())

    with Child(run) as child:
        value = child.receive()
        child.await_end()
        return value
