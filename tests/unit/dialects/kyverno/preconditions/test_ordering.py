from typing import Any

import pytest

from reconciler.dialects.kyverno.preconditions.operators import OPERATORS


def holds(key: Any, operator: str, value: Any) -> bool:
    return OPERATORS[operator](key, value)


@pytest.mark.parametrize(
    ("smaller", "larger"),
    [
        (1, 2),
        (1, 1.5),
        ("1.9.3", "1.10.0"),
        ("5m", 600),
        ("9s", 10),
        (9, "10s"),
        ("1Gi", "2048Mi"),
        ("1", "2.5"),
        ("1.5", 2),
        (1, "1e3"),
        (1, "1_0.5"),
        ("1_0.5", 11),
        (1, "inf"),
        ("1.0.0-rc.1", "1.0.0"),
    ],
)
def test_numbers_quantities_durations_and_versions_are_ordered(smaller: Any, larger: Any) -> None:
    assert holds(smaller, "LessThan", larger)
    assert holds(smaller, "LessThanOrEquals", larger)
    assert not holds(smaller, "GreaterThan", larger)
    assert holds(larger, "GreaterThan", smaller)
    assert holds(larger, "GreaterThanOrEquals", smaller)
    assert holds(larger, "GreaterThanOrEquals", larger)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("v1.2.3", "1.0.0"),
        ("1.2.3", 1),
        ("1.2.3", "1.0"),
        (True, 0),
        ([1], 0),
        (None, 0),
        (1, True),
        (1, "abc"),
        (1, "1Ki"),
        ("1", []),
        ("abc", "abd"),
    ],
)
def test_values_that_cannot_be_compared_are_not_ordered(key: Any, value: Any) -> None:
    assert not any(holds(key, name, value) for name in OPERATORS if name.endswith("Than"))


def test_durations_come_before_quantities_and_quantities_before_versions() -> None:
    assert not holds("500m", "LessThan", 1)
    assert not holds("1.10", "GreaterThan", "1.9")


@pytest.mark.parametrize(
    ("key", "value", "wanted"),
    [
        ("2m", 60, True),
        (120.9, "2m", False),
        ("0", -1, True),
        ("2m", "x", False),
        ("x", 1, False),
        (True, 0, False),
        (120, True, False),
    ],
)
def test_deprecated_duration_operators_compare_durations(
    key: Any, value: Any, wanted: bool
) -> None:
    assert holds(key, "DurationGreaterThan", value) is wanted
