"""The report of conformance cases, and the two lists of cases that need not pass."""

from pathlib import Path

import pytest

from tests.conformance import verdicts
from tests.conformance.report import PROPERTY, ConformanceReport, End, line, table


def a_report(name: str, outcome: str, when: str = "call", reason: str = "") -> pytest.TestReport:
    skipped = ("x.py", 1, f"Skipped: {reason}")
    return pytest.TestReport(
        nodeid=name,
        location=("x.py", 1, name),
        keywords={},
        outcome=outcome,  # type: ignore[arg-type]
        longrepr=skipped if outcome == "skipped" else None,
        when=when,  # type: ignore[arg-type]
        user_properties=[(PROPERTY, "folder")],
    )


def test_each_case_counts_once_with_its_worst_outcome() -> None:
    plugin = ConformanceReport(full=False)
    expected_failure = a_report("e", "skipped")
    expected_failure.wasxfail = "not yet: later"
    surprise = a_report("f", "passed")
    surprise.wasxfail = "not yet: later"
    for report in (
        a_report("a", "passed", "setup"),
        a_report("a", "passed"),
        a_report("b", "passed"),
        a_report("b", "failed", "teardown"),
        a_report("c", "skipped", "setup", "deviation: on purpose"),
        a_report("d", "skipped", "setup", "not yet: later"),
        expected_failure,
        surprise,
        a_report("g", "skipped", "call", "not on PATH: jq"),
        a_report("h", "failed", "setup"),
        a_report("h", "passed", "teardown"),
    ):
        plugin.pytest_runtest_logreport(report)
    assert line(plugin.ends.values()) == (
        "conformance: 2 passed, 2 failed, 1 deviating, 2 not yet, 1 skipped"
    )
    assert plugin.surprises == ["f"]


def test_other_tests_do_not_count() -> None:
    plugin = ConformanceReport(full=False)
    report = a_report("a", "passed")
    report.user_properties = []
    plugin.pytest_runtest_logreport(report)
    assert plugin.ends == {}


def test_table_has_a_row_per_folder() -> None:
    ends = {("x", "1"): End.PASSED, ("x", "2"): End.PASSED, ("y", "3"): End.FAILED}
    columns = [list(column.cells) for column in table(ends).columns]
    assert columns == [["x", "y"], ["2", ""], ["", "1"], ["", ""], ["", ""], ["", ""]]


def test_the_first_matching_verdict_applies(tmp_path: Path) -> None:
    (tmp_path / "deviations.yaml").write_text(
        "[{file: x.json, reason: unit}, {folder: a/b/*, reason: on purpose}]"
    )
    (tmp_path / "stage.yaml").write_text(
        "[{folder: a/*, reason: later, attempt: false}, {folder: 'd(e)', reason: soon}]"
    )
    found = verdicts.read(tmp_path)
    expected = {
        "a/b/c": ("deviation: on purpose", False),
        "a/c/d": ("not yet: later", False),
        "d(e)": ("not yet: soon", True),
    }
    for case, (reason, attempt) in expected.items():
        assert verdicts.verdict_of(case, found) == verdicts.Verdict(reason=reason, attempt=attempt)
    assert verdicts.verdict_of("b/a/b/c", found) is None
    assert verdicts.idle_patterns(["a/b/c", "d(e)x"], found) == ["d(e)"]


def test_without_lists_there_are_no_verdicts(tmp_path: Path) -> None:
    assert verdicts.read(tmp_path) == {}
