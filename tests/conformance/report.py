"""Counts conformance cases: one line in every run, a table of the folders on request.

A case is a test with the marker ``conformance(folder)``. It counts by how it ended. A skip counts
by the first words of its reason.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

import pytest
from rich.console import Console
from rich.table import Table

from tests.conformance.verdicts import DEVIATION, NOT_YET

PROPERTY = "conformance"


class End(StrEnum):
    """How a case ended."""

    PASSED = "passed"
    FAILED = "failed"
    DEVIATING = "deviating"
    NOT_YET = "not yet"
    SKIPPED = "skipped"


@dataclass(slots=True, eq=False)
class ConformanceReport:
    """The pytest plugin that counts cases.

    Attributes:
        full: Whether to print the table.
        ends: The end of each case, by its folder and name.
        surprises: Cases that passed although they are listed as not yet.
    """

    full: bool
    ends: dict[tuple[str, str], End] = field(default_factory=dict)
    surprises: list[str] = field(default_factory=list)

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Record the folder of a case in its user properties, which its reports contain."""
        folder = _folder(item)
        if folder:
            item.user_properties.append((PROPERTY, folder))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record how a phase of a test ended."""
        folder = str(dict(report.user_properties).get(PROPERTY, ""))
        if not folder:
            return
        end = end_of(report)
        key = (folder, report.nodeid)
        if end is not None and self.ends.get(key) is not End.FAILED:
            self.ends[key] = end
        if end is End.PASSED and hasattr(report, "wasxfail"):
            self.surprises.append(report.nodeid)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the counts."""
        if not self.ends:
            return
        if self.full:
            console = Console(width=110)
            with console.capture() as capture:
                console.print(table(self.ends))
            terminalreporter.write(capture.get())
            for name in self.surprises:
                terminalreporter.write_line(f"passes, but is listed in stage.yaml: {name}")
        terminalreporter.write_line(line(self.ends.values()))


def end_of(report: pytest.TestReport) -> End | None:
    """Return the end of a case according to a report, or None if the report shows none."""
    if report.failed:
        return End.FAILED
    if report.skipped:
        reason = getattr(report, "wasxfail", "")
        if not reason and isinstance(report.longrepr, tuple):
            reason = report.longrepr[2]
        if DEVIATION in reason:
            return End.DEVIATING
        return End.NOT_YET if NOT_YET in reason else End.SKIPPED
    return End.PASSED if report.when == "call" else None


def line(ends: Iterable[End]) -> str:
    """Return the line with the counts."""
    counted = Counter(ends)
    shown = [f"{counted[end]} {end}" for end in End if end is not End.SKIPPED]
    if counted[End.SKIPPED]:
        shown.append(f"{counted[End.SKIPPED]} {End.SKIPPED}")
    return f"conformance: {', '.join(shown)}"


def table(ends: dict[tuple[str, str], End]) -> Table:
    """Return a table with a row per folder."""
    rows: defaultdict[str, Counter[End]] = defaultdict(Counter)
    for (folder, _), end in ends.items():
        rows[folder][end] += 1
    result = Table("folder", *End, title="Conformance", title_justify="left")
    for column in result.columns[1:]:
        column.justify = "right"
    for folder, counted in sorted(rows.items()):
        result.add_row(folder, *(str(counted[end] or "") for end in End))
    return result


def _folder(item: pytest.Item) -> str:
    marker = item.get_closest_marker(PROPERTY)
    return str(marker.args[0]) if marker else ""
