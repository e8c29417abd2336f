"""Scalar values in the formats of Kubernetes and Go: durations, quantities, versions, numbers."""

import json
import re
from dataclasses import dataclass
from typing import Any, Literal, TypeGuard

from reconciler.engine.values import gonumbers

SECOND = 1_000_000_000

_UNITS = {
    "ns": 1,
    "us": 1_000,
    "\u00b5s": 1_000,
    "\u03bcs": 1_000,
    "ms": 1_000_000,
    "s": SECOND,
    "m": 60 * SECOND,
    "h": 3600 * SECOND,
}
_PART = r"([0-9]{0,20})(?:\.([0-9]{0,30}))?(ns|us|\u00b5s|\u03bcs|ms|s|m|h)"
_DURATION = re.compile(rf"([+-]?)((?:(?=[0-9.]){_PART})+)")
_DURATION_PART = re.compile(_PART)
_INT64 = 1 << 63

_QUANTITY = re.compile(
    r"([+-]?)([0-9]{0,60})(?:\.([0-9]{0,60}))?"
    r"(?:([numkMGTPE]?)|([KMGTPE]i)|[eE]([+-]?[0-9]{1,6}))"
)
_DECIMAL = {
    "n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18,
}  # fmt: skip
_DECIMAL_SUFFIXES = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_BINARY_SUFFIXES = ("", *_BINARY)
_KIBI = 1024
_NANO_DIGITS = 9
_MAX_EXPONENT = 60

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")

_SEMVER = re.compile(
    r"(0|[1-9][0-9]{0,19})\.(0|[1-9][0-9]{0,19})\.(0|[1-9][0-9]{0,19})"
    r"(?:-((?:0|[1-9][0-9]{0,19}|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
    r"(?:\.(?:0|[1-9][0-9]{0,19}|[0-9]*[A-Za-z-][0-9A-Za-z-]*))*))?"
    r"(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)

QuantityFormat = Literal["DecimalSI", "BinarySI", "DecimalExponent"]
SemverKey = tuple[int, int, int, int, tuple[tuple[int, int, str], ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """An amount in billionths, the finest that Kubernetes stores, and its notation.

    Attributes:
        nano: The amount.
        format: The family of its suffix.
        places: Decimal places of the notation; negative where it ends in that many zeros.
    """

    nano: int
    format: QuantityFormat
    places: int = 0


def parse_duration(value: str) -> int | None:
    """Parse a Go duration (``1h30m``), which has no days, as nanoseconds; None when it is none."""
    if value in ("0", "+0", "-0"):
        return 0
    found = _DURATION.fullmatch(value)
    if found is None:
        return None
    total = 0
    for whole, fraction, unit in _DURATION_PART.findall(found[2]):
        if not whole and not fraction:
            return None
        size = _UNITS[unit]
        total += int(whole or 0) * size
        if fraction:
            total += int(fraction) * size // 10 ** len(fraction)
    if found[1] == "-":
        total = -total
    return total if -_INT64 <= total < _INT64 else None


def format_duration(nanoseconds: int) -> str:
    """Format a duration as Go does: ``1h0m1.5s``, ``250ms``, ``0s``."""
    sign, rest = ("-" if nanoseconds < 0 else ""), abs(nanoseconds)
    if 0 < rest < SECOND:
        unit = next(unit for unit in ("ms", "\u00b5s", "ns") if rest >= _UNITS[unit])
        return f"{sign}{_decimal(rest, _UNITS[unit])}{unit}"
    minutes, rest = divmod(rest, _UNITS["m"])
    hours, minutes = divmod(minutes, 60)
    larger = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{sign}{larger}{_decimal(rest, SECOND)}s"


def _decimal(amount: int, unit: int) -> str:
    whole, rest = divmod(amount, unit)
    fraction = str(rest).zfill(len(str(unit)) - 1).rstrip("0") if rest else ""
    return f"{whole}.{fraction}" if fraction else str(whole)


def format_quantity(quantity: Quantity) -> str:
    """Format a quantity as Kubernetes does, with the largest suffix without loss of precision.

    Binary suffixes are kept only for whole amounts of 1024 and more.
    """
    one = 10**_NANO_DIGITS
    whole, rest = divmod(quantity.nano, one)
    if quantity.format == "BinarySI" and not rest and abs(whole) >= _KIBI:
        step = 0
        while whole % _KIBI == 0 and step < len(_BINARY):
            whole, step = whole // _KIBI, step + 1
        return f"{whole}{_BINARY_SUFFIXES[step]}"
    amount, exponent = quantity.nano, -_NANO_DIGITS
    if not amount:
        return "0"
    scientific = quantity.format == "DecimalExponent"
    while amount % 1000 == 0 and (scientific or exponent + 3 in _DECIMAL_SUFFIXES):
        amount, exponent = amount // 1000, exponent + 3
    if scientific:
        return f"{amount}e{exponent}" if exponent else str(amount)
    return f"{amount}{_DECIMAL_SUFFIXES[exponent]}"


def parse_quantity(value: str) -> Quantity | None:
    """Parse a Kubernetes quantity (``500m``, ``1Gi``, ``1e3``); return None when it is none.

    As in Kubernetes, amounts finer than a billionth are rounded away from zero.
    """
    found = _QUANTITY.fullmatch(value)
    if found is None:
        return None
    sign, whole, fraction, decimal, binary, exponent = found.groups()
    digits = whole + (fraction or "")
    if not digits:
        return None
    format_: QuantityFormat = "DecimalSI"
    scale, factor = _NANO_DIGITS - len(fraction or ""), 1
    if binary:
        format_, factor = "BinarySI", 1 << _BINARY[binary]
    elif exponent is not None:
        format_ = "DecimalExponent"
        scale += max(-_MAX_EXPONENT, min(_MAX_EXPONENT, int(exponent)))
    else:
        scale += _DECIMAL[decimal]
    amount = int(digits) * factor
    nano = amount * 10**scale if scale >= 0 else -(-amount // 10**-scale)
    places = _NANO_DIGITS if binary and fraction else min(_NANO_DIGITS - scale, _NANO_DIGITS)
    return Quantity(nano=-nano if sign == "-" else nano, format=format_, places=places)


def parse_semver(value: str) -> SemverKey | None:
    """Parse a strict ``MAJOR.MINOR.PATCH[-pre][+build]`` into a key that orders versions."""
    found = _SEMVER.fullmatch(value)
    if found is None:
        return None
    major, minor, patch, pre = found.groups()
    identifiers = tuple(
        (0, int(part), "") if part.isdigit() else (1, 0, part)
        for part in (pre.split(".") if pre else ())
    )
    return int(major), int(minor), int(patch), 0 if pre else 1, identifiers


def parse_int(value: str) -> int | None:
    """Parse a base-10 integer that fits into 64 bits, without blanks or underscores."""
    if _INTEGER.fullmatch(value) is None:
        return None
    number = int(value)
    return number if -_INT64 <= number < _INT64 else None


parse_float = gonumbers.parse_float


def is_number(value: Any) -> TypeGuard[int | float]:
    """Return whether a JSON value is a number; booleans are not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def text(value: Any) -> str:
    """Return a value as the text for comparisons: integral numbers in plain decimal."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case float():
            return str(int(value)) if value.is_integer() else repr(value)
        case int():
            return str(value)
        case _:
            return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
