"""Values as Go's ``%v`` prints them, for the policy languages whose originals are Go programs.

All numbers of a JSON document are floating-point numbers there.
"""

import math
from typing import Any, Final

_LOWEST: Final = -4
_HIGHEST: Final = 5
"""Decimal exponents from and up to which a number is written without one."""


def go_text(value: Any) -> str:
    """Return the text of a JSON value; the keys of maps are sorted."""
    match value:
        case str():
            return str(value)
        case None:
            return "<nil>"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return go_number(value)
        case dict():
            pairs = (f"{key}:{go_text(value[key])}" for key in sorted(value))
            return f"map[{' '.join(pairs)}]"
        case list() | tuple():
            return f"[{' '.join(map(go_text, value))}]"
        case _:
            return str(value)


def go_number(value: float) -> str:
    """Return the shortest text of a float64: 80 is ``80``, a million is ``1e+06``."""
    number = float(value)
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    mantissa, _, exponent = f"{number!r}".partition("e")
    sign, digits = ("-", mantissa[1:]) if mantissa.startswith("-") else ("", mantissa)
    whole, _, fraction = digits.partition(".")
    point = len(whole) + int(exponent or 0)
    digits = (whole + fraction).lstrip("0")
    point -= len(whole + fraction) - len(digits)
    digits = digits.rstrip("0")
    if not digits:
        return f"{sign}0"
    return sign + _laid_out(digits, point)


def _laid_out(digits: str, point: int) -> str:
    """Write digits with the point after so many of them; it may lie outside of them."""
    exponent = point - 1
    if not _LOWEST <= exponent <= _HIGHEST:
        rest = f".{digits[1:]}" if len(digits) > 1 else ""
        return f"{digits[0]}{rest}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"
    if point <= 0:
        return f"0.{'0' * -point}{digits}"
    if point >= len(digits):
        return digits + "0" * (point - len(digits))
    return f"{digits[:point]}.{digits[point:]}"
