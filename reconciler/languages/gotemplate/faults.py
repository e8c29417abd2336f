"""What is wrong with a template, and what ends a part of it early."""

from reconciler.errors import RetrofitError


class TemplateSyntaxError(RetrofitError):
    """A text that is no template.

    Attributes:
        message: What is wrong.
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
    """The innermost range ends."""


class ContinueRange(Exception):
    """The innermost range goes on with its next element."""


def place(text: str, position: int) -> tuple[int, int]:
    """Give line and column of a position, both from 1."""
    before = text[:position]
    return before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1
