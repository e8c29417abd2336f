"""The error for a text that is not YAML."""

from typing import Any

from yaml.events import Event


class YAMLError(ValueError):
    """The text is not YAML, or not a value that JSON can hold.

    Attributes:
        problem: The fault, without any part of the text.
        line: Counted from 1; 0 where the place is unknown.
        column: Counted from 1; 0 where the place is unknown.
    """

    def __init__(self, problem: str, line: int = 0, column: int = 0) -> None:
        place = f"line {line}, column {column}: " if line else ""
        super().__init__(f"is not YAML: {place}{problem}")
        self.problem = problem
        self.line = line
        self.column = column


def place(mark: Any) -> tuple[int, int]:
    """Return line and column, counted from 1; 0 where there is no mark."""
    return (mark.line + 1, mark.column + 1) if mark else (0, 0)


def refusal(event: Event, problem: str) -> YAMLError:
    """Return an error with the place of an event."""
    return YAMLError(problem, *place(event.start_mark))
