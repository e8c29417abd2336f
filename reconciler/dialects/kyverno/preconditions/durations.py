"""Durations in conditions, where numbers are seconds, and the deprecated ``Duration*`` family."""

from collections.abc import Callable
from math import isfinite
from typing import Any

from reconciler.engine.values import scalars

Compare = Callable[[Any, Any], bool]


def duration_pair(key: Any, value: Any) -> tuple[int, int] | None:
    """Return both sides in nanoseconds when one is written as a duration, else None.

    The text ``0`` is not a duration here, so that the caller compares it as a number.
    """
    if (not isinstance(key, str) and not isinstance(value, str)) or "0" in (key, value):
        return None
    left = _span(key)
    right = None if left is None else _span(value)
    return None if left is None or right is None else (left, right)


def compare_durations(key: Any, value: Any, compare: Compare) -> bool:
    """Compare two durations; a side that is not a duration makes the condition false."""
    left, right = _span(key), _span(value)
    return left is not None and right is not None and compare(left, right)


def _span(value: Any) -> int | None:
    if isinstance(value, str):
        return scalars.parse_duration(value)
    # YAML has the values .inf and .nan, which are no durations.
    return int(value) * scalars.SECOND if scalars.is_number(value) and isfinite(value) else None
