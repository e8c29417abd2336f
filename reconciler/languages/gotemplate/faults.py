"""Syntax errors of templates, and the exceptions behind ``break`` and ``continue``."""

from typing import Self

from reconciler.errors import RetrofitError


class TemplateSyntaxError(RetrofitError):
    """A template has invalid syntax; the message begins with the position."""

    kind_of_failure = "a template cannot be parsed"

    @classmethod
    def at(cls, text: str, position: int, problem: str) -> Self:
        """Return the error for a position of a text."""
        return cls(f"{place(text, position)}: {problem}")


class BreakRange(Exception):
    """Ends the innermost range."""


class ContinueRange(Exception):
    """Continues the innermost range with its next element."""


def place(text: str, position: int) -> str:
    """Return the line and column of a position, both from 1."""
    before = text[:position]
    line, column = before.count("\n") + 1, position - before.rfind("\n")
    return f"line {line}, column {column}"
