"""Output of findings as text, JSON, SARIF or GitHub workflow commands."""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from reconciler.cli.desk.files import is_address
from reconciler.cli.lint.positions import Position
from reconciler.cli.lint.rules import RULES
from reconciler.cli.output.encoding import json_of
from reconciler.cli.output.screen import Screen
from reconciler.cli.output.words import number
from reconciler.services.authoring.lint import Finding, Level

_STYLES: Final[dict[Level, dict[str, Any]]] = {
    Level.ERROR: {"fg": "red", "bold": True},
    Level.WARNING: {"fg": "yellow"},
    Level.NOTE: {"fg": "cyan"},
}
_GITHUB: Final = {Level.ERROR: "error", Level.WARNING: "warning", Level.NOTE: "notice"}
_IN_ADDRESSES: Final = ":/?#[]@!$&'()*+,;=%"
_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A finding and its file.

    Attributes:
        policy: The key of the policy or other object; empty where the file is unreadable.
    """

    file: str
    position: Position
    policy: str
    finding: Finding


def as_text(rows: Iterable[Row], screen: Screen) -> str:
    """Return a paragraph per finding on a terminal, elsewhere a line as compilers print it."""
    between = "\n\n" if screen.folding else "\n"
    return between.join("\n".join(_lines(row, screen)) for row in rows)


def _lines(row: Row, screen: Screen) -> Iterator[str]:
    finding = row.finding
    at = f"{printable(row.file)}:{row.position.line}:{row.position.column}"
    level = screen.style(str(finding.level), **_STYLES[finding.level])
    head = f"{at}: {level} [{finding.code}]"
    place = ": ".join(filter(None, (row.policy, finding.location)))
    cure = f"-> {finding.cure}" if finding.cure else ""
    if not screen.folding:
        text = ": ".join(filter(None, (place, finding.text)))
        yield f"{head} {printable(text)}{cure and f' {printable(cure)}'}"
        return
    yield head
    for text in filter(None, (place, finding.text, cure)):
        yield from screen.fold(printable(text), "  ")


def as_json(rows: Iterable[Row]) -> str:
    """Return a JSON list with one object per finding."""
    listed = [
        {
            "file": row.file,
            "line": row.position.line,
            "column": row.position.column,
            "policy": row.policy,
            "place": row.finding.location,
            "level": row.finding.level,
            "code": row.finding.code,
            "text": row.finding.text,
            "cure": row.finding.cure,
        }
        for row in rows
    ]
    return json_of(listed)


def as_sarif(rows: Iterable[Row]) -> str:
    """Return a SARIF 2.1.0 log with one run."""
    codes = list(RULES)
    results = [
        {
            "ruleId": row.finding.code,
            "ruleIndex": codes.index(row.finding.code),
            "level": str(row.finding.level),
            "message": {"text": _sentence(row.finding)},
            "locations": [_location(row)],
        }
        for row in rows
    ]
    driver = {
        "name": "retrofit-lint",
        "version": version("kube-retrofit"),
        "rules": [
            {"id": code, "shortDescription": {"text": text}} for code, text in RULES.items()
        ],
    }
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return json_of({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]})


def _location(row: Row) -> dict[str, Any]:
    found: dict[str, Any] = {
        "physicalLocation": {
            "artifactLocation": {"uri": _uri(row.file)},
            "region": {"startLine": row.position.line, "startColumn": row.position.column},
        }
    }
    if row.finding.location:
        named = {"name": row.policy} if row.policy else {}
        whole = ": ".join(filter(None, (row.policy, row.finding.location)))
        found["logicalLocations"] = [{**named, "fullyQualifiedName": whole}]
    return found


def _uri(file: str) -> str:
    if is_address(file):
        return quote(file, safe=_IN_ADDRESSES)
    path = Path(file)
    return path.as_uri() if path.is_absolute() else quote(os.fsencode(path.as_posix()))


def as_github(rows: Iterable[Row]) -> str:
    """Return a workflow command per finding, which GitHub shows as an annotation of the line."""
    return "\n".join(
        f"::{_GITHUB[row.finding.level]} file={_property(row.file)},line={row.position.line}"
        f",col={row.position.column},title={_property(row.finding.code)}"
        f"::{_data(_sentence(row.finding, place=True))}"
        for row in rows
    )


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _sentence(finding: Finding, *, place: bool = False) -> str:
    text = f"{finding.text}; {finding.cure}" if finding.cure else finding.text
    return f"{finding.location}: {text}" if place and finding.location else text


def summary(rows: Sequence[Row], looked_at: str) -> str:
    """Return the summary line: the checked objects, and the number of findings per level."""
    counts = {level: sum(row.finding.level is level for row in rows) for level in Level}
    words = [number(count, str(level)) for level, count in counts.items()]
    return f"{looked_at}: {', '.join(words)}"


def printable(text: str) -> str:
    """Return a text with control characters replaced, so that a terminal does not execute them."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f]", "\N{REPLACEMENT CHARACTER}", text)
