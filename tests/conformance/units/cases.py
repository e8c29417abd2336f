"""Cases of the engine's functions, read where the conformance data lies."""

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from reconciler.errors import EvaluationError, InvalidPolicy
from tests.conformance.data import required, root
from tests.conformance.verdicts import DEVIATION, HERE

DEVIATIONS = HERE / "deviations.yaml"
SELECTORS = ("file", "kind", "test", "case")


def load(file: str, kinds: set[str]) -> list[Any]:
    """Give one ``pytest.param(case)`` for each case of `file` that has one of `kinds`.

    A case that `deviations.yaml` names is skipped with the reason written there. Without the data
    the calling module is skipped, or fails where CONFORMANCE_REQUIRED=1 asks for the data.
    """
    cases = [case for case in _read(file) if case["kind"] in kinds]
    deviations = _deviations(file)
    seen: Counter[str] = Counter()
    params = []
    for case in cases:
        name = f"{case['source']}/{case['test']}/{case['case']}"
        seen[name] += 1
        if seen[name] > 1:
            name = f"{name}#{seen[name]}"
        params.append(pytest.param(case, id=name, marks=_marks(case, file, deviations)))
    return params


def attempt(work: Callable[[], Any]) -> tuple[Any, str | None]:
    """Give the result of `work` and None, or None and the text of its error."""
    try:
        return work(), None
    except (InvalidPolicy, EvaluationError) as error:
        return None, str(error)


def _read(file: str) -> list[dict[str, Any]]:
    path = root() / "units" / file
    if not path.is_file():
        if required():
            pytest.fail(f"conformance data required but absent: {file}", pytrace=False)
        pytest.skip("conformance data absent", allow_module_level=True)
    data: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return data


def _deviations(file: str) -> list[dict[str, Any]]:
    if not DEVIATIONS.is_file():
        return []
    entries = yaml.safe_load(DEVIATIONS.read_text(encoding="utf-8")) or []
    return [entry for entry in entries if entry.get("file") == file]


def _marks(case: dict[str, Any], file: str, entries: list[dict[str, Any]]) -> list[Any]:
    facts = {**case, "file": file}
    for entry in entries:
        if all(facts.get(key) == entry[key] for key in SELECTORS if key in entry):
            return [pytest.mark.skip(reason=f"{DEVIATION}{entry['reason']}")]
    return []
