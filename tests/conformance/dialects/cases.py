"""The cases of policy languages, and the registry of runners for their files.

A runner is registered for the path of a file below the data's folder, without its suffix. The
cases of a file without a runner count as "not yet".
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
"""Runs a case, and fails if the result differs from the expected one."""

RUNNERS: Final[dict[str, Runner]] = {}


def runs(*files: str) -> Callable[[Runner], Runner]:
    """Return a decorator that registers a function as the runner of the cases in files."""

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
    """Return the reasons of the cases that deviate on purpose, by their ids."""
    return {entry["id"]: entry["reason"] for entry in entries("deviations") if "id" in entry}


def run(file: str, case: Case, deviating: Mapping[str, str]) -> None:
    """Run a case, or skip it with the reason if it deviates or its result is unstable."""
    if reason := deviating.get(case["id"]):
        pytest.skip(f"{DEVIATION}{reason}")
    if case.get("expected", {}).get("unstable"):
        pytest.skip(f"{DEVIATION}the original gives several results")
    if file not in RUNNERS:
        pytest.skip(f"{NOT_YET}there is no runner for {file}")
    RUNNERS[file](case)


CASES: Final = load(root() / "dialects")
