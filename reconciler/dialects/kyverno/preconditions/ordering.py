"""``GreaterThan``, ``GreaterThanOrEquals``, ``LessThan`` and ``LessThanOrEquals``."""

from typing import Any

from reconciler.dialects.kyverno.preconditions.durations import Compare, duration_pair
from reconciler.engine.values import scalars


def compare_values(key: Any, value: Any, compare: Compare) -> bool:
    """Compare as durations, quantities, numbers or versions, whichever first fits the key.

    Durations come first, so ``5m`` is five minutes here, never five thousandths.
    """
    if scalars.is_number(key):
        return _compare_number(key, value, compare)
    if not isinstance(key, str):
        return False
    pair = duration_pair(key, value) or _quantity_pair(key, value)
    if pair is not None:
        return compare(*pair)
    number = scalars.parse_float(key)
    if number is not None:
        return _compare_number(number, value, compare)
    return _compare_versions(key, value, compare)


def _compare_number(key: float, value: Any, compare: Compare) -> bool:
    if scalars.is_number(value):
        return compare(key, value)
    if not isinstance(value, str):
        return False
    pair = duration_pair(key, value)
    if pair is not None:
        return compare(*pair)
    number = scalars.parse_float(value)
    return number is not None and compare(key, number)


def _quantity_pair(key: str, value: Any) -> tuple[int, int] | None:
    left = scalars.parse_quantity(key)
    if left is None or not isinstance(value, str):
        return None
    right = scalars.parse_quantity(value)
    return None if right is None else (left.nano, right.nano)


def _compare_versions(key: str, value: Any, compare: Compare) -> bool:
    left = scalars.parse_semver(key)
    if left is None or not isinstance(value, str):
        return False
    right = scalars.parse_semver(value)
    return right is not None and compare(left, right)
