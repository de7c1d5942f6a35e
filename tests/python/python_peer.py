# SPDX-License-Identifier: Apache-2.0
"""Another Python process that does what a test tells it, over pipes.

    peer = Peer("import numpy as np")
    peer.do("x = np.ones(3)")
    assert peer.ask("x.sum()") == 3.0

Values travel as `repr` and come back through `ast.literal_eval`. What raises there raises
`PeerError` here, with tidl's code. This file is also the program that the process runs.
"""

from __future__ import annotations

import ast
import contextlib
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping
from types import TracebackType
from typing import IO, Any, Self


class PeerError(Exception):
    """What a peer's code raised."""

    def __init__(self, kind: str, code: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind
        self.code = code


class PeerDiedError(Exception):
    """The process ended before it answered."""


def _write(pipe: IO[bytes], value: object) -> None:
    # The pipe has no buffer: signal handlers write, too.
    text = repr(value).encode()
    left = memoryview(len(text).to_bytes(4, "little") + text)
    while left:
        left = left[pipe.write(left) :]


def _read(pipe: IO[bytes]) -> Any:
    size = int.from_bytes(_read_exactly(pipe, 4), "little")
    return ast.literal_eval(_read_exactly(pipe, size).decode())


def _read_exactly(pipe: IO[bytes], size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = pipe.read(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data


class Peer:
    """A Python process with `tidl` imported. Ended, by force if need be, when the block is left."""

    def __init__(
        self,
        setup: str = "",
        *,
        environment: Mapping[str, str] | None = None,
        python: str | os.PathLike[str] = sys.executable,
    ) -> None:
        self.process = subprocess.Popen(
            [python, __file__],
            env={**os.environ, **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        assert self.process.stdin
        assert self.process.stdout
        self._to = self.process.stdin
        self._from = self.process.stdout
        self.do("import os, sys, tidl")
        self.do(setup)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._from.close()
        with contextlib.suppress(BrokenPipeError):
            self._to.close()

    @property
    def pid(self) -> int:
        return self.process.pid

    def start(self, code: str, *, is_expression: bool = False) -> None:
        """Sends code without waiting for it to end: `finish()` does."""
        _write(self._to, (code, is_expression))

    def finish(self) -> Any:
        """The value of what was started."""
        while True:
            kind, *values = self._receive()
            if kind == "value":
                return values[0]
            if kind == "error":
                raise PeerError(*values)

    def await_sign(self) -> Any:
        """The next thing that started code gave to `sign()`."""
        kind, *values = self._receive()
        if kind == "error":
            raise PeerError(*values)
        assert kind == "sign", kind
        return values[0]

    def do(self, code: str) -> None:
        """Runs statements."""
        self.start(code)
        self.finish()

    def ask(self, expression: str) -> Any:
        """Evaluates an expression."""
        self.start(expression, is_expression=True)
        return self.finish()

    def interrupt(self) -> None:
        """What Ctrl-C does."""
        self.process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        """Ends the process at once, as kill -9 does."""
        self.process.kill()
        self.process.wait()

    def end(self) -> int:
        """Lets the interpreter end in order. Returns its status."""
        self._to.close()
        return self.process.wait()

    def _receive(self) -> Any:
        try:
            return _read(self._from)
        except EOFError:
            raise PeerDiedError(f"the peer ended with status {self.process.wait()}") from None


def _run(code: str, names: dict[str, Any], is_expression: bool) -> Any:
    if is_expression:
        return eval(code, names)
    exec(code, names)
    return None


def _serve() -> None:
    incoming = os.fdopen(os.dup(0), "rb")
    outgoing = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # whatever frameworks print goes where errors go
    names: dict[str, Any] = {
        "__name__": "peer",
        "sign": lambda value=None: _write(outgoing, ("sign", value)),
    }
    while True:
        try:
            code, is_expression = _read(incoming)
        except EOFError:
            return
        try:
            answer: tuple[object, ...] = ("value", _run(code, names, is_expression))
        except BaseException as error:
            if not hasattr(error, "code"):
                traceback.print_exc()
            answer = ("error", type(error).__name__, str(getattr(error, "code", "")), str(error))
        _write(outgoing, answer)


if __name__ == "__main__":
    _serve()
