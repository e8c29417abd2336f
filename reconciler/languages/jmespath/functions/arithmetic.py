"""Functions on numbers."""

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from reconciler.errors import EvaluationError
from reconciler.languages.jmespath.functions.signature import (
    NUMBER,
    OUT_OF_BOUNDS,
    Function,
    Refused,
    extension,
)
from reconciler.languages.jmespath.limits import Run
from reconciler.languages.jmespath.values import bounded

NOT_WHOLE_DIGITS = "Non-integer argument(s) passed for round off"

_EXACT = 1 << 53  # beyond this, a float has no digits after the point
_INT64 = 1 << 63
_MOST_PLACES = 300
_WITH_EXPONENT = 10**6


def whole_number(number: float) -> int:
    """Return a number that must be a 64-bit integer.

    Raises:
        EvaluationError: The number is not such an integer.
    """
    if not math.isfinite(number) or number != math.trunc(number):
        raise EvaluationError(f"expected an integer number but got: {_shown(number)}")
    if not -_INT64 <= number < _INT64:
        raise EvaluationError(f"number is outside the range of integer numbers: {_shown(number)}")
    return int(number)


def _shown(number: float) -> str:
    """Return a number as Go writes it: ``1.5``, ``1.2345675e+06``, ``NaN``, ``-Inf``."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    if abs(number) < _WITH_EXPONENT:
        return repr(number)
    digits = Decimal(repr(float(number))).normalize().as_tuple().digits
    return f"{number:.{len(digits) - 1}e}"


def tidy(number: float) -> float:
    """Return a result as an integer where it is whole, so that it is written as one.

    Raises:
        ValueError: The result is out of range.
    """
    number = bounded(number)
    whole = abs(number) < _EXACT and float(number).is_integer()
    return int(number) if whole else number


def _ceil(_run: Run, number: float) -> float:
    return bounded(math.ceil(_finite(number)))


def _floor(_run: Run, number: float) -> float:
    return bounded(math.floor(_finite(number)))


def _avg(run: Run, numbers: list[float]) -> Any:
    run.spend(len(numbers))
    if not numbers:
        return None
    try:
        return math.fsum(numbers) / len(numbers)
    except OverflowError:
        raise EvaluationError("avg: the numbers are too large") from None


def _round(_run: Run, number: float, digits: float) -> float:
    """Round half away from zero, with the calculation of the reference."""
    try:
        places = whole_number(digits)
    except EvaluationError:
        raise Refused(NOT_WHOLE_DIGITS) from None
    if places < 0:
        raise Refused(OUT_OF_BOUNDS.format(places, 0))
    if isinstance(number, int) or abs(number) >= _EXACT:
        return number
    shift = 10.0 ** min(places, _MOST_PLACES)
    scaled = abs(number) * shift
    if scaled >= _EXACT:
        return tidy(number)
    whole = math.floor(scaled)
    whole += scaled - whole >= 0.5  # noqa: PLR2004 - the half
    return tidy(math.copysign(whole / shift, number))


def _finite(number: float) -> float:
    if not math.isfinite(number):
        raise EvaluationError("the number is not finite")
    return number


FUNCTIONS: Mapping[str, Function] = {
    "abs": Function(call=lambda _run, number: abs(number), takes=(NUMBER,)),
    "avg": Function(call=_avg, takes=(("array[number]",),)),
    "ceil": Function(call=_ceil, takes=(NUMBER,)),
    "floor": Function(call=_floor, takes=(NUMBER,)),
    "round": extension(_round, NUMBER, NUMBER),
}
