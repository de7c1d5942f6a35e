# SPDX-License-Identifier: Apache-2.0
"""What the parts that run pytest report of tests that are spread over several processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from testrun import builds, parts
from testrun.context import ROOT, Context

PROGRAM = """
import ctypes, os, time
import pytest

@pytest.mark.parametrize("number", range(8))
def test_good(number):
    pass

def test_bad():
    assert 1 == 2

def test_skipped():
    pytest.skip("not here")

def test_crash():
    os.abort()

def test_hang():
    time.sleep(1000)
"""

LEAK = """
import ctypes
import pytest

@pytest.mark.parametrize("number", range(4))
def test_leak(number):
    take = ctypes.CDLL(None).malloc
    take.restype = ctypes.c_void_p
    assert take(100000)
"""


@pytest.fixture
def context(tmp_path: Path) -> Context:
    for name in ("runtime", "logs"):
        (tmp_path / name).mkdir()
    context = Context(tmp_path / "runtime", 2)
    context.logs, context.results = tmp_path / "logs", tmp_path / "results"
    return context


def folder_of(tmp_path: Path, program: str) -> str:
    folder = tmp_path / "tests"
    folder.mkdir()
    (folder / "test_it.py").write_text(program)
    return str(folder)


def test_each_failure_has_its_name(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "TEST_TIMEOUT_S", 3)
    tally = parts.run_pytest(context, "part", [folder_of(tmp_path, PROGRAM)], {})
    assert (tally.passed, tally.failed, tally.skipped) == (8, 3, 1)
    for name in ("test_bad", "test_crash", "test_hang"):
        assert any(f"::{name}: " in line for line in tally.failures), tally.failures
    # Where it hangs is in the log.
    log = (context.logs / "part-tests.log").read_text()
    assert "Timeout" in log
    assert "in test_hang" in log


def test_a_leak_is_found_in_every_process(context: Context, tmp_path: Path) -> None:
    environment = {
        "LD_PRELOAD": builds.sanitizer_library("libasan.so"),
        "LSAN_OPTIONS": f"suppressions={ROOT / 'tests/support/python.supp'}:print_suppressions=0",
    }
    tally = parts.run_pytest(context, "part", [folder_of(tmp_path, LEAK)], environment)
    assert (tally.passed, tally.failed) == (4, 2)
    assert all("LeakSanitizer" in line for line in tally.failures)
