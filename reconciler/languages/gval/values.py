"""Values of the language: those of JSON, ``undefined``, and the results of functions.

Conversions are those of gval 1.0.1, a Go library: numbers are float64, a text that parses as a
number is one where a number is needed, and every value has the text of Go's ``%v``.
"""

import math
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from typing_extensions import override

from reconciler.engine.values.gonumbers import parse_float
from reconciler.engine.values.gotext import float_of, go_text
from reconciler.errors import EvaluationError
from reconciler.languages.gotemplate.values import to_word


class Failure(EvaluationError):
    """An expression cannot be evaluated on this data; the message contains no value of it.

    A filter skips the element, and a path with several results skips that result.
    """


class Undefined(Enum):
    """The result of a path to nothing; as a number, it equals no number and not itself.

    Its text is empty, and its value is its name for users.
    """

    UNDEFINED = "<undefined>"

    @override
    def __str__(self) -> str:
        return ""


UNDEFINED: Final = Undefined.UNDEFINED


class Count(int):
    """A length: an integer among floats, which equals no element of a list."""

    __slots__ = ()

    @override
    def __str__(self) -> str:
        return int.__repr__(self)


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in time, as Go prints it; comparisons use that text, too.

    Attributes:
        in_utc: Its text names UTC as its zone; a moment without that differs from one with it.
    """

    text: str
    in_utc: bool = False

    @override
    def __str__(self) -> str:
        return self.text


_TRUE: Final = ("true", "TRUE")
_FALSE: Final = ("false", "FALSE")


def text_of(value: Any) -> str:
    """Return the text of a value where a text is needed."""
    if type(value) is str:
        return value
    return str(value) if isinstance(value, Count) else go_text(value)


def to_number(value: Any) -> float | None:
    """Return a value as a number, None where it is not one."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float_of(value)
    if value is UNDEFINED:
        return math.nan
    return parse_float(value) if isinstance(value, str) else None


def to_index(value: Any) -> int:
    """Return a value as an integer, rounded towards zero.

    Raises:
        Failure: The value is not a number.
    """
    number = to_number(value)
    if number is None:
        raise Failure("the index of a list has to be a number")
    return to_word(number)


def to_condition(value: Any) -> bool:
    """Return whether a filter keeps an element with this result.

    Raises:
        Failure: The result is neither true nor false.
    """
    if isinstance(value, bool):
        return value
    if value is None or value in _FALSE:
        return False
    if value in _TRUE:
        return True
    number = to_number(value)
    if number is None:
        raise Failure("the condition of a filter is neither true nor false")
    return number != 0


def same(left: Any, right: Any) -> bool:
    """Return whether two values have the same type and are deeply equal."""
    if isinstance(left, dict):
        return (
            isinstance(right, dict)
            and left.keys() == right.keys()
            and all(same(value, right[key]) for key, value in left.items())
        )
    if isinstance(left, list):
        return isinstance(right, list) and len(left) == len(right) and all(map(same, left, right))
    if left is UNDEFINED or right is UNDEFINED:
        return False
    if _is_number(left) and _is_number(right):
        return float_of(left) == float_of(right)
    return type(left) is type(right) and bool(left == right)


def _is_number(value: Any) -> bool:
    """Return whether a value is a number of a document, neither a length nor a boolean."""
    return type(value) in {int, float}
