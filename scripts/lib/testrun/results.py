# SPDX-License-Identifier: Apache-2.0
"""Reads the reports of the test tools: how many passed, failed, were skipped."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Tally:
    """Counts, and a line for each failure and each skip with its reason."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    failures: list[str] = field(default_factory=list)
    skips: list[str] = field(default_factory=list)

    def add_pass(self) -> None:
        self.passed += 1

    def add_failure(self, text: str) -> None:
        self.failed += 1
        self.failures.append(text)

    def add_skip(self, text: str) -> None:
        self.skipped += 1
        self.skips.append(text)

    def __iadd__(self, other: Tally) -> Tally:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.failures += other.failures
        self.skips += other.skips
        return self

    def __str__(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def _first_line(element: ElementTree.Element) -> str:
    text = element.get("message") or element.text or ""
    return text.strip().split("\n")[0][:200]


def read_junit(path: Path) -> Tally:
    """A JUnit report, as pytest and ctest write it."""
    tally = Tally()
    for case in ElementTree.parse(path).iter("testcase"):
        name = "::".join(part for part in (case.get("classname"), case.get("name")) if part)
        bad = case.find("failure")
        if bad is None:
            bad = case.find("error")
        skip = case.find("skipped")
        if bad is not None or case.get("status") == "fail":
            tally.add_failure(f"{name}: {_first_line(bad) if bad is not None else 'failed'}")
        elif skip is not None:
            tally.add_skip(f"{name}: {_first_line(skip)}")
        else:
            tally.add_pass()
    return tally


def read_criterion(path: Path) -> Tally:
    """A report of Criterion's XML output."""
    tally = Tally()
    for suite in ElementTree.parse(path).iter("testsuite"):
        for case in suite.iter("testcase"):
            name, status = f"{suite.get('name')}::{case.get('name')}", case.get("status")
            if status == "PASSED":
                tally.add_pass()
            elif status == "SKIPPED":
                tally.add_skip(f"{name}: skipped")
            else:
                reasons = [" ".join(_text_of(bad).split()) for bad in case if bad.tag != "skipped"]
                tally.add_failure(f"{name}: {'; '.join(reasons)[:300] or status}")
    return tally


def _text_of(element: ElementTree.Element) -> str:
    return "".join(element.itertext()).strip() or element.get("message", "")


def read_ctest_entry(junit: Path, criterion: Path) -> Tally:
    """
    One entry of ctest. A Criterion program reports each of its tests; anything else is one test.
    What the exit status says on top of the report (a crash at exit, a time-out) is one failure.
    """
    entry = read_junit(junit)
    if entry.passed + entry.failed + entry.skipped == 0:
        entry.add_failure(f"{junit.stem}: ctest ran nothing")
    if not criterion.exists():
        return entry
    try:
        tally = read_criterion(criterion)
    except ElementTree.ParseError as error:
        tally = Tally()
        tally.add_failure(f"{criterion.name}: not readable ({error})")
    if entry.failed and not tally.failed:
        tally += entry
    if tally.passed + tally.failed + tally.skipped == 0:
        tally.add_failure(f"{criterion.stem}: no test in this program")
    return tally


def read_sanitizer_logs(folder: Path) -> Tally:
    """
    Reports that the sanitizers left behind, each one a failure. Criterion judges a test before its
    worker process ends, so a leak found at the end shows up nowhere else.
    """
    tally = Tally()
    for path in sorted(folder.glob("*.sanitizer.*")):
        text = path.read_text(errors="replace").strip()
        if text:
            heads = [line for line in text.splitlines() if "ERROR" in line or "WARNING" in line]
            heads += [line for line in text.splitlines() if "runtime error" in line]
            tally.add_failure(f"{path.name}: {(heads or text.splitlines())[0][:300]}")
    return tally
