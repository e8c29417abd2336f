"""Durations in conditions: numbers count as seconds; the ``Duration*`` family (deprecated)."""

from collections.abc import Callable
from math import isfinite
from typing import Any

from reconciler.engine.values import scalars

Compare = Callable[[Any, Any], bool]


def duration_pair(key: Any, value: Any) -> tuple[int, int] | None:
    """Read both sides as nanoseconds when one of them is written as a duration.

    The text ``0`` is not taken for a duration, so that it stays a number elsewhere.
    """
    if (not isinstance(key, str) and not isinstance(value, str)) or "0" in (key, value):
        return None
    left = _span(key)
    right = None if left is None else _span(value)
    return None if left is None or right is None else (left, right)


def compare_durations(key: Any, value: Any, compare: Compare) -> bool:
    """Compare two durations; a side that is none makes the condition false."""
    left, right = _span(key), _span(value)
    return left is not None and right is not None and compare(left, right)


def _span(value: Any) -> int | None:
    if isinstance(value, str):
        return scalars.parse_duration(value)
    # YAML has numbers that are none: .inf and .nan.
    return int(value) * scalars.SECOND if scalars.is_number(value) and isfinite(value) else None
