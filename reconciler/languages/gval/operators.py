"""Operators as in gval 1.0.1, which tries the exact types of operands before conversions."""

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

from reconciler.languages.gotemplate.values import to_word, wrapped
from reconciler.languages.gval.powers import power
from reconciler.languages.gval.values import Failure, same, text_of, to_number

Operation = Callable[[Any, Any], Any]

PRECEDENCES: Final[Mapping[str, int]] = {
    "??": 0,
    "||": 20,
    "&&": 21,
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">=", "=~", "!~", "in"), 40),
    **dict.fromkeys(("^", "&", "|"), 60),
    **dict.fromkeys(("<<", ">>"), 90),
    **dict.fromkeys(("+", "-"), 120),
    **dict.fromkeys(("*", "/", "%"), 150),
    "**": 200,
}
"""The precedence of each operator; operators with equal ones associate to the left."""

REGEX: Final = frozenset({"=~", "!~"})

_WORD: Final = 1 << 64


def _equals(left: Any, right: Any) -> bool:
    one, other = to_number(left), to_number(right)
    if one is not None and other is not None:
        return one == other
    return same(left, right)


def _differs(left: Any, right: Any) -> bool:
    return not _equals(left, right)


def _ordering(compare: Callable[[Any, Any], bool], sign: str) -> Operation:
    def evaluate(left: Any, right: Any) -> bool:
        if isinstance(left, str) and isinstance(right, str):
            return compare(left, right)
        one, other = to_number(left), to_number(right)
        if one is not None and other is not None:
            return compare(one, other)
        return compare(*_texts(left, right, sign))

    return evaluate


def _plus(left: Any, right: Any) -> Any:
    if isinstance(left, str) and isinstance(right, str):
        return left + right
    one, other = to_number(left), to_number(right)
    if one is not None and other is not None:
        return one + other
    return "".join(_texts(left, right, "+"))


def _texts(left: Any, right: Any, sign: str) -> tuple[str, str]:
    if left is None or right is None:
        raise Failure(f"null has no {sign}")
    return text_of(left), text_of(right)


def _arithmetic(compute: Callable[[float, float], float], sign: str) -> Operation:
    def evaluate(left: Any, right: Any) -> float:
        one, other = to_number(left), to_number(right)
        if one is None or other is None:
            raise Failure(f"both sides of {sign} have to be numbers")
        return compute(one, other)

    return evaluate


def _quotient(left: float, right: float) -> float:
    if right:
        return left / right
    if not left or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def _remainder(left: float, right: float) -> float:
    if not right or math.isinf(left) or math.isnan(left) or math.isnan(right):
        return math.nan
    return math.fmod(left, right)


def _bits(compute: Callable[[int, int], int]) -> Callable[[float, float], float]:
    return lambda left, right: float(wrapped(compute(to_word(left), to_word(right))))


def _shift_left(left: int, right: int) -> int:
    places = right % _WORD
    return left << places if places < _WORD.bit_length() else 0


def _shift_right(left: int, right: int) -> int:
    return left >> min(right % _WORD, _WORD.bit_length())


def _is_in(left: Any, right: Any) -> bool:
    if not isinstance(right, list):
        raise Failure("the right side of in has to be a list")
    return any(same(left, item) for item in right)


def _both(left: Any, right: Any) -> bool:
    return all(_truths(left, right, "&&"))


def _either(left: Any, right: Any) -> bool:
    return any(_truths(left, right, "||"))


def _truths(left: Any, right: Any, sign: str) -> tuple[bool, bool]:
    if isinstance(left, bool) and isinstance(right, bool):
        return left, right
    raise Failure(f"both sides of {sign} have to be true or false")


def _coalesce(left: Any, right: Any) -> Any:
    return right if left is None or left is False else left


INFIX: Final[Mapping[str, Operation]] = {
    "==": _equals,
    "!=": _differs,
    "<": _ordering(operator.lt, "<"),
    "<=": _ordering(operator.le, "<="),
    ">": _ordering(operator.gt, ">"),
    ">=": _ordering(operator.ge, ">="),
    "+": _plus,
    "-": _arithmetic(operator.sub, "-"),
    "*": _arithmetic(operator.mul, "*"),
    "/": _arithmetic(_quotient, "/"),
    "%": _arithmetic(_remainder, "%"),
    "**": _arithmetic(power, "**"),
    "^": _arithmetic(_bits(operator.xor), "^"),
    "&": _arithmetic(_bits(operator.and_), "&"),
    "|": _arithmetic(_bits(operator.or_), "|"),
    "<<": _arithmetic(_bits(_shift_left), "<<"),
    ">>": _arithmetic(_bits(_shift_right), ">>"),
    "in": _is_in,
    "&&": _both,
    "||": _either,
    "??": _coalesce,
}
"""The function of each operator, except those with regular expressions (see `build`)."""

DECIDED: Final[Mapping[str, Callable[[Any], bool]]] = {
    "&&": lambda left: left is False,
    "||": lambda left: left is True,
    "??": lambda left: left is not None and left is not False,
}
"""Whether the left operand is the result, so that the right one is not evaluated."""


def _not(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Failure("the operand of ! has to be true or false")
    return not value


def _of_number(compute: Callable[[float], float], sign: str) -> Callable[[Any], float]:
    def evaluate(value: Any) -> float:
        number = to_number(value)
        if number is None:
            raise Failure(f"the operand of {sign} has to be a number")
        return compute(number)

    return evaluate


PREFIX: Final[Mapping[str, Callable[[Any], Any]]] = {
    "!": _not,
    "-": _of_number(operator.neg, "-"),
    "~": _of_number(lambda number: float(~to_word(number)), "~"),
}
