"""What a look at a policy finds."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from reconciler.errors import InvalidPolicy

Scope = Callable[[str, str], bool | None]
"""Tells whether ``apiVersion`` and ``kind`` are namespaced, None where nobody knows."""


class Level(StrEnum):
    """How bad a finding is, worst first.

    ERROR: the policy is refused, or the rule cannot do what it says. WARNING: it works, but
    hardly as meant. NOTE: good to know.
    """

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing to tell the author.

    Attributes:
        code: Stable, for scripts and for the documentation.
        location: In the policy object, as ``spec.rules[0].mutate.targets[1]``.
        text: What is so, one sentence.
        cure: What to do about it; may be empty.
    """

    level: Level
    code: str
    location: str
    text: str
    cure: str = ""


def invalid(error: InvalidPolicy) -> Finding:
    """Return what a place that cannot be compiled is reported as."""
    return Finding(level=Level.ERROR, code="invalid", location=error.location, text=error.reason)


class Guard(Protocol):
    """Tells what no policy may address; the empty text where it may."""

    def of_field(self, field: str) -> str:
        """Return why a field of metadata may not be written."""
        ...

    def of_call(self, method: str, path: str) -> str:
        """Return why the API server may not be called so."""
        ...
