# SPDX-License-Identifier: Apache-2.0
"""Where the parts run: folders, environment, and commands whose output goes to a log."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from .commands import Commands

ROOT = Path(__file__).resolve().parents[3]
LOG_TAIL_LINES = 60

# Of the caller's environment. Bytecode is kept, in the build folder: without it, each of the many
# processes of the tests compiles what it imports anew, which is half of a framework's import.
FORGOTTEN = ("PYTHONPATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE")

Command = Sequence[str | Path]


class StepFailed(Exception):
    """A command that a part cannot go on without did not succeed."""


class Context:
    """
    Owns the folders of one run. Tests see neither the caller's TIDL_* variables nor the caller's
    runtime folder, so that no broker of the user's is ever used or disturbed.
    """

    def __init__(self, runtime: Path, jobs: int) -> None:
        self.runtime = runtime
        self.jobs = jobs
        self.built: set[Path] = set()
        self.commands = Commands()
        self.logs = ROOT / "build" / "logs"
        self.results = ROOT / "build" / "results"
        self.python = ROOT / ".venv" / "bin" / "python"
        self.logs.mkdir(parents=True, exist_ok=True)

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("TIDL_", "TIDLD_")) and name not in FORGOTTEN
        }
        environment |= {
            "LANG": "C.UTF-8",
            "MYPY_CACHE_DIR": str(ROOT / "build" / "mypy"),
            "PATH": f"{self.python.parent}:{environment.get('PATH', os.defpath)}",
            "PYTHONPYCACHEPREFIX": str(ROOT / "build" / "pycache"),
            "XDG_RUNTIME_DIR": str(self.runtime),
        }
        return environment | dict(extra or {})

    def fresh_results(self, part: str) -> Path:
        folder = self.results / part
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def run(
        self,
        name: str,
        command: Command,
        extra: Mapping[str, str] | None = None,
        *,
        timeout_s: float = 900,
        cwd: Path = ROOT,
    ) -> bool:
        """Runs a command with its output in build/logs/NAME.log. True when it succeeded."""
        log = self.logs / f"{name}.log"
        with log.open("wb") as output:
            try:
                words = [str(word) for word in command]
                environment = self.environment(extra)
                status = self.commands.run(words, output, environment, cwd, timeout_s)
            except subprocess.TimeoutExpired:
                output.write(f"\nstopped after {timeout_s:.0f} s\n".encode())
                return False
            except OSError as error:
                output.write(f"\n{error}\n".encode())
                return False
        return status == 0

    def step(self, name: str, command: Command, text: str, *, timeout_s: float = 900) -> None:
        """Runs a command that must succeed, and says how long it took."""
        start = time.monotonic()
        is_done = self.run(name, command, timeout_s=timeout_s)
        print(
            f"  {text}: {'done' if is_done else 'failed'}, {time.monotonic() - start:.0f} s",
            flush=True,
        )
        if not is_done:
            self.show_log(name)
            raise StepFailed(f"{text}: see build/logs/{name}.log")

    def show_log(self, name: str) -> None:
        lines = (self.logs / f"{name}.log").read_text(errors="replace").splitlines()
        # A tool that goes on after a finding has it far above the last lines.
        errors = [line for line in lines[:-LOG_TAIL_LINES] if "error:" in line]
        print(f"---- errors and the last lines of build/logs/{name}.log")
        print("\n".join([*errors[:LOG_TAIL_LINES], *lines[-LOG_TAIL_LINES:]]))
        print("----", flush=True)
