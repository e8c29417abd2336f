"""Powers as Go computes them; their last digits differ from those of the C library."""

import math
from typing import Final

_HALF: Final = 0.5
_GREATEST: Final = 2.0**63


def power(left: float, right: float) -> float:
    """Return one number to the power of another."""
    if abs(right) == _HALF and left > 0:
        return math.sqrt(left) if right > 0 else 1 / math.sqrt(left)
    known = _of_c(left, right)
    if not known or not math.isfinite(known) or 1 in {left, right} or abs(right) >= _GREATEST:
        return known
    fraction, whole = math.modf(abs(right))
    if fraction > _HALF:
        fraction, whole = fraction - 1, whole + 1
    start = math.exp(fraction * math.log(left)) if fraction else 1.0
    number, shift = _raised(start, left, int(whole))
    try:
        return math.ldexp(1 / number, -shift) if right < 0 else math.ldexp(number, shift)
    except OverflowError:
        return known


def _raised(number: float, base: float, exponent: int) -> tuple[float, int]:
    """Return a number times a power, and the exponent of two by which to scale it."""
    square, doubled = math.frexp(base)
    shift = 0
    while exponent:
        if exponent & 1:
            number, shift = number * square, shift + doubled
        square, more = math.frexp(square * square)
        exponent, doubled = exponent >> 1, 2 * doubled + more
    return number, shift


def _of_c(left: float, right: float) -> float:
    """Return the power from the C library, which is right for special values."""
    try:
        return math.pow(left, right)
    except OverflowError:
        odd = right % 2 == 1
        return -math.inf if left < 0 and odd else math.inf
    except ValueError:
        # Zero to a negative power is infinite; a root of a negative number is NaN.
        odd = right % 2 == 1
        return math.nan if left else (math.copysign(math.inf, left) if odd else math.inf)
