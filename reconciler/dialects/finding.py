"""Findings of the linter about a policy."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from reconciler.errors import InvalidPolicy

Scope = Callable[[str, str], bool | None]
"""Returns whether an ``apiVersion`` and ``kind`` is namespaced, None where that is unknown."""


class Level(StrEnum):
    """The severity of a finding, worst first.

    ERROR: the policy is refused, or the rule cannot do what it says. WARNING: it works, but
    probably not as intended. NOTE: good to know.
    """

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding for the author of a policy.

    Attributes:
        code: A stable identifier, for scripts and for the documentation.
        location: In the policy object, as ``spec.rules[0].mutate.targets[1]``.
        text: The finding in one sentence.
        cure: What to do about it; may be empty.
    """

    level: Level
    code: str
    location: str
    text: str
    cure: str = ""


def refusal(code: str, location: str, text: str, cure: str = "") -> Finding:
    """Return a finding of level ERROR."""
    return Finding(level=Level.ERROR, code=code, location=location, text=text, cure=cure)


def warning(code: str, location: str, text: str, cure: str = "") -> Finding:
    """Return a finding of level WARNING."""
    return Finding(level=Level.WARNING, code=code, location=location, text=text, cure=cure)


def note(code: str, location: str, text: str, cure: str = "") -> Finding:
    """Return a finding of level NOTE."""
    return Finding(level=Level.NOTE, code=code, location=location, text=text, cure=cure)


def invalid(error: InvalidPolicy) -> Finding:
    """Return the finding that reports a compile error."""
    return Finding(level=Level.ERROR, code="invalid", location=error.location, text=error.reason)


class Guard(Protocol):
    """The fields and calls that no policy may use; an empty reason means that it may."""

    def of_field(self, field: str) -> str:
        """Return why a policy must not write a field of metadata."""

    def of_call(self, method: str, path: str) -> str:
        """Return why a policy must not make a call of the API server."""
