# SPDX-License-Identifier: Apache-2.0
"""docs/dlpack.md names every rule of DLPack once, and the tests that prove it, as they are.

`TIDL_WRITE_DLPACK=1` writes the page's list of tests anew.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import dlpack_rules
import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs/dlpack.md"
BEGIN, END = "<!-- tests: begin -->\n", "<!-- tests: end -->\n"

# What the page may say of a rule.
STATES = ("kept", "in part", "not yet")


def rows() -> list[tuple[str, str, str]]:
    """(rule, text, state) of each row of the page's tables."""
    found = re.findall(r"^\| ([PCX]\d+) \| (.*) \| ([^|]*) \|$", PAGE.read_text(), re.MULTILINE)
    return [(rule, text, state) for rule, text, state in found]


def link(file: str) -> str:
    return f"[{Path(file).name}](../{file})"


def listing() -> str:
    """The page's list of tests."""
    lines = ["| rule | tests |", "| --- | --- |"]
    for rule, files in dlpack_rules.tests_by_rule().items():
        cells = [
            link(file) + (": " if names else "") + ", ".join(f"`{name}`" for name in names)
            for file, names in sorted(files.items())
        ]
        lines.append(f"| {rule}: | {'<br>'.join(cells)} |")
    return "\n".join(lines) + "\n"


def test_the_page_has_every_rule_once() -> None:
    assert [rule for rule, _, _ in rows()] == dlpack_rules.RULES


@pytest.mark.parametrize(("rule", "text", "state"), rows(), ids=[rule for rule, _, _ in rows()])
def test_a_rule_is_proven_or_the_page_says_why_not(rule: str, text: str, state: str) -> None:
    assert state in STATES
    if state == "kept":
        assert "because" not in text
    else:
        assert "because" in text
    if state != "not yet":
        assert dlpack_rules.tests_by_rule()[rule]


def test_marks_name_rules_that_exist() -> None:
    found = list(dlpack_rules.marked())
    assert len(found) > 80
    for file, name, rules in found:
        assert name.startswith("test_"), (file, name)
        assert set(rules) <= set(dlpack_rules.RULES), (file, name)
        assert set(dlpack_rules.rules_in_name(name)) <= set(rules), (file, name)


def test_numbered_tests_are_marked() -> None:
    known = {(file, name) for file, name, _ in dlpack_rules.marked()}
    for path in sorted(dlpack_rules.FOLDER.glob("test_*.py")):
        for name in re.findall(r"^\s*def (test_[pcx]\d+_\w+)\(", path.read_text(), re.MULTILINE):
            assert (path.name, name) in known


@pytest.mark.parametrize("test", dlpack_rules.ELSEWHERE)
def test_tests_elsewhere_are_there(test: str) -> None:
    assert dlpack_rules.exists(test)
    assert set(dlpack_rules.ELSEWHERE[test]) <= set(dlpack_rules.RULES)
    assert not dlpack_rules.exists(f"{test}_not")


def test_the_page_lists_the_tests_that_there_are() -> None:
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    wanted = f"{before}{BEGIN}{listing()}{END}{after}"
    if os.environ.get("TIDL_WRITE_DLPACK") == "1":
        PAGE.write_text(wanted)
    assert text == wanted, "set TIDL_WRITE_DLPACK=1 once and look at what changed"
