"""The error for a text that is not YAML."""

from typing import Any, Self

from yaml.events import Event


class YAMLError(ValueError):
    """The text is not YAML, or not a value that JSON can hold; no part of it is quoted."""

    @classmethod
    def at(cls, mark: Any, problem: str) -> Self:
        """Return the error for a mark of the parser, None where the place is unknown."""
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        return cls(f"is not YAML: {place}{problem}")


def refusal(event: Event, problem: str) -> YAMLError:
    """Return an error with the place of an event."""
    return YAMLError.at(event.start_mark, problem)
