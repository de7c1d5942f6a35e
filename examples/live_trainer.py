# SPDX-License-Identifier: Apache-2.0
"""The PyTorch trainer of live_simulation.py: learns the rule by which the heat spreads."""

import torch

import tidl

BEFORE, AFTER, GUESS = range(3)


class Rule(torch.nn.Module):
    """The next state of a cell from three cells, round the ring."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = torch.nn.Parameter(torch.zeros(3))

    def forward(self, cells: torch.Tensor) -> torch.Tensor:
        neighbours = torch.stack([cells.roll(1), cells, cells.roll(-1)])
        return self.weights @ neighbours


def main() -> None:
    torch.manual_seed(1)
    rule = Rule()
    optimizer = torch.optim.Adam(rule.parameters(), lr=0.05)
    with tidl.connect() as client:
        tensor = client.get("heat/rows", access="write", timeout=120)
        rows = tensor.to_torch()  # the simulation's own memory
        turns = tensor.turns(1)
        for _ in range(tensor.metadata["rounds"]):
            with turns.take(timeout=120):
                guess = rule(rows[BEFORE])
                loss = torch.nn.functional.mse_loss(guess, rows[AFTER])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                rows[GUESS] = guess.detach()
    print("learned", [round(weight, 2) for weight in rule.weights.tolist()])


if __name__ == "__main__":
    main()
