"""The cases of a folder, each run by the runner of its kind unless it deviates on purpose."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, NoReturn

import pytest
import yaml

from tests.conformance.units import (
    conditions,
    jmespath,
    matching,
    patches,
    patterns,
    rules,
    tables,
    validation,
    variables,
)
from tests.conformance.units.cases import HEAD, RUNNERS, Case
from tests.conformance.verdicts import DEVIATION, entries

# Importing these modules registers their runners.
MODULES: Final = (
    conditions,
    jmespath,
    matching,
    patches,
    patterns,
    rules,
    tables,
    validation,
    variables,
)
BROKEN: Final = "broken"
_SELECTORS: Final = ("file", "kind", "test", "case", "applies_to")


def _no_rule_mutates(raw: Mapping[str, Any]) -> bool:
    policy = raw["input"].get("policy") or yaml.safe_load(raw["input"].get("policy_text") or "{}")
    rules = (policy.get("spec") or {}).get("rules") or ()
    return bool(rules) and not any("mutate" in rule for rule in rules)


def _variables_in_data(raw: Mapping[str, Any]) -> bool:
    return "{{" in json.dumps(raw["input"].get("context"))


def _comes_from_failed(raw: Mapping[str, Any]) -> bool:
    return "Failed" in (raw["input"].get("state"), raw["input"].get("from"))


# Conditions in `deviations.yaml` besides fields. A case with one is run if it has a runner.
CONDITIONS: Final[Mapping[str, Callable[[Mapping[str, Any]], bool]]] = {
    "no rule mutates": _no_rule_mutates,
    "variables in data": _variables_in_data,
    "a state after Failed": _comes_from_failed,
    "image extractors": lambda raw: bool(raw["input"].get("extractionConfig")),
    "no runner": lambda raw: raw["kind"] not in RUNNERS,
    "no counterpart": lambda raw: raw["test"] not in tables.TABLES,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Deviation:
    """An entry of `deviations.yaml` for cases of functions.

    Attributes:
        selectors: Patterns for fields of a case and for its ``file``, all of which must match.
        when: One of `CONDITIONS`, or empty. A case with one deviates only if it fails.
    """

    selectors: Mapping[str, str]
    when: str = ""
    reason: str

    def covers(self, file: str, raw: Mapping[str, Any]) -> bool:
        """Return whether the deviation applies to a case."""
        facts = {**raw, "file": file}
        if not all(fnmatchcase(str(facts.get(key)), text) for key, text in self.selectors.items()):
            return False
        return not self.when or CONDITIONS[self.when](raw)

    def skip(self) -> NoReturn:
        """Skip the case as a deviation."""
        pytest.skip(f"{DEVIATION}{self.reason}")


def run(file: str, raw: Mapping[str, Any], deviations: Iterable[Deviation]) -> None:
    """Run a case, which fails if its kind is unknown or one of its fields was not read."""
    if BROKEN in raw:
        pytest.fail(raw[BROKEN], pytrace=False)
    covering = [item for item in deviations if item.covers(file, raw)]
    for item in covering:
        if not item.when:
            item.skip()
    case = Case(raw)
    runner = RUNNERS.get(case.kind)
    if runner is None:
        for item in covering:
            item.skip()
        pytest.fail(
            f"no runner for the kind {case.kind!r}: write one in tests/conformance/units, or list"
            " the kind with its reason in tests/conformance/deviations.yaml",
            pytrace=False,
        )
    try:
        runner(case)
    except AssertionError:
        for item in covering:
            item.skip()
        raise
    unread = case.fields.unread()
    if unread:
        pytest.fail(f"the runner does not read {', '.join(unread)}", pytrace=False)


def deviations() -> list[Deviation]:
    """Return the entries for cases of functions, which name a file or a kind."""
    return [
        Deviation(
            selectors={key: str(entry[key]) for key in _SELECTORS if key in entry},
            when=entry.get("when", ""),
            reason=entry["reason"],
        )
        for entry in entries("deviations")
        if "file" in entry or "kind" in entry
    ]


def load(folder: Path, *, counted: bool = True) -> list[Any]:
    """Return a parameter ``(file, case)`` for each case in the files below a folder.

    A file or a case that cannot be read is a parameter too, whose run fails with the reason.

    Args:
        folder: The folder of the files.
        counted: Whether the cases count in the report.
    """
    params: list[Any] = []
    for path in sorted(folder.rglob("*.json")):
        name = path.relative_to(folder).with_suffix("").as_posix()
        marks = [pytest.mark.conformance(f"units/{name}")] if counted else []
        seen: Counter[str] = Counter()
        for raw in _read(path):
            names = (raw[key] for key in ("kind", "test", "case") if key in raw)
            key = "/".join(map(str, (name, *names)))
            seen[key] += 1
            shown = key if seen[key] == 1 else f"{key}#{seen[key]}"
            params.append(pytest.param(path.name, raw, id=shown, marks=marks))
    return params


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        return [{BROKEN: f"{path}: {error}"}]
    if not isinstance(data, list):
        return [{BROKEN: f"{path}: expected a list of cases"}]
    return [_checked(item, path) for item in data]


def _checked(item: Any, path: Path) -> dict[str, Any]:
    if not isinstance(item, dict):
        return {BROKEN: f"{path}: expected a case, found {item!r}"}
    missing = ", ".join(sorted(HEAD - item.keys()))
    return {**item, BROKEN: f"{path}: the case lacks {missing}"} if missing else item
