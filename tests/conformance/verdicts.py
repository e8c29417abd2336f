"""The cases that are not expected to pass, and why: `deviations.yaml` and `stage.yaml`."""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
DEVIATION = "deviation: "
NOT_YET = "not yet: "


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Why a case is not expected to pass.

    Attributes:
        reason: One sentence, which begins with DEVIATION or NOT_YET.
        attempt: Whether a full run tries the case nevertheless.
    """

    reason: str
    attempt: bool


def read(folder: Path = HERE) -> dict[str, Verdict]:
    """Return a verdict per pattern of folders, deviations first.

    Entries of `deviations.yaml` without ``folder`` are for other suites.
    """
    deviations, stage = entries("deviations", folder), entries("stage", folder)
    found = {
        entry["folder"]: Verdict(reason=f"{DEVIATION}{entry['reason']}", attempt=False)
        for entry in deviations
        if "folder" in entry
    }
    for entry in stage:
        verdict = Verdict(reason=f"{NOT_YET}{entry['reason']}", attempt=entry.get("attempt", True))
        found.setdefault(entry["folder"], verdict)
    return found


def verdict_of(case: str, verdicts: dict[str, Verdict]) -> Verdict | None:
    """Return the first verdict whose pattern matches, or None for a case that must pass."""
    for pattern, verdict in verdicts.items():
        if fnmatchcase(case, pattern):
            return verdict
    return None


def idle_patterns(cases: list[str], verdicts: dict[str, Verdict]) -> list[str]:
    """Return the patterns that match no case: a case was removed, or a pattern is misspelt."""
    return [
        pattern for pattern in verdicts if not any(fnmatchcase(case, pattern) for case in cases)
    ]


def entries(name: str, folder: Path = HERE) -> list[dict[str, Any]]:
    """Return the entries of one of the lists as they are in its file."""
    path = folder / f"{name}.yaml"
    return (yaml.safe_load(path.read_text()) or []) if path.is_file() else []
