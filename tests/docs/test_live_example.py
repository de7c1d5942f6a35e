# SPDX-License-Identifier: Apache-2.0
"""A Taichi simulation and a PyTorch trainer take turns, to the end and when one of them dies."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import tidl

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts programs with a broker of their own, which ends with the test as they do."""
    environment = {name: text for name, text in os.environ.items() if not name.startswith("TIDL_")}
    environment |= {"XDG_RUNTIME_DIR": str(tmp_path), "ENABLE_TAICHI_HEADER_PRINT": "False"}
    programs = []

    def run(script: str, *arguments: str) -> subprocess.Popen[str]:
        programs.append(
            subprocess.Popen(
                [sys.executable, EXAMPLES / script, *arguments],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return programs[-1]

    yield run
    for program in programs:
        program.kill()
        program.communicate()
    tidlctl = Path(tidl.__file__).parent / "bin" / "tidlctl"
    subprocess.run(
        [tidlctl, "shutdown"], env=environment, check=False, timeout=30, capture_output=True
    )


def test_they_take_turns_to_the_end(start: Start) -> None:
    simulation = start("live_simulation.py")
    trainer = start("live_trainer.py")
    told, errors = simulation.communicate(timeout=110)
    assert simulation.returncode == 0, errors
    learned, errors = trainer.communicate(timeout=60)
    assert trainer.returncode == 0, errors
    first, last = re.findall(r"error of guess \d+: ([\d.]+)", told)
    assert float(last) < 0.02 < float(first)
    assert told.endswith("600 turns, 300 each\n")
    weights = [float(word) for word in re.findall(r"[\d.]+", learned)]
    assert weights == pytest.approx([0.25, 0.5, 0.25], abs=0.02)


@pytest.mark.parametrize("dies", ["live_simulation.py", "live_trainer.py"])
def test_one_learns_of_the_others_death(start: Start, dies: str) -> None:
    endless = ("--rounds", "1000000")
    programs = {
        "live_simulation.py": start("live_simulation.py", *endless),
        "live_trainer.py": start("live_trainer.py"),
    }
    simulation = programs["live_simulation.py"]
    assert simulation.stdout
    assert any("error of guess 1" in line for line in simulation.stdout), "they play"
    programs.pop(dies).kill()
    (left,) = programs.values()
    _, errors = left.communicate(timeout=60)
    assert left.returncode == 1
    assert "WriterGoneError" in errors, errors
