"""Every row of the offline tests, checked as `retrofit test` checks it."""

import asyncio
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from reconciler.cli.desk.suite.check import End, Row, TestRun, run_test
from reconciler.cli.desk.suite.model import TestFile, find, read_tests
from reconciler.errors import RetrofitError
from tests.conformance.data import required, root
from tests.conformance.verdicts import DEVIATION, HERE

FOLDER = root() / "cli"
REASONS: dict[str, str] = {
    entry["cli"]: entry["reason"]
    for entry in yaml.safe_load((HERE / "deviations.yaml").read_text(encoding="utf-8"))
    if "cli" in entry
}


def cases() -> list[Any]:
    """Return a parameter for each entry of ``results``, and one for each file without any.

    A file without entries cannot be read or tests nothing. Its parameter fails under its name,
    and the tests of other files still run.
    """
    if not FOLDER.is_dir():
        return []
    found = []
    for path in find([str(FOLDER)], ["kyverno-test.yaml"]):
        place = path.relative_to(FOLDER).parent
        marker = pytest.mark.conformance(f"cli/{'/'.join(place.parts[:2])}")
        try:
            tests = read_tests(path)
        except RetrofitError:
            tests = []
        rows = [
            pytest.param(path, number, index, id=f"{place}-{index}", marks=marker)
            for number, test in enumerate(tests)
            if isinstance(test, TestFile)
            for index, _ in enumerate(test.expected)
        ]
        found += rows or [pytest.param(path, 0, 0, id=f"{place}", marks=marker)]
    return found


@lru_cache(maxsize=2)
def run(path: Path, number: int) -> tuple[TestFile, TestRun]:
    test = read_tests(path)[number]
    assert isinstance(test, TestFile)
    return test, asyncio.run(run_test(test))


def test_the_data_is_there() -> None:
    if not FOLDER.is_dir():
        (pytest.fail if required() else pytest.skip)("conformance data absent")


@pytest.mark.parametrize(("path", "number", "index"), cases())
def test_a_result_of_an_offline_test_is_as_expected(path: Path, number: int, index: int) -> None:
    test, found = run(path, number)
    assert test.expected, f"{path} has no results"
    expected = test.expected[index]
    rows = [row for row in found.rows if row.expected.location == expected.location]
    assert rows
    if all(row.end is End.NOT_RUN for row in rows):
        pytest.skip(f"{DEVIATION}{_reason(rows[0])}")
    if all("has no rule" in row.message for row in rows):
        pytest.skip(f"{DEVIATION}{REASONS['rule']}")
    failed = [_shown(row) for row in rows if row.end not in {End.PASSED, End.EXCLUDED}]
    assert not failed, "\n".join(failed)


def _reason(row: Row) -> str:
    if row.expected.unsupported:
        return REASONS["checks"]
    return REASONS["operation" if "mutate rules" in row.reason else "language"]


def _shown(row: Row) -> str:
    return "\n".join([f"{row.key}: {row.reason} {row.message}", *row.details])
