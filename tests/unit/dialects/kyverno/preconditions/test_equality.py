from typing import Any

import pytest

from reconciler.dialects.kyverno.preconditions.equality import equals, not_equals
from reconciler.engine.values.wildcard import escape


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("1h", 3600),
        ("1h", "60m"),
        ("1Gi", "1024Mi"),
        (10, "10"),
        (11, "11.0"),
        (10, "1_0"),
        (1000, "1e3"),
        (10, 10.0),
        (1.5, "1.5"),
        ("nginx", "ng*"),
        ("", ""),
        (True, True),
        (["a", {"b": 1}], ["a", {"b": 1.0}]),
        ({}, {}),
        (escape("a*"), "a*"),
        ([escape("a*")], ["a*"]),
        ("a*", escape("a*")),
    ],
)
def test_values_are_equal(key: Any, value: Any) -> None:
    assert equals(key, value)
    assert not not_equals(key, value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("10", "1*"),
        ("10", 10),
        ("ng*", "nginx"),
        (3600, "1h"),
        (11, "10.5"),
        (10, "10 "),
        (10, 10.5),
        (True, 1),
        (1, True),
        (True, "true"),
        ([True], [1]),
        (["a", "b"], ["b", "a"]),
        ({"a": 1}, {"a": 1, "b": 2}),
        ([], {}),
        ("5", ""),
        ("abc", escape("a*")),
    ],
)
def test_values_are_not_equal(key: Any, value: Any) -> None:
    assert not equals(key, value)
    assert not_equals(key, value)


@pytest.mark.parametrize("value", [None, "", 0])
def test_null_is_neither_equal_nor_unequal(value: Any) -> None:
    assert not equals(None, value)
    assert not not_equals(None, value)
