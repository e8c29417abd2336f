"""Syntax errors of templates, and the exceptions behind ``break`` and ``continue``."""

from reconciler.errors import RetrofitError


class TemplateSyntaxError(RetrofitError):
    """A template has invalid syntax.

    Attributes:
        message: The error, without its position.
        line: From 1.
        column: From 1.
    """

    kind_of_failure = "a template cannot be parsed"

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(f"line {line}, column {column}: {message}")
        self.message = message
        self.line = line
        self.column = column


class BreakRange(Exception):
    """Ends the innermost range."""


class ContinueRange(Exception):
    """Continues the innermost range with its next element."""


def place(text: str, position: int) -> tuple[int, int]:
    """Return the line and column of a position, both from 1."""
    before = text[:position]
    return before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1
