"""Numbers as Go's strconv parses and formats them.

Policy languages whose originals are Go programs depend on it in templates and YAML values: on
which text is a number, and on the digits and the exponent with which a number is written.
"""

import math
import re
from decimal import Decimal
from itertools import pairwise
from typing import Final

INT64_MIN: Final = -(1 << 63)
INT64_MAX: Final = (1 << 63) - 1
UINT64_MAX: Final = (1 << 64) - 1

_PREFIXES: Final = {"0x": 16, "0b": 2, "0o": 8}
_DIGITS: Final = {
    2: re.compile(r"[01]+"),
    8: re.compile(r"[0-7]+"),
    10: re.compile(r"[0-9]+"),
    16: re.compile(r"[0-9a-fA-F]+"),
}
_LONGEST: Final = 400
"""Digits: more never fit into 64 bits, and parsing takes quadratic time."""
_DECIMAL: Final = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_HEXADECIMAL: Final = re.compile(
    r"[-+]?0[xX](?:[0-9a-fA-F]+(?:\.[0-9a-fA-F]*)?|\.[0-9a-fA-F]+)[pP][-+]?[0-9]+"
)
_SPECIAL: Final = re.compile(r"[-+]?inf(?:inity)?|nan", re.ASCII | re.IGNORECASE)
_WHOLE_DIGITS: Final = 6
"""Most digits before the point that %g writes without an exponent at shortest precision."""
_ZEROS: Final = -4


def parse_integer(text: str, base: int, *, low: int, high: int) -> int | None:
    """Parse an integer as ParseInt and ParseUint do; return None where they fail.

    Args:
        text: A sign is allowed only if `low` is negative.
        base: 0 allows a prefix (``0x``, ``0o``, ``0b``, ``0``) and underscores between digits.
        low: The smallest value; 0 for an unsigned number.
    """
    signed = text[:1] in {"+", "-"}
    if signed and not low:
        return None
    digits = text[1:] if signed else text
    if base == 0:
        if not _separates(digits):
            return None
        base, digits = _based(digits)
        digits = digits.replace("_", "")
    if len(digits) > _LONGEST or not _DIGITS[base].fullmatch(digits):
        return None
    value = -int(digits, base) if text[0] == "-" else int(digits, base)
    return value if low <= value <= high else None


def parse_int64(text: str, base: int = 0) -> int | None:
    """Parse a signed 64-bit integer; return None where the text is none."""
    return parse_integer(text, base, low=INT64_MIN, high=INT64_MAX)


def parse_uint64(text: str, base: int = 0) -> int | None:
    """Parse an unsigned 64-bit integer; return None where the text is none."""
    return parse_integer(text, base, low=0, high=UINT64_MAX)


def parse_float(text: str) -> float | None:
    """Parse a number as ParseFloat does; return None where it fails or overflows."""
    if _SPECIAL.fullmatch(text):
        return float(text)
    if not _separates(text.lstrip("+-")):
        return None
    digits = text.replace("_", "")
    try:
        if _DECIMAL.fullmatch(digits):
            value = float(digits)
        elif _HEXADECIMAL.fullmatch(digits):
            value = float.fromhex(digits)
        else:
            return None
    except OverflowError:
        return None
    return None if math.isinf(value) else value


def _based(digits: str) -> tuple[int, str]:
    base = _PREFIXES.get(digits[:2].lower())
    if base is not None:
        return base, digits[2:]
    return (8, digits[1:]) if digits[:1] == "0" and len(digits) > 1 else (10, digits)


def _separates(number: str) -> bool:
    """Return whether each underscore is between two digits, or a prefix and a digit."""
    if "_" not in number:
        return True
    prefix = number[:2].lower()
    if prefix in _PREFIXES:
        number = f"0{number[2:]}"
    digits = "0123456789abcdefABCDEF" if prefix == "0x" else "0123456789"
    parts = number.split("_")
    return all(
        before[-1:] in digits and after[:1] in digits and before and after
        for before, after in pairwise(parts)
    )


def format_float(value: float, form: str = "g", precision: int = -1) -> str:
    """Format a 64-bit float as FormatFloat does.

    Args:
        value: Any value, including infinity and NaN.
        form: One of ``e f g``.
        precision: Digits after the point, for ``g`` significant digits; -1 uses the fewest digits
            that parse back to the same value.
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if precision >= 0:
        return f"{value:.{precision}{form}}"
    negative, digits, point = shortest_digits(value)
    minus = "-" if negative else ""
    if form == "f" or (form == "g" and _ZEROS < point <= _WHOLE_DIGITS):
        return minus + plain_digits(digits, point)
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{minus}{digits[0]}{fraction}e{point - 1:+03d}"


def shortest_digits(value: float) -> tuple[bool, str, int]:
    """Return whether it is negative, its shortest digits, and how many precede the point."""
    sign, figures, exponent = Decimal(repr(value)).as_tuple()
    digits = "".join(map(str, figures))
    point = len(digits) + int(exponent)
    kept = digits.rstrip("0")
    return (bool(sign), kept, point) if kept else (bool(sign), "0", 1)


def plain_digits(digits: str, point: int) -> str:
    """Format digits without an exponent; `point` of them precede the point."""
    if point <= 0:
        return f"0.{'0' * -point}{digits}"
    if point >= len(digits):
        return digits + "0" * (point - len(digits))
    return f"{digits[:point]}.{digits[point:]}"
