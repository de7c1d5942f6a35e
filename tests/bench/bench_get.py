# SPDX-License-Identifier: Apache-2.0
"""Times a get from Python beside a get from C, in the same rounds and the same placement.

Started by scripts/bench when the package tidl can be imported.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import tidl

NAME = "bench/python"


@dataclass(frozen=True)
class Operation:
    title: str
    run: Callable[[tidl.Client], object]


def get_tensor(client: tidl.Client) -> object:
    return client.get(NAME)


def get_array(client: tidl.Client) -> object:
    array = client.get(NAME).to_numpy()
    return array, array[0]


OPERATIONS = (
    Operation("Python get, untouched", get_tensor),
    Operation("Python get, NumPy array, touch", get_array),
)


def settle(client: tidl.Client) -> None:
    """One more round trip, after which the broker has handled the release."""
    try:
        client.get("bench/nothing")
    except KeyError:
        return
    raise AssertionError("the broker found what was never published")


def time_python(client: tidl.Client, operation: Operation, runs: int) -> float:
    samples = []
    for _ in range(runs + runs // 10):
        start = time.perf_counter_ns()
        result = operation.run(client)
        samples.append((time.perf_counter_ns() - start) / 1000)
        del result
        settle(client)
    return statistics.median(samples[runs // 10 :])


def time_c(loop: Path, runs: int) -> float:
    done = subprocess.run([loop, NAME, str(runs)], stdout=subprocess.PIPE, check=True)
    return float(done.stdout.split()[0])


def publish(size_bytes: int) -> None:
    """In a process of its own, so that the measured one attaches what is not its own."""
    if child := os.fork():
        _, status = os.waitpid(child, 0)
        assert status == 0
        return
    with tidl.connect(autostart=False) as client:
        tensor = client.zeros(size_bytes, dtype="uint8")
        client.publish(NAME, tensor)
        del tensor
    os._exit(0)


def placements() -> dict[str, tuple[int, int]]:
    cpus = sorted(os.sched_getaffinity(0))
    found = {"same core": (cpus[0], cpus[0])}
    if len(cpus) > 1:
        found["cross core"] = (cpus[0], cpus[1])
    return found


def measure(arguments: argparse.Namespace) -> None:
    for placement, (client_cpu, broker_cpu) in placements().items():
        os.sched_setaffinity(0, {client_cpu})
        os.sched_setaffinity(arguments.broker_pid, {broker_cpu})
        rounds = []
        for _ in range(arguments.rounds):
            c_us = time_c(arguments.loop, arguments.runs)
            with tidl.connect(autostart=False) as client:
                rounds.append(
                    (c_us, [time_python(client, each, arguments.runs) for each in OPERATIONS])
                )
        print(f"\n{placement}: Python {sys.version.split()[0]}, NumPy {np.__version__}")
        print(f"  {'C get, touch':32} {statistics.median(c for c, _ in rounds):8.1f} us")
        for index, operation in enumerate(OPERATIONS):
            times = [python[index] for _, python in rounds]
            ratios = [python[index] / c_us for c_us, python in rounds]
            print(
                f"  {operation.title:32} {statistics.median(times):8.1f} us"
                f"  x{statistics.median(ratios):.2f} C get"
                f"  {min(ratios):.2f} .. {max(ratios):.2f}"
                f"{'  (target <= 2.5)' if operation is OPERATIONS[-1] else ''}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--loop", type=Path, required=True, help="bench_get_loop")
    parser.add_argument("--broker-pid", type=int, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=1000)
    arguments = parser.parse_args()
    publish(4096)
    measure(arguments)


if __name__ == "__main__":
    main()
