# SPDX-License-Identifier: Apache-2.0
"""The parts that test the package run in Python's development mode, with its fault handler."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testrun import builds, parts

LOOK = """
import faulthandler, json, sys
print(json.dumps([sys.flags.dev_mode, faulthandler.is_enabled()]))
"""


@pytest.mark.parametrize("run", [parts.run_python, parts.run_frameworks])
def test_development_mode_and_fault_handler(
    monkeypatch: pytest.MonkeyPatch, run: Callable[[Any], Any]
) -> None:
    given: list[dict[str, str]] = []
    monkeypatch.setattr(builds, "build", lambda *_, **__: Path("/nowhere"))
    monkeypatch.setattr(builds, "install_wheel", lambda _: None)
    monkeypatch.setattr(parts, "run_pytest", lambda *words: given.append(words[-1]))
    run(None)
    [environment] = given
    strict = {name: value for name, value in environment.items() if name.startswith("PYTHON")}
    strict.pop("PYTHONPATH", None)
    done = subprocess.run(
        [sys.executable, "-c", LOOK], env=os.environ | strict, capture_output=True, check=True
    )
    assert json.loads(done.stdout) == [True, True]
