# SPDX-License-Identifier: Apache-2.0
"""The sum in the last line of scripts/test is only as good as what reads the reports."""

from __future__ import annotations

from pathlib import Path

from testrun import results

CRITERION = """<?xml version="1.0" encoding="UTF-8"?>
<!-- Tests compiled with Criterion v2.4.1 -->
<testsuites name="Criterion Tests" tests="5" failures="2" errors="1" disabled="1">
  <testsuite name="b" tests="2" failures="1" errors="1" disabled="0" skipped="0" time="1.004">
    <testcase name="slow" assertions="0" status="ERRORED" time="1.004">
      <error type="timeout" message="The test timed out." />    </testcase>
    <testcase name="ok" assertions="1" status="PASSED" time="0.000">
    </testcase>
  </testsuite>
  <testsuite name="a" tests="3" failures="1" errors="0" disabled="1" skipped="1" time="0.000">
    <testcase name="skip" assertions="0" status="SKIPPED" time="0.000">
      <skipped/>
    </testcase>
    <testcase name="ok" assertions="1" status="PASSED" time="0.000">
    </testcase>
    <testcase name="bad" assertions="1" status="FAILED" time="0.000">
      <failure type="assert" message="1 failed."><![CDATA[t.c:3: boom <x>]]>&#10;</failure>
    </testcase>
  </testsuite>
</testsuites>
"""

PYTEST = """<?xml version="1.0" encoding="utf-8"?>
<testsuites><testsuite name="pytest" errors="1" failures="1" skipped="1" tests="5">
<testcase classname="t" name="a"/><testcase classname="t" name="b"/>
<testcase classname="t" name="c"><failure message="assert 1 == 2">long</failure></testcase>
<testcase classname="t" name="d"><error message="fixture broke"/></testcase>
<testcase classname="t" name="e"><skipped message="no GPU"/></testcase>
</testsuite></testsuites>
"""


def ctest(status: str, inside: str = "") -> str:
    return (
        f'<testsuite name="t" tests="1"><testcase name="t" status="{status}">{inside}'
        "</testcase></testsuite>"
    )


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_criterion_report_is_counted_test_by_test(tmp_path: Path) -> None:
    tally = results.read_criterion(write(tmp_path / "c.xml", CRITERION))
    assert str(tally) == "2 passed, 2 failed, 1 skipped"
    assert "b::slow: The test timed out." in tally.failures
    assert "a::bad: t.c:3: boom <x>" in tally.failures


def test_pytest_report_counts_errors_as_failures(tmp_path: Path) -> None:
    tally = results.read_junit(write(tmp_path / "p.xml", PYTEST))
    assert str(tally) == "2 passed, 2 failed, 1 skipped"
    assert tally.skips == ["t::e: no GPU"]


def test_ctest_entry_takes_the_tests_inside(tmp_path: Path) -> None:
    junit = write(tmp_path / "t.ctest.xml", ctest("run"))
    tally = results.read_ctest_entry(junit, write(tmp_path / "t.xml", CRITERION))
    assert str(tally) == "2 passed, 2 failed, 1 skipped"


def test_ctest_entry_without_report_is_one_test(tmp_path: Path) -> None:
    junit = write(tmp_path / "t.ctest.xml", ctest("run"))
    assert str(results.read_ctest_entry(junit, tmp_path / "none.xml")) == (
        "1 passed, 0 failed, 0 skipped"
    )


def test_bad_exit_status_fails_although_every_test_passed(tmp_path: Path) -> None:
    junit = write(tmp_path / "t.ctest.xml", ctest("fail", '<failure message="Failed"/>'))
    good = '<testsuite name="a"><testcase name="x" status="PASSED"/></testsuite>'
    tally = results.read_ctest_entry(junit, write(tmp_path / "t.xml", good))
    assert str(tally) == "1 passed, 1 failed, 0 skipped"


def test_program_without_tests_fails(tmp_path: Path) -> None:
    junit = write(tmp_path / "t.ctest.xml", ctest("run"))
    tally = results.read_ctest_entry(junit, write(tmp_path / "t.xml", "<testsuites/>"))
    assert tally.failed == 1


def test_broken_report_fails(tmp_path: Path) -> None:
    junit = write(tmp_path / "t.ctest.xml", ctest("run"))
    tally = results.read_ctest_entry(junit, write(tmp_path / "t.xml", "<testsuites><test"))
    assert tally.failed == 1


def test_each_sanitizer_log_is_a_failure(tmp_path: Path) -> None:
    write(
        tmp_path / "test_x.sanitizer.12", "=\n==12==ERROR: LeakSanitizer: detected memory leaks\n"
    )
    write(tmp_path / "test_y.sanitizer.13", "a.c:1:2: runtime error: signed integer overflow\n")
    write(tmp_path / "test_z.sanitizer.14", "")
    write(tmp_path / "test_x.xml", "<x/>")
    tally = results.read_sanitizer_logs(tmp_path)
    assert tally.failed == 2
    assert "detected memory leaks" in tally.failures[0]
    assert "signed integer overflow" in tally.failures[1]


def test_tallies_add_up() -> None:
    total = results.Tally()
    for _ in range(3):
        part = results.Tally()
        part.add_pass()
        part.add_failure("f")
        part.add_skip("s")
        total += part
    assert str(total) == "3 passed, 3 failed, 3 skipped"
    assert total.failures == ["f"] * 3
