"""``Equals`` and ``NotEquals``: the type of the key decides how the two sides are compared."""

from typing import Any

from reconciler.dialects.kyverno.preconditions.durations import duration_pair
from reconciler.engine.values import scalars, wildcard


def equals(key: Any, value: Any) -> bool:
    """Return whether key and value are equal; only the value may have wildcards."""
    return _equal(key, value) is True


def not_equals(key: Any, value: Any) -> bool:
    """Return whether key and value differ; a null key neither equals nor differs from anything."""
    return _equal(key, value) is False


def _equal(key: Any, value: Any) -> bool | None:
    match key:
        case str():
            return _equal_text(key, value)
        case bool():
            return key is value
        case int() | float():
            return _equal_number(key, value)
        case dict() | list():
            return isinstance(value, type(key)) and _same(key, value)
        case _:
            return None


def _equal_number(key: float, value: Any) -> bool:
    if scalars.is_number(value):
        return key == value
    # All numbers of a condition are floating-point ones there, so 10 equals "10.0".
    return isinstance(value, str) and float(key) == scalars.parse_float(value)


def _equal_text(key: str, value: Any) -> bool:
    pair = duration_pair(key, value)
    if pair is not None:
        return pair[0] == pair[1]
    if not isinstance(value, str):
        return False
    amount = scalars.parse_quantity(key)
    if amount is None:
        return wildcard.matches(value, key)
    other = scalars.parse_quantity(value)
    return other is not None and amount.nano == other.nano


def _same(left: Any, right: Any) -> bool:
    """Return whether JSON values are equal; true is not 1 here, and escaped text is unescaped."""
    match left, right:
        case dict(), dict():
            return left.keys() == right.keys() and all(
                _same(item, right[key]) for key, item in left.items()
            )
        case list(), list():
            return len(left) == len(right) and all(
                _same(mine, theirs) for mine, theirs in zip(left, right, strict=True)
            )
        case str(), str():
            return wildcard.literal(left) == wildcard.literal(right)
        case _:
            return isinstance(left, bool) is isinstance(right, bool) and bool(left == right)
