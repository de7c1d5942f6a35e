# SPDX-License-Identifier: Apache-2.0
"""The programs under test, from $TIDL_BUILD_DIR, and how to run them."""

from __future__ import annotations

import os
import select
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

HERE = Path(__file__).parent
DEADLINE_S = 30


def build_dir() -> Path:
    path = os.environ.get("TIDL_BUILD_DIR")
    if not path:
        pytest.skip("TIDL_BUILD_DIR is not set")
    return Path(path)


def program(relative: str) -> Path:
    path = build_dir() / relative
    assert path.exists(), f"{path} is not built"
    return path


@dataclass
class Result:
    status: int
    out: str
    err: str


def run(binary: Path, arguments: tuple[str | bytes, ...], environment: dict[str, str]) -> Result:
    done = subprocess.run(
        [binary, *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=DEADLINE_S,
        check=False,
    )
    return Result(done.returncode, done.stdout.decode(), done.stderr.decode())


@dataclass
class Fake:
    """tidlctl over a libtidl with fixed records."""

    binary: Path

    def __call__(self, *arguments: str) -> Result:
        return run(self.binary, arguments, {**os.environ, "LC_ALL": "C"})


@dataclass
class Holder:
    """A process that holds one tensor until it is closed."""

    process: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        return self.process.pid

    def close(self) -> None:
        if self.process.stdin and not self.process.stdin.closed:
            self.process.stdin.close()
        self.process.wait(DEADLINE_S)


@dataclass
class Broker:
    """A private tidld and what talks to it."""

    folder: Path
    socket: Path
    holders: list[Holder] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "XDG_RUNTIME_DIR": str(self.folder), "TIDL_SOCKET": str(self.socket)}

    def ctl(self, *arguments: str | bytes) -> Result:
        return run(program("client/ctl/tidlctl"), arguments, self.environment)

    def hold(self, verb: str, name: str, *decoration: bytes) -> Holder:
        process = subprocess.Popen(
            [program("tests/ctl/ctl_holder"), verb, name, *decoration],
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert process.stdout
        assert read_line(process) == b"ready\n"
        holder = Holder(process)
        self.holders.append(holder)
        return holder


def read_line(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout
    ready, _, _ = select.select([process.stdout], [], [], DEADLINE_S)
    assert ready, "no line in time"
    return process.stdout.readline()
