# SPDX-License-Identifier: Apache-2.0
"""A Taichi simulation that takes turns with a PyTorch trainer over one tensor.

    python examples/live_simulation.py &
    python examples/live_trainer.py

A ring of cells on which heat spreads. Row 0 is the state before a step of the simulation, row 1 the
state after it, so that the trainer has what it needs to learn the rule; it writes its own guess
into row 2, and the simulation says how wrong it is. All three rows are one tensor, and nothing is
copied between the two processes.
"""

import argparse

import numpy as np
import taichi as ti

import tidl

CELLS = 64
BEFORE, AFTER, GUESS = range(3)

ti.init(arch=ti.cpu, log_level=ti.ERROR, offline_cache=False)


@ti.kernel
def advance(rows: ti.types.ndarray(dtype=ti.f32, ndim=2)):
    for i in range(CELLS):
        rows[BEFORE, i] = rows[AFTER, i]
    for i in range(CELLS):
        left = rows[BEFORE, (i + CELLS - 1) % CELLS]
        right = rows[BEFORE, (i + 1) % CELLS]
        rows[AFTER, i] = 0.5 * rows[BEFORE, i] + 0.25 * (left + right)


def error(rows: np.ndarray) -> float:
    return float(np.abs(rows[GUESS] - rows[AFTER]).max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=300)
    rounds = parser.parse_args().rounds
    generator = np.random.default_rng(1)
    with tidl.connect() as client:
        tensor = client.zeros((3, CELLS))
        client.publish("heat/rows", tensor, retain="owner", metadata={"rounds": rounds})
        rows, field = tensor.to_numpy(), tensor.to_taichi()
        turns = tensor.turns(0)
        for number in range(rounds):
            with turns.take(timeout=120):
                if number in (1, rounds - 1):
                    print(f"error of guess {number}: {error(rows):.4f}", flush=True)
                if number % 10 == 0:  # it would be flat soon
                    rows[AFTER] = generator.random(CELLS)
                advance(field)
        tensor.wait(2 * rounds, timeout=120)  # the trainer has had its last turn, too
        print(f"{tensor.step} turns, {rounds} each")


if __name__ == "__main__":
    main()
