"""The cases of policy languages: which there are, and the runner of each file.

A runner is named by the path of its file below the data's folder, without suffix. The cases of a
file without one count as not yet answered.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from tests.conformance.data import root
from tests.conformance.verdicts import DEVIATION, NOT_YET, entries

Case = Mapping[str, Any]
Runner = Callable[[Case], None]
"""Takes a case, and fails where what is given and what is expected do not agree."""

RUNNERS: Final[dict[str, Runner]] = {}


def runs(*files: str) -> Callable[[Runner], Runner]:
    """Name the files whose cases a function runs."""

    def register(runner: Runner) -> Runner:
        for file in files:
            if file in RUNNERS:
                msg = f"two runners for {file}"
                raise ValueError(msg)
            RUNNERS[file] = runner
        return runner

    return register


def load(folder: Path) -> list[Any]:
    """Return a parameter ``(file, case)`` for each case of the files below a folder."""
    params: list[Any] = []
    for path in sorted(folder.rglob("*.json")):
        file = path.relative_to(folder).with_suffix("").as_posix()
        marks = [pytest.mark.conformance(f"dialects/{file}")]
        cases = json.loads(path.read_text(encoding="utf-8"))
        params += (pytest.param(file, case, id=case["id"], marks=marks) for case in cases)
    return params


def deviations() -> dict[str, str]:
    """Return the reasons of the cases that are answered differently, by their id."""
    return {entry["id"]: entry["reason"] for entry in entries("deviations") if "id" in entry}


def run(file: str, case: Case, deviating: Mapping[str, str]) -> None:
    """Run a case; one that deviates is skipped with its reason, as is one that is unstable."""
    if reason := deviating.get(case["id"]):
        pytest.skip(f"{DEVIATION}{reason}")
    if case.get("expected", {}).get("unstable"):
        pytest.skip(f"{DEVIATION}the original gives several results")
    if file not in RUNNERS:
        pytest.skip(f"{NOT_YET}there is no runner for {file}")
    RUNNERS[file](case)


CASES: Final = load(root() / "dialects")
