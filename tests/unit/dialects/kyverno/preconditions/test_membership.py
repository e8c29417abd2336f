from typing import Any

import pytest

from reconciler.dialects.kyverno.preconditions.membership import (
    all_in,
    all_not_in,
    any_in,
    any_not_in,
    in_,
    not_in,
)
from reconciler.engine.values.wildcard import escape


def answers(key: Any, value: Any) -> tuple[bool, bool, bool, bool]:
    return (
        any_in(key, value),
        all_in(key, value),
        any_not_in(key, value),
        all_not_in(key, value),
    )


INVALID = (False, False, False, False)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("a", ["b", "a"]),
        (5, ["5"]),
        (True, ["true"]),
        ("kube-system", ["kube-*"]),
        ("*", ["zzz"]),
        ("abc", "a*"),
        ("a", "a"),
        ("512Mi", "256Mi-1Gi"),
        (7, "1-10"),
        ("a", '["a", "b"]'),
    ],
)
def test_a_scalar_is_in_the_list_range_or_pattern(key: Any, value: Any) -> None:
    assert answers(key, value) == (True, True, False, False)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("a", ["b"]),
        ("a", []),
        ("11", "1-10"),
        ("x1", '["x*"]'),
        ("a", "null"),
        ("a", "b"),
        ("a", "[broken"),
        (escape("*"), ["zzz"]),
        ("zzz", [escape("z*")]),
    ],
)
def test_a_scalar_is_not_in_the_list_range_or_pattern(key: Any, value: Any) -> None:
    assert answers(key, value) == (False, False, True, True)


@pytest.mark.parametrize("value", ["6", "true", "{}", "[1]", '[["a"]]', 5, True, None, {"a": 1}])
def test_a_value_that_cannot_be_searched_is_false_for_all(value: Any) -> None:
    assert answers("x", value) == INVALID


@pytest.mark.parametrize("key", [None, {}, {"a": 1}])
def test_a_key_that_cannot_be_searched_for_is_false_for_all(key: Any) -> None:
    assert answers(key, ["a"]) == INVALID


@pytest.mark.parametrize(
    ("key", "value", "wanted"),
    [
        (["a", "b"], ["b", "c"], (True, False, True, False)),
        (["a", "b"], ["a", "b", "c"], (True, True, False, False)),
        (["a"], ["b"], (False, False, True, True)),
        (["NET_ADMIN"], '["NET_*"]', (True, True, False, False)),
        (["a"], "a", (True, True, False, False)),
        (["a", "b"], "a", (True, False, True, False)),
        ([1, 5], "0-10", (True, True, False, False)),
        ([1, 5, 11], "0-10", (True, False, True, False)),
        ([2, 6], "5-10", (True, False, True, False)),
        ([-2, 6], "-5-5", (True, False, True, False)),
        ([5], 5, (True, False, False, False)),
        ([5], "[5]", INVALID),
        (["a"], None, INVALID),
        (["a"], {}, INVALID),
        ([], ["a"], (False, True, False, True)),
        (["x"], "1-2", (False, False, False, True)),
        (["x", 1], "1-2", (True, False, False, False)),
    ],
)
def test_each_operator_compares_a_list_with_the_value(
    key: Any, value: Any, wanted: tuple[bool, bool, bool, bool]
) -> None:
    assert answers(key, value) == wanted


@pytest.mark.parametrize(
    ("key", "value", "found", "missing"),
    [
        ("a", ["a*"], True, False),
        ("abc", "a*", True, False),
        ("a", '["a"]', True, False),
        ("a", '["b"]', False, True),
        ("5", "1-10", False, False),
        ("a", "b", False, False),
        (["a"], ["a", "b"], True, False),
        (["a", "c"], ["a", "b"], False, True),
        (["a*"], ["ab"], False, True),
        (["a"], "a", True, True),
        (["a", "b"], '["a", "b"]', True, False),
        (["a"], "b", False, False),
        ([1], ["1"], False, False),
        (["a"], ["a", 1], False, False),
        (["a"], 5, False, False),
        (None, ["a"], False, False),
    ],
)
def test_deprecated_operators_in_and_not_in_behave_as_in_kyverno(
    key: Any, value: Any, found: bool, missing: bool
) -> None:
    assert (in_(key, value), not_in(key, value)) == (found, missing)


def test_hostile_json_is_not_read_as_a_list() -> None:
    assert not any_in("a", "[" * 100_000)
    assert not any_in("a", "[" + "1" * 10_000 + "]")
