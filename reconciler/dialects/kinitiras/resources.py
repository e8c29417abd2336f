"""Amounts of resources, and shares of them."""

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, Final

from reconciler.engine import reading
from reconciler.engine.values.gonumbers import parse_float
from reconciler.engine.values.scalars import Quantity, format_quantity, parse_quantity
from reconciler.errors import EvaluationError, InvalidPolicy

_SHARED: Final = frozenset({"cpu", "memory", "storage", "ephemeral-storage"})
"""The resources that an oversell of ``origin`` scales; the original ignores all others."""
CPU: Final = "cpu"
_MILLI: Final = 10**6
"""Billionths in a thousandth."""
_ONE: Final = 10**9


def read_resources(raw: Any, location: str) -> dict[str, dict[str, str]]:
    """Read requests and limits.

    Raises:
        InvalidPolicy: A field is unknown, or an amount is not a quantity.
    """
    fields = reading.mapping(raw, location, allowed=("requests", "limits"))
    return {
        part: {
            name: _amount(amount, f"{location}.{part}.{name}")
            for name, amount in reading.object_at(amounts, f"{location}.{part}").items()
        }
        for part, amounts in fields.items()
    }


def _amount(raw: Any, location: str) -> str:
    if parse_quantity(str(raw)) is None:
        raise InvalidPolicy(location, "expected a quantity, as 500m or 1Gi")
    return str(raw)


def read_factor(raw: Any, location: str) -> float:
    """Read a factor between 0 and 1.

    Raises:
        InvalidPolicy: The value is not a number, or outside of these bounds.
    """
    value = _number(raw)
    if value is None or not 0 < value < 1:
        raise InvalidPolicy(location, 'expected a number between 0 and 1, as "0.5"')
    return value


def read_ratio(raw: Any, location: str) -> float:
    """Read a factor that may also be 0, 1 or greater.

    Raises:
        InvalidPolicy: The value is not a number, negative, or infinite.
    """
    value = _number(raw)
    if value is None or not 0 <= value < math.inf:
        raise InvalidPolicy(location, 'expected a factor, as "0.5"')
    return value


def _number(raw: Any) -> float | None:
    is_number = isinstance(raw, str | int | float) and not isinstance(raw, bool)
    return parse_float(str(raw)) if is_number else None


def _nearest(units: Fraction) -> int:
    """Round as the original does; Python would round halves to even numbers."""
    return math.floor(units + Fraction(1, 2))


def share(
    name: str, amount: Any, factor: float, *, to_whole: Callable[[Fraction], int] = _nearest
) -> str:
    """Return a share of an amount, in thousandths for CPU, else in whole units.

    Raises:
        EvaluationError: The amount is not a quantity.
    """
    quantity = parse_quantity(str(amount))
    if quantity is None:
        raise EvaluationError(f"the amount of {name} is not a quantity").bare(
            "an amount is not a quantity"
        )
    step = _MILLI if name == CPU else _ONE
    # The factor counts in its decimal form: 0.1 is exactly a tenth.
    units = to_whole(quantity.nano * Fraction(str(factor)) / step)
    if name == CPU:
        return f"{units}m"
    return format_quantity(Quantity(nano=units * _ONE, format="BinarySI"))


def scaled(amounts: Mapping[str, Any], factors: Mapping[str, float]) -> dict[str, str]:
    """Return the shares of the amounts with a factor, rounded down.

    Amounts of 0, and resources other than CPU, memory and storage, are not scaled.
    """
    return {
        name: share(name, amounts[name], factor, to_whole=math.floor)
        for name, factor in factors.items()
        if name in _SHARED and str(amounts.get(name) or "0") != "0"
    }
