# SPDX-License-Identifier: Apache-2.0
"""tidld as a child of the tests, so that its end is seen, with whatever its sanitizers report."""

from __future__ import annotations

import fcntl
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ctl_support import program

DEADLINE_S = 20.0
PIPE_BYTES = 1 << 20  # more than a broker logs during a test, so nobody has to read on
SANITIZER_STATUS = 99


def runtime_folder() -> Path:
    # Short, because a socket's path has 108 bytes. Open, because other users connect too.
    folder = Path(tempfile.mkdtemp(prefix="tidl-", dir="/tmp"))
    folder.chmod(0o755)
    return folder


def tidld_environment(folder: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The caller's environment without options of tidld, with reports of sanitizers in a folder."""
    common = f"log_path={folder}/sanitizer:exitcode={SANITIZER_STATUS}:print_stacktrace=1"
    kept = {name: text for name, text in os.environ.items() if not name.startswith("TIDL")}
    return {
        **kept,
        # Little quarantine, so that the size of the process means something.
        "ASAN_OPTIONS": f"{common}:detect_leaks=1:detect_stack_use_after_return=1"
        ":strict_string_checks=1:quarantine_size_mb=4",
        "UBSAN_OPTIONS": common,
        **(extra or {}),
    }


class Broker:
    """A tidld that listens, or one that is about to fail: see `Broker.start()`."""

    def __init__(
        self,
        folder: Path,
        *options: str,
        command: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
        has_socket: bool = True,
    ) -> None:
        self.folder = folder
        self.socket = folder / "tidld.sock"
        self.reports = Path(tempfile.mkdtemp(prefix="tidl-reports-", dir="/tmp"))
        self.log = b""
        where = ["--socket", str(self.socket)] if has_socket else []
        self.process = subprocess.Popen(
            [*command, str(program("daemon/tidld")), *where, *options],
            env=tidld_environment(self.reports, environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            bufsize=0,
            pass_fds=pass_fds,
        )
        assert self.process.stderr
        fcntl.fcntl(self.process.stderr, fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    def await_ready(self) -> None:
        """Returns once clients can connect: it says so on its standard error."""
        assert self.process.stderr
        deadline = time.monotonic() + DEADLINE_S
        while b" serves at " not in self.log or not self.log.endswith(b"\n"):
            left = max(deadline - time.monotonic(), 0)
            ready, _, _ = select.select([self.process.stderr], [], [], left)
            more = os.read(self.process.stderr.fileno(), PIPE_BYTES) if ready else b""
            assert more, f"tidld did not start: {self.log.decode()}"
            self.log += more

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def await_end(self) -> int:
        """Its exit status, once it has ended by itself."""
        descriptor = os.pidfd_open(self.pid)
        try:
            assert select.select([descriptor], [], [], DEADLINE_S)[0], "tidld does not end"
        finally:
            os.close(descriptor)
        status = self.process.wait()
        self._collect()
        return status

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def stop(self) -> None:
        """Ends it in order, and checks that it had nothing to complain of."""
        if not self.is_running:
            raise AssertionError(f"tidld ended: {self.process.returncode}\n{self.sanitizer_log()}")
        self.signal(signal.SIGTERM)
        status = self.await_end()
        self.check_reports()
        assert status == 0, self.log.decode()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._collect()

    def _collect(self) -> None:
        """The rest of its log."""
        assert self.process.stderr
        self.log += self.process.stderr.read() or b""
        self.process.stderr.close()

    def sanitizer_log(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self.reports.iterdir()))

    def check_reports(self) -> None:
        assert self.sanitizer_log() == ""

    def dispose(self) -> None:
        """Whatever state it is in."""
        if self.is_running:
            self.kill()
        elif self.process.stderr and not self.process.stderr.closed:
            self._collect()
        shutil.rmtree(self.reports)

    # ---- what the kernel says of it ----

    def descriptors(self) -> list[str]:
        found = []
        for entry in Path(f"/proc/{self.pid}/fd").iterdir():
            try:
                found.append(os.readlink(entry))
            except FileNotFoundError:
                continue  # closed meanwhile
        return sorted(found)

    def resident_bytes(self) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) << 10

    def switches(self) -> int:
        """How often it has woken up, or was made to wait."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if "ctxt_switches" in line)

    def freeze(self) -> None:
        """Stops it, and returns once it stands still."""
        self.signal(signal.SIGSTOP)
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)

    def thaw(self) -> None:
        self.signal(signal.SIGCONT)
