"""The signatures of functions, and the errors of wrong calls."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from reconciler.errors import EvaluationError
from reconciler.languages.jmespath.limits import Run
from reconciler.languages.jmespath.values import is_number, kind_of

Apply = Callable[[Any, Run], Any]
"""An argument like ``&name``: evaluates the expression on one element."""

Types = tuple[str, ...]
"""The names of the types that a parameter accepts; see `CHECKS`."""

ANY: Types = ("any",)
TEXT: Types = ("string",)
NUMBER: Types = ("number",)
TEXT_OR_NUMBER: Types = ("string", "number")
LIST: Types = ("array",)
MAP: Types = ("object",)

OUT_OF_BOUNDS = "{} argument is out of bounds ({})"
WRONG_TYPE = "argument #{} is not of type {}"
_AMONG_OTHERS = {"string": "String", "number": "Real", "array": "Array", "object": "Object"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function that expressions may call.

    Attributes:
        call: Called with the run and the arguments, which are checked before.
        takes: The types that each parameter accepts.
        variadic: Whether the last parameter may be repeated.
        standard: Whether JMESPath itself defines it; the others word their errors differently.
        pure: Whether equal arguments always give an equal result.
    """

    call: Callable[..., Any]
    takes: tuple[Types, ...]
    variadic: bool = False
    standard: bool = True
    pure: bool = True

    def fits(self, count: int) -> bool:
        """Return whether the function can be called with `count` arguments."""
        return count == len(self.takes) or (self.variadic and count > len(self.takes))

    def accepted(self, position: int) -> Types:
        """Return the types that the argument at `position` may have."""
        return self.takes[min(position, len(self.takes) - 1)]


def extension(call: Callable[..., Any], *takes: Types, pure: bool = True) -> Function:
    """Return a function that JMESPath itself does not define."""
    return Function(call=call, takes=takes, standard=False, pure=pure)


def _all_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(map(is_number, value))


def _all_strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


CHECKS: dict[str, Callable[[Any], bool]] = {
    "number": is_number,
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "array[number]": _all_numbers,
    "array[string]": _all_strings,
}
EXPRESSION = "expression"
"""The type of an argument that is written ``&...``; checked when the call is compiled."""


class Refused(Exception):
    """An extension refuses a call; the caller adds the name of the function (`refusal`)."""


def check(value: Any, function: Function, *, position: int, name: str) -> None:
    """Refuse an argument of a wrong type.

    The message names only the type, never the value, which may come from a Secret.

    Raises:
        EvaluationError: None of the types that the parameter accepts fits.
    """
    types = function.accepted(position)
    for one in types:
        if CHECKS[one](value):
            return
    if not function.standard:
        words = types if len(types) == 1 else [_AMONG_OTHERS[one] for one in types]
        raise refusal(name, WRONG_TYPE.format(position + 1, " or ".join(words)))
    shown = "<nil>" if value is None else kind_of(value)
    raise EvaluationError(
        f"Invalid type for: {shown}, expected: {' or '.join(types)}"
        f" (argument {position + 1} of {name})"
    )


def refusal(name: str, reason: str) -> EvaluationError:
    """Return the error for a call of a function that JMESPath itself does not define."""
    return EvaluationError(f"JMESPath function '{name}': {reason}")
