# SPDX-License-Identifier: Apache-2.0
"""python -m testrun [PART ...]: runs parts, prints their times, and the sum as the last line."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType

from .context import ROOT, Context, StepFailed
from .leftovers import end_leftovers
from .parts import PARTS, Part
from .results import Tally


def run_part(context: Context, part: Part) -> Tally:
    print(f"== {part.name}: {part.text}", flush=True)
    start = time.monotonic()
    try:
        tally = part.run(context)
    except StepFailed as error:
        tally = Tally()
        tally.add_failure(str(error))
    if tally.passed + tally.failed + tally.skipped == 0:
        tally.add_failure(f"{part.name}: ran no test")
    tally += end_leftovers(context.runtime)
    for line in tally.failures:
        print(f"  FAILED {line}")
    for line in tally.skips:
        print(f"  skipped {line}")
    print(f"== {part.name}: {tally}; {time.monotonic() - start:.0f} s", flush=True)
    return tally


def unwind_when_stopped(context: Context) -> None:
    """What runs is interrupted; then the runtime folder goes, and brokers are ended."""

    def stop(_signum: int, _frame: FrameType | None) -> None:
        context.commands.stop()
        raise KeyboardInterrupt

    # A shell ignores two of these for what it runs in the background, and so would all that is
    # tested.
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)


def main() -> int:
    names = sys.argv[1:] or [part.name for part in PARTS]
    start = time.monotonic()
    total, times = Tally(), []
    # Short, because a socket's path has 108 bytes.
    with tempfile.TemporaryDirectory(prefix="tidl-test-", dir="/tmp") as folder:
        context = Context(Path(folder), os.cpu_count() or 1)
        unwind_when_stopped(context)
        try:
            for part in (part for part in PARTS if part.name in names):
                part_start = time.monotonic()
                tally = run_part(context, part)
                total += tally
                times.append((part.name, time.monotonic() - part_start, tally))
        except KeyboardInterrupt:
            end_leftovers(context.runtime)
            print("interrupted", file=sys.stderr)
            return 130
    print(f"\ntimes ({ROOT.name}):")
    for name, seconds, tally in times:
        print(f"  {name:<12}{seconds:6.0f} s   {tally}")
    print(f"  {'all':<12}{time.monotonic() - start:6.0f} s")
    for line in total.failures:
        print(f"FAILED {line}")
    print(total, flush=True)
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
