"""What is wrong with a text that is no YAML."""

from typing import Any

from yaml.events import Event


class YAMLError(ValueError):
    """The text is no YAML, or is nothing that JSON can hold.

    Attributes:
        problem: What is wrong, without any part of the text.
        line: From 1; 0 where no place is known.
        column: From 1; 0 where no place is known.
    """

    def __init__(self, problem: str, line: int = 0, column: int = 0) -> None:
        place = f"line {line}, column {column}: " if line else ""
        super().__init__(f"is not YAML: {place}{problem}")
        self.problem = problem
        self.line = line
        self.column = column


def place(mark: Any) -> tuple[int, int]:
    """Give line and column, from 1; 0 where there is no mark."""
    return (mark.line + 1, mark.column + 1) if mark else (0, 0)


def refusal(event: Event, problem: str) -> YAMLError:
    """Give the error that stands at an event."""
    return YAMLError(problem, *place(event.start_mark))
