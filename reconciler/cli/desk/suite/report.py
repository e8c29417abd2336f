"""Test results as a table, as JSON, as JUnit XML."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TextIO
from xml.etree import ElementTree as ET

import click
import orjson

from reconciler.cli.desk.emit import paint
from reconciler.cli.desk.suite.check import End, Row, TestRun

FORMATS: Final = ("table", "json", "junit")
_COLOURS = {End.PASSED: "green", End.EXCLUDED: "yellow", End.FAILED: "red", End.NOT_RUN: "yellow"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """All tests of one call.

    Attributes:
        broken: A line for each test that could not be run.
    """

    runs: Sequence[TestRun]
    broken: Sequence[str]

    @property
    def counts(self) -> Counter[End]:
        """Return how many rows ended how."""
        return Counter(row.end for run in self.runs for row in run.rows)


def show_table(outcome: Outcome, stream: TextIO, *, fail_only: bool) -> None:
    """Write a line for each row, with a diff below what failed, and the counts."""
    coloured = stream.isatty()
    for run in outcome.runs:
        rows = [row for row in run.rows if not fail_only or row.end is End.FAILED]
        if not rows:
            continue
        stream.write(f"{run.test.name or run.test.path.parent} ({run.test.path})\n")
        for row in rows:
            stream.write(_line(row, coloured=coloured))
            details = paint(row.details) if coloured else row.details
            stream.writelines(f"      {line}\n" for line in details)
        stream.write("\n")
    stream.writelines(f"{line}\n" for line in outcome.broken)
    counts = outcome.counts
    stream.write(
        f"{counts[End.PASSED] + counts[End.EXCLUDED]} passed ({counts[End.EXCLUDED]} of them"
        f" excluded), {counts[End.FAILED]} failed, {counts[End.NOT_RUN]} not run,"
        f" {len(outcome.broken)} broken tests\n"
    )


def show_json(outcome: Outcome, stream: TextIO) -> None:
    """Write one document with all rows."""
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
    stream.write(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode() + "\n")


def show_junit(outcome: Outcome, stream: TextIO) -> None:
    """Write JUnit XML: a suite for each test, a case for each row."""
    root = ET.Element("testsuites")
    for run in outcome.runs:
        counts = Counter(row.end for row in run.rows)
        suite = ET.SubElement(
            root,
            "testsuite",
            name=run.test.name,
            file=str(run.test.path),
            tests=str(len(run.rows)),
            failures=str(counts[End.FAILED]),
            skipped=str(counts[End.NOT_RUN]),
        )
        for row in run.rows:
            _case(suite, row)
    for line in outcome.broken:
        suite = ET.SubElement(root, "testsuite", name="broken", tests="1", errors="1")
        case = ET.SubElement(suite, "testcase", name="load")
        ET.SubElement(case, "error", message=_printable(line))
    ET.indent(root)
    stream.write(ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n")


def _case(suite: ET.Element, row: Row) -> None:
    name = f"{row.expected.rule} {_place(row)}"
    case = ET.SubElement(suite, "testcase", classname=row.expected.policy, name=name)
    match row.end:
        case End.FAILED:
            failure = ET.SubElement(case, "failure", message=_printable(_reason(row)))
            failure.text = _printable("\n".join(row.details))
        case End.NOT_RUN:
            ET.SubElement(case, "skipped", message=_printable(row.reason))
        case End.PASSED | End.EXCLUDED:
            pass


def _printable(text: str) -> str:
    # XML has no way to write control characters.
    return "".join(sign if sign.isprintable() or sign in "\n\t" else "?" for sign in text)


def _fields(row: Row) -> dict[str, Any]:
    return {
        "policy": row.expected.policy,
        "rule": row.expected.rule,
        "object": _place(row),
        "expected": row.expected.result,
        "end": row.end.value,
        "reason": row.reason,
        "message": row.message,
        "diff": list(row.details),
        "location": row.expected.location,
    }


def _line(row: Row, *, coloured: bool) -> str:
    end = f"{row.end.value:<8}"
    if coloured:
        end = click.style(end, fg=_COLOURS[row.end])
    name = "/".join(_filled((row.expected.policy, row.expected.rule)))
    return f"  {end}  {name}  {_place(row)}  {_reason(row)}\n"


def _reason(row: Row) -> str:
    told = row.message and row.end in (End.FAILED, End.EXCLUDED)
    return f"{row.reason}: {row.message}" if told else row.reason


def _place(row: Row) -> str:
    return "-" if row.key is None else "/".join(_filled(row.key[1:]))


def _filled(parts: Iterable[str]) -> list[str]:
    return [part for part in parts if part]
