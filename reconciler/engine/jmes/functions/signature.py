"""What a function takes, and the errors of a wrong call."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from reconciler.engine.jmes.limits import Run
from reconciler.engine.jmes.values import is_number, kind_of
from reconciler.errors import EvaluationError

Apply = Callable[[Any, Run], Any]
"""An argument like ``&name``: evaluates the expression on one element."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function that expressions may call.

    Attributes:
        call: Takes the run and the arguments, which were checked before.
        takes: For each parameter the names of the types it accepts; see `CHECKS`.
        variadic: Whether the last parameter may be repeated.
    """

    call: Callable[..., Any]
    takes: tuple[tuple[str, ...], ...]
    variadic: bool = False

    def fits(self, count: int) -> bool:
        """Tell whether the function can be called with `count` arguments."""
        return count == len(self.takes) or (self.variadic and count > len(self.takes))

    def accepted(self, position: int) -> tuple[str, ...]:
        """Give the types that the argument at `position` may have."""
        return self.takes[min(position, len(self.takes) - 1)]


def _all_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(map(is_number, value))


def _all_strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


CHECKS: dict[str, Callable[[Any], bool]] = {
    "any": lambda _value: True,
    "number": is_number,
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "array[number]": _all_numbers,
    "array[string]": _all_strings,
}
EXPRESSION = "expression"
"""The type of an argument that is written ``&...``; checked when the call is compiled."""


def check(value: Any, types: tuple[str, ...], *, position: int, function: str) -> None:
    """Refuse an argument of a wrong type.

    The text names the type only, never the value: it may come out of a Secret.

    Raises:
        EvaluationError: None of `types` fits.
    """
    for name in types:
        if CHECKS[name](value):
            return
    shown = "<nil>" if value is None else kind_of(value)
    msg = (
        f"Invalid type for: {shown}, expected: {' or '.join(types)}"
        f" (argument {position + 1} of {function})"
    )
    raise EvaluationError(msg)
