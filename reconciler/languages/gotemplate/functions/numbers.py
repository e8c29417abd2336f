"""Conversion of numbers, arithmetic, and sequences of integers."""

import math
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal, DecimalException
from functools import partial
from typing import Any, Final

from reconciler.engine.values.gonumbers import (
    INT64_MAX,
    INT64_MIN,
    parse_float,
    parse_int64,
    parse_integer,
)
from reconciler.languages.gotemplate.limits import Run
from reconciler.languages.gotemplate.printing import text_of
from reconciler.languages.gotemplate.signature import (
    ANY,
    FLOAT,
    INT,
    STRING,
    Failure,
    Family,
    Function,
    family,
    function,
    plain,
)
from reconciler.languages.gotemplate.values import Int, Int64, Slice, deref, to_word, wrapped

_EXACT: Final = Context(prec=4_000, Emax=999_999, Emin=-999_999, rounding=ROUND_HALF_UP)
_QUOTIENT: Final = Decimal("1e-16")
_HUGE: Final = 10**400
_OPERAND: Final = 2_000
"""The steps that an operation on decimal numbers costs."""


def to_int64(value: Any) -> int:
    """Return a value as an integer of 64 bits; 0 if it cannot be converted."""
    value = deref(value)
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float | int) and not isinstance(value, Int):
        return to_word(float(value))
    if isinstance(value, Int):
        return wrapped(int(value)) if not hasattr(value, "text") else 0
    return (parse_int64(value) or 0) if isinstance(value, str) else 0


def to_int(value: Any) -> Int:
    """Return a value as an ``int``; 0 if it cannot be converted."""
    return Int(to_int64(value))


def to_float(value: Any) -> float:
    """Return a value as a float; 0 if it cannot be converted."""
    value = deref(value)
    if isinstance(value, str):
        number = parse_float(value)
        return 0.0 if number is None else number
    if isinstance(value, bool | int | float) and not hasattr(value, "text"):
        return float(value)
    return 0.0


def clamped(text: str) -> int:
    """Read a decimal integer, limited to 64 bits; 0 if the text is not an integer."""
    value = parse_integer(text, 10, low=-_HUGE, high=_HUGE)
    return max(INT64_MIN, min(INT64_MAX, value)) if value is not None else 0


def _to_decimal(run: Run, value: Any) -> Int64:
    """Read an octal number."""
    text = text_of(run, value)
    return Int64(parse_integer(text, 8, low=INT64_MIN, high=INT64_MAX) or 0)


def _add(*values: Any) -> Int64:
    return Int64(wrapped(sum(map(to_int64, values))))


def _mul(one: Any, *others: Any) -> Int64:
    product = to_int64(one)
    for other in others:
        product = wrapped(product * to_int64(other))
    return Int64(product)


def _divided(one: Any, other: Any) -> tuple[int, int]:
    dividend, divisor = to_int64(one), to_int64(other)
    if not divisor:
        raise Failure("a division by zero")
    quotient = abs(dividend) // abs(divisor)
    quotient = quotient if (dividend < 0) == (divisor < 0) else -quotient
    return quotient, dividend - quotient * divisor


def _most(choose: Callable[..., int]) -> Callable[..., Int64]:
    return lambda one, *others: Int64(
        choose(to_int64(one), *map(to_int64, others), INT64_MIN if choose is max else INT64_MAX)
    )


def _most_float(choose: Callable[..., float]) -> Callable[..., float]:
    def chosen(*values: Any) -> float:
        numbers = list(map(to_float, values))
        if choose(-math.inf, math.inf) in numbers:
            return choose(-math.inf, math.inf)  # before NaN
        if any(map(math.isnan, numbers)):
            return math.nan
        return choose(numbers, key=lambda number: (number, math.copysign(1, number)))

    return chosen


def _whole(rounded: Callable[[float], int], value: Any) -> float:
    number = to_float(value)
    whole = float(rounded(number)) if math.isfinite(number) else number
    return math.copysign(whole, number)  # zero keeps its sign, too


_floor = partial(_whole, math.floor)
_ceil = partial(_whole, math.ceil)


def _round(value: Any, places: int, *up_from: float) -> float:
    power = _power(places)
    digit = power * to_float(value)
    if not math.isfinite(digit):
        return digit / power if power else math.nan
    fraction = math.modf(digit)[0]
    rounded = _ceil(digit) if fraction >= (up_from[0] if up_from else 0.5) else _floor(digit)
    return rounded / power if power else math.copysign(math.inf, rounded) if rounded else math.nan


def _power(places: int) -> float:
    try:
        return 10.0 ** int(places)
    except OverflowError:
        return math.inf


def _decimally(combine: Callable[[Decimal, Decimal], Decimal]) -> Callable[..., float]:
    def calculated(run: Run, one: Any, *others: Any) -> float:
        result = _decimal(one)
        for other in others:
            run.spend(_OPERAND)
            try:
                result = combine(result, _decimal(other))
            except DecimalException as error:
                raise Failure("a division by zero, or a number of too many digits") from error
        return float(result) + 0.0  # the original has no negative zero

    return calculated


def _decimal(value: Any) -> Decimal:
    number = to_float(value)
    if not math.isfinite(number):
        raise Failure("its operands must be finite numbers")
    return Decimal(repr(number))


def _quotient(one: Decimal, other: Decimal) -> Decimal:
    return _EXACT.quantize(_EXACT.divide(one, other), _QUOTIENT)


_add_exactly = _decimally(_EXACT.add)


def _stepped(run: Run, start: int, stop: int, step: int) -> Slice:
    if (stop < start) != (step < 0) or not step:
        return Slice(element=INT)
    first, end, width = int(start), int(stop), int(step)
    # Calculated without len(), which fails for ranges beyond sys.maxsize.
    run.grow(-((first - end) // width))
    return Slice(map(Int, range(first, end, width)), INT)


def _seq(run: Run, *bounds: int) -> str:
    match len(bounds):
        case 1:
            start, end, step = 1, bounds[0], -1 if bounds[0] < 1 else 1
            last = end + step
        case 2:
            start, end = bounds
            step = -1 if end < start else 1
            last = end + step
        case 3:
            start, step, end = bounds
            if end < start and step > 0:
                return ""
            last = end + (-1 if end < start else 1)
        case _:
            return ""
    return " ".join(map(str, map(int, _stepped(run, start, wrapped(last), step))))


def _decimals(combine: Callable[[Decimal, Decimal], Decimal]) -> Function:
    return function(_decimally(combine), ANY, rest=ANY)


FUNCTIONS: Family = family(
    {
        "int": plain(to_int, ANY),
        "int64": plain(lambda value: Int64(to_int64(value)), ANY),
        "float64": plain(to_float, ANY),
        "atoi": plain(lambda text: Int(clamped(text)), STRING),
        "toDecimal": function(_to_decimal, ANY),
        "add1": plain(lambda value: _add(value, Int(1)), ANY),
        "add": plain(_add, rest=ANY),
        "sub": plain(lambda one, other: Int64(wrapped(to_int64(one) - to_int64(other))), ANY, ANY),
        "mul": plain(_mul, ANY, rest=ANY),
        "div": plain(lambda one, other: Int64(wrapped(_divided(one, other)[0])), ANY, ANY),
        "mod": plain(lambda one, other: Int64(_divided(one, other)[1]), ANY, ANY),
        "max": plain(_most(max), ANY, rest=ANY),
        "min": plain(_most(min), ANY, rest=ANY),
        "maxf": plain(_most_float(max), ANY, rest=ANY),
        "minf": plain(_most_float(min), ANY, rest=ANY),
        "floor": plain(_floor, ANY),
        "ceil": plain(_ceil, ANY),
        "round": plain(_round, ANY, INT, rest=FLOAT),
        "add1f": function(lambda run, value: _add_exactly(run, value, 1.0), ANY),
        "addf": function(lambda run, *values: _add_exactly(run, 0.0, *values), rest=ANY),
        "subf": _decimals(_EXACT.subtract),
        "mulf": _decimals(_EXACT.multiply),
        "divf": _decimals(_quotient),
        "until": function(lambda run, count: _stepped(run, 0, count, -1 if count < 0 else 1), INT),
        "untilStep": function(_stepped, INT, INT, INT),
        "seq": function(_seq, rest=INT),
    },
    biggest="max",
)
