# SPDX-License-Identifier: Apache-2.0
"""The PyTorch trainer of live_simulation.py: learns the rule by which the heat spreads."""

import torch

import tidl

BEFORE, AFTER, GUESS = range(3)


def neighbours(cells: torch.Tensor) -> torch.Tensor:
    """Each cell with the one before and the one behind it, round the ring."""
    return torch.stack([cells.roll(1), cells, cells.roll(-1)], dim=1)


def main() -> None:
    rule = torch.nn.Linear(3, 1, bias=False)  # the next state of a cell from three cells
    torch.nn.init.zeros_(rule.weight)
    optimizer = torch.optim.Adam(rule.parameters(), lr=0.05)
    with tidl.connect() as client:
        tensor = client.get("heat/rows", access="write", timeout=120)
        rows = tensor.to_torch()  # the simulation's own memory
        turns = tensor.turns(1)
        for _ in range(tensor.metadata["rounds"]):
            with turns.take(timeout=120):
                guess = rule(neighbours(rows[BEFORE])).squeeze(1)
                loss = torch.nn.functional.mse_loss(guess, rows[AFTER])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                rows[GUESS] = guess.detach()
    print("learned", [round(weight, 2) for weight in rule.weight.flatten().tolist()])


if __name__ == "__main__":
    main()
