"""Output of test results as a table, JSON or JUnit XML."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TextIO
from xml.etree import ElementTree as ET

from reconciler.cli.desk.emit import paint
from reconciler.cli.desk.suite.check import End, Row, TestRun
from reconciler.cli.output.encoding import json_of
from reconciler.cli.output.screen import Screen, screen_of
from reconciler.cli.output.words import number

FORMATS: Final = ("table", "json", "junit")
_LEFT: Final = frozenset({End.EXCLUDED, End.NOT_RUN})
_COLOURS = {End.PASSED: "green", End.EXCLUDED: "yellow", End.FAILED: "red", End.NOT_RUN: "yellow"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The results of all tests of one call.

    Attributes:
        broken: A message for each test file that could not be run.
    """

    runs: Sequence[TestRun]
    broken: Sequence[str]

    @property
    def tested(self) -> int:
        """Return the number of rows that passed or failed."""
        return self.counts[End.PASSED] + self.counts[End.FAILED]

    @property
    def idle(self) -> int:
        """Return the number of entries of ``results`` that tested nothing."""
        return sum(len(run.idle) for run in self.runs)

    @property
    def counts(self) -> Counter[End]:
        """Return the number of rows by outcome."""
        return Counter(row.end for run in self.runs for row in run.rows)


def show_table(outcome: Outcome, stream: TextIO, *, fail_only: bool, verbose: bool) -> None:
    """Write a line for each row, with a diff below failed rows, and the counts."""
    screen = screen_of(stream)
    for run in outcome.runs:
        wrong = {End.FAILED, *([End.EXCLUDED] if run.idle else [])}
        rows = [row for row in run.rows if not fail_only or row.end in wrong]
        if not rows:
            continue
        stream.write(f"{run.test.name or run.test.path.parent} ({run.test.path})\n")
        for row in rows:
            stream.writelines(f"{line}\n" for line in _lines(row, screen, verbose=verbose))
            stream.writelines(f"      {line}\n" for line in paint(row.details, screen))
        for item in run.idle:
            text = f"{item.location} tested nothing: the rule applies to none of its objects"
            stream.writelines(f"{line}\n" for line in screen.fold(text, "  ", hanging="    "))
        stream.write("\n")
    for text in outcome.broken:
        stream.writelines(f"{line}\n" for line in screen.fold(text, hanging="  "))
    stream.write(f"{_summary(outcome)}\n")


def _summary(outcome: Outcome) -> str:
    counts = outcome.counts
    parts = [
        f"{counts[End.PASSED]} passed",
        f"{counts[End.FAILED]} failed",
        f"{counts[End.EXCLUDED]} excluded",
        f"{counts[End.NOT_RUN]} not run",
        number(len(outcome.broken), "broken test"),
    ]
    return ", ".join(parts)


def show_json(outcome: Outcome, stream: TextIO) -> None:
    """Write one JSON document with all rows."""
    document = {
        "tests": [
            {
                "name": run.test.name,
                "file": str(run.test.path),
                "rows": [_fields(row) for row in run.rows],
            }
            for run in outcome.runs
        ],
        "broken": list(outcome.broken),
        "counts": {end.value: outcome.counts[end] for end in End},
    }
    stream.write(json_of(document) + "\n")


def show_junit(outcome: Outcome, stream: TextIO) -> None:
    """Write JUnit XML: a suite for each test, a case for each row."""
    root = ET.Element("testsuites")
    for run in outcome.runs:
        idle = {item.location for item in run.idle}
        wrong = [row for row in run.rows if row.end is End.FAILED or row.expected.location in idle]
        left = [row for row in run.rows if row.end in _LEFT and row not in wrong]
        suite = ET.SubElement(
            root,
            "testsuite",
            name=run.test.name,
            file=str(run.test.path),
            tests=str(len(run.rows)),
            failures=str(len(wrong)),
            skipped=str(len(left)),
        )
        for row in run.rows:
            _case(suite, row, failed=row in wrong)
    for line in outcome.broken:
        suite = ET.SubElement(root, "testsuite", name="broken", tests="1", errors="1")
        case = ET.SubElement(suite, "testcase", name="load")
        ET.SubElement(case, "error", message=_printable(line))
    ET.indent(root)
    stream.write(ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n")


def _case(suite: ET.Element, row: Row, *, failed: bool) -> None:
    name = f"{row.expected.rule} {_place(row)}"
    case = ET.SubElement(suite, "testcase", classname=row.expected.policy, name=name)
    if failed:
        failure = ET.SubElement(case, "failure", message=_printable(_reason(row)))
        failure.text = _printable("\n".join(row.details))
    elif row.end in _LEFT:
        ET.SubElement(case, "skipped", message=_printable(_reason(row)))


def _printable(text: str) -> str:
    # XML cannot represent control characters.
    return "".join(sign if sign.isprintable() or sign in "\n\t" else "?" for sign in text)


def _fields(row: Row) -> dict[str, Any]:
    return {
        "policy": row.expected.policy,
        "rule": row.expected.rule,
        "object": _place(row),
        "operation": row.operation,
        "expected": row.expected.result,
        "end": row.end.value,
        "reason": row.reason,
        "message": row.message,
        "diff": list(row.details),
        "location": row.expected.location,
    }


def _lines(row: Row, screen: Screen, *, verbose: bool) -> list[str]:
    end = f"{row.end.value:<8}"
    name = "/".join(filter(None, (row.expected.policy, row.expected.rule)))
    operation = f"  on {row.operation}" if verbose and row.operation else ""
    text = f"{end}  {name}  {_place(row)}{operation}  {_reason(row)}"
    first, *rest = screen.fold(text, "  ", hanging=" " * 12)
    head = screen.style(end, fg=_COLOURS[row.end])
    return [f"  {head}{first[len(end) + 2 :]}", *rest]


def _reason(row: Row) -> str:
    with_message = row.message and row.end in (End.FAILED, End.EXCLUDED)
    return f"{row.reason}: {row.message}" if with_message else row.reason


def _place(row: Row) -> str:
    return "-" if row.key is None else "/".join(filter(None, row.key[1:]))
