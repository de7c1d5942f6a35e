# SPDX-License-Identifier: Apache-2.0
"""
The play that scripts/demo shows: two frameworks in two processes, tidlctl as the third.

Owns the runtime folder, the processes and the broker that the first of them starts, and ends them
all, whatever happens. Nothing here sleeps: each side says where it is, and waits for the other.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType

from testrun.leftovers import brokers_under, wait_for_end
from tree import ROOT

END_S = 10.0

# Who publishes what, in the order of the play. The other one paints it. What the frameworks have
# allocated for themselves comes in the second act.
NAMES = {
    "demo/ones": "paddle",
    "demo/permuted": "paddle",
    "demo/own": "paddle",
    "demo/field": "taichi",
}
SECOND_ACT = "demo/own"


class DemoFailed(Exception):
    """Something differs from what the demo promises."""


@dataclass(frozen=True)
class Report:
    """Where a process says its tensor's memory is."""

    pid: int
    inode: int


def check(is_true: bool, text: str) -> None:
    print(f"  {'yes' if is_true else 'NO '}  {text}")
    if not is_true:
        raise DemoFailed(text)


def environment(runtime: Path) -> dict[str, str]:
    """No broker but the demo's own is found; frameworks keep their chatter to themselves."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("TIDL_", "TIDLD_"))
    }
    return kept | {
        "ENABLE_TAICHI_HEADER_PRINT": "False",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONWARNINGS": "ignore",
        "XDG_RUNTIME_DIR": str(runtime),
    }


class Actor:
    """One process of the play. Its lines are shown; those that start with @ are for us."""

    def __init__(self, name: str, script: str, runtime: Path) -> None:
        self.name = name
        self.process = subprocess.Popen(
            [sys.executable, ROOT / "examples" / script],
            env=environment(runtime),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            process_group=0,  # Ctrl-C is for us; we end them
        )

    def __enter__(self) -> Actor:
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

    def await_step(self, step: str) -> Report:
        """Shows what the process says until it reports this step."""
        assert self.process.stdout
        for line in self.process.stdout:
            if line.startswith("@"):
                facts = json.loads(line[1:])
                if facts["step"] == step:
                    return Report(facts["pid"], facts["inode"])
            else:
                print(f"[{self.name} {self.process.pid}] {line}", end="", flush=True)
        raise DemoFailed(f"{self.name} ended before it was {step}, status {self.process.wait()}")

    def let_go(self) -> None:
        assert self.process.stdin
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def await_end(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            print(f"[{self.name} {self.process.pid}] {line}", end="", flush=True)
        if self.process.wait() != 0:
            raise DemoFailed(f"{self.name} ended with status {self.process.returncode}")


def program(name: str) -> Path:
    """A program that the installed package carries."""
    package = find_spec("tidl")
    if package is None or package.origin is None:
        raise DemoFailed("the package tidl is not installed; run scripts/demo, which does it")
    return Path(package.origin).parent / "bin" / name


def tidlctl(runtime: Path, *words: str) -> str:
    result = subprocess.run(
        [program("tidlctl"), *words],
        env=environment(runtime),
        stdout=subprocess.PIPE,
        text=True,
        timeout=END_S,
    )
    if result.returncode != 0:
        raise DemoFailed(f"tidlctl {' '.join(words)} ended with status {result.returncode}")
    return result.stdout


def maps_inode(pid: int, inode: int) -> bool:
    """Whether the kernel says that this process has this memfd mapped."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    words = (line.split(maxsplit=5) for line in lines)
    return any(w[4] == str(inode) and w[-1].startswith("/memfd:") for w in words if len(w) == 6)


def look(runtime: Path, name: str, publisher: Report, painter: Report) -> None:
    """While both have it: what tidlctl and the kernel say."""
    print(f"\n$ tidlctl list\n{tidlctl(runtime, 'list')}")
    if name == next(iter(NAMES)):  # the others would read alike
        print(f"$ tidlctl inspect {name}\n{tidlctl(runtime, 'inspect', name)}")
    inspection = json.loads(tidlctl(runtime, "--json", "inspect", name))
    segment = inspection["segments"][0]["inode"]
    holders = {holder["pid"] for holder in inspection["holders"]}
    print(f"Was anything copied? ({name})")
    inode = publisher.inode
    check(inode != 0, f"the publisher's framework computes in a memfd, inode {inode}")
    check(painter.inode == inode, "the painter's framework computes in the same memfd")
    check(segment == inode, "the broker says the same of the publication")
    for pid in (publisher.pid, painter.pid):
        check(maps_inode(pid, inode), f"/proc/{pid}/maps shows it")
        check(pid in holders, f"tidlctl names {pid} among the holders")
    print()


def play(runtime: Path) -> None:
    """Both start at once; whoever comes first starts the broker, and the painter waits."""
    with (
        Actor("paddle", "demo_paddle.py", runtime) as paddle,
        Actor("taichi", "demo_taichi.py", runtime) as taichi,
    ):
        for name, owner in NAMES.items():
            if name == SECOND_ACT:
                print("---- Second act: what the frameworks have allocated for themselves ----\n")
            publisher, painter = (paddle, taichi) if owner == paddle.name else (taichi, paddle)
            published = publisher.await_step("published")
            painted = painter.await_step("painted")
            publisher.await_step("seen")
            look(runtime, name, published, painted)
            painter.let_go()
            publisher.let_go()
        taichi.await_end()
        paddle.await_end()


def end_broker(runtime: Path) -> None:
    """Asks the broker to stop, and sees to it."""
    pids = brokers_under(runtime)
    if pids:
        tidlctl(runtime, "shutdown")
    for pid in pids:
        if not wait_for_end(pid, END_S):
            os.kill(pid, signal.SIGKILL)
            raise DemoFailed(f"the broker, pid {pid}, did not stop when asked to")


def check_nothing_left(runtime: Path) -> None:
    left = sorted(path.name for path in runtime.rglob("*") if not path.is_dir())
    print("What is left?")
    check(not brokers_under(runtime), "no broker")
    check(all(name.endswith(".lock") for name in left), f"no file but the lock: {left}")


def main() -> int:
    # A stopped demo unwinds like an interrupted one.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="tidl-demo-") as folder:
        runtime = Path(folder)
        try:
            try:
                play(runtime)
                names = json.loads(tidlctl(runtime, "--json", "list"))
                check(not names["publications"], "both took back what they had published")
            finally:
                end_broker(runtime)
            check_nothing_left(runtime)
        except (DemoFailed, subprocess.TimeoutExpired) as failure:
            print(f"\nThe demo failed: {failure}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("\nstopped; nothing is left behind", file=sys.stderr)
            return 130
    print("\nOne tensor, two processes, two frameworks, no copy.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
