from typing import Any

import pytest

from reconciler.dialects.kyverno.pattern import (
    AnchorKind,
    in_range,
    is_range,
    match_pattern,
    matches,
    parse_anchor,
)


@pytest.mark.parametrize(
    ("value", "pattern"),
    [
        (5, ">=5"),
        ("2Gi", ">1Gi & <3Gi"),
        ("prod", "dev|prod"),
        ("prod", " dev | pr* "),
        ("90s", "1m-2m"),
        (5, "1-10"),
        (11, "1!-10"),
        ("nginx", "!apache"),
        ("3", 3),
        ("3.5", 3.5),
        (3.0, 3),
        (True, True),
        (True, "true"),
        (None, None),
        ("", None),
        (0, None),
        (False, None),
        (None, "0"),
        ({}, {"any": "map"}),
        ("5", "!1-10"),
        ("x", "x"),
        ("a|b", "a|b"),
    ],
)
def test_a_scalar_matches_its_pattern(value: Any, pattern: Any) -> None:
    assert matches(value, pattern)


@pytest.mark.parametrize(
    ("value", "pattern"),
    [
        (5, "<5"),
        ("1Gi", "!1024Mi"),
        (True, 1),
        (1, True),
        ("true", True),
        (None, "!x"),
        ({}, "*"),
        ([], "!x"),
        ("x", None),
        ("x", []),
        ("abc", ">a"),
        ("3.5", 3),
        ("x", {}),
    ],
)
def test_a_scalar_does_not_match_another_pattern(value: Any, pattern: Any) -> None:
    assert not matches(value, pattern)


def test_ranges_are_recognized_and_compared() -> None:
    assert is_range("-5-5")
    assert is_range("100Mi-2Gi")
    assert not is_range("1!-10")
    assert not is_range("!1-10")
    assert not is_range("a-b")
    assert in_range("1h", "30m-2h")
    assert in_range("3h", "30m-2h", negated=True)
    assert in_range(7, "8!-9")
    assert not in_range("x", "1-2")
    assert not in_range("x", "1-2", negated=True)
    assert not in_range(1, "no range")


@pytest.mark.parametrize(
    ("key", "kind", "name"),
    [
        ("(a)", AnchorKind.CONDITION, "a"),
        (" <(a) ", AnchorKind.GLOBAL, "a"),
        ("X(a)", AnchorKind.NEGATION, "a"),
        ("+(a)", AnchorKind.ADD_IF_ABSENT, "a"),
        ("=(a/b)", AnchorKind.EQUALITY, "a/b"),
        ("^((a))", AnchorKind.EXISTENCE, "(a)"),
    ],
)
def test_an_anchor_is_parsed_into_kind_and_key(key: str, kind: AnchorKind, name: str) -> None:
    anchor = parse_anchor(key)
    assert anchor is not None
    assert (anchor.kind, anchor.key, anchor.text) == (kind, name, key.strip())


@pytest.mark.parametrize("key", ["", "a", "()", "(a", "a)", "+a", "x(a)", "(a)b"])
def test_a_plain_key_is_not_an_anchor(key: str) -> None:
    assert parse_anchor(key) is None


POD: dict[str, Any] = {
    "metadata": {"labels": {"app.io/name": "web"}},
    "spec": {
        "hostNetwork": True,
        "containers": [{"name": "a", "image": "x:1"}, {"name": "b", "image": "y:latest"}],
        "args": ["1", "2"],
        "matrix": [["a"], ["b"]],
    },
}


@pytest.mark.parametrize(
    "pattern",
    [
        {"spec": {"hostNetwork": True}},
        {"spec": {"=(hostNetwork)": True, "=(hostPID)": True}},
        {"spec": {"X(hostPID)": None}},
        {"spec": {"^(containers)": [{"name": "b"}]}},
        {"spec": {"^(volumes)": [{"name": "b"}]}},
        {"spec": {"<(hostPID)": True}},
        {"spec": {"containers": [{"name": "?*"}]}},
        {"spec": {"containers": [{"(name)": "a", "image": "x:*"}]}},
        {"spec": {"args": ["1|2"]}},
        {"spec": {"args": ">0"}},
        {"spec": {"matrix": [["a"], ["b"]]}},
        {"spec": "*"},
        {"spec": {"hostPID": None}},
        {"metadata": {"labels": {"app.io/*": "web"}}},
        {"metadata": {"labels": {"(app.io/*)": "web"}}},
    ],
)
def test_an_object_matches_its_pattern(pattern: Any) -> None:
    assert match_pattern(POD, pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "*",
        [],
        {"spec": {"hostNetwork": False}},
        {"spec": {"=(hostNetwork)": False}},
        {"spec": {"X(hostNetwork)": None}},
        {"spec": {"(hostPID)": True}},
        {"spec": {"(hostNetwork)": False}},
        {"spec": {"<(hostNetwork)": False}},
        {"spec": {"^(containers)": [{"name": "c"}]}},
        {"spec": {"^(containers)": "a"}},
        {"spec": {"^(hostNetwork)": [{"name": "c"}]}},
        {"spec": {"containers": []}},
        {"spec": {"containers": [{"name": "a"}]}},
        {"spec": {"containers": [{"(name)": "c", "image": "x"}]}},
        {"spec": {"containers": {"name": "a"}}},
        {"spec": {"matrix": [["a"], ["b"], ["c"]]}},
        {"spec": {"hostPID": "*"}},
        {"spec": {"+(hostPID)": True}},
        {"metadata": {"labels": {"other/*": "web"}}},
        {"metadata": {"annotations": {"app.io/*": "web"}}},
    ],
)
def test_an_object_does_not_match_another_pattern(pattern: Any) -> None:
    assert not match_pattern(POD, pattern)


def test_an_element_without_the_condition_does_not_fail_the_others() -> None:
    pattern = {"list": [{"(kind)": "a", "size": ">1"}]}
    assert match_pattern({"list": [{"kind": "a", "size": 2}, {"kind": "b"}]}, pattern)
    assert not match_pattern({"list": [{"kind": "b"}]}, pattern)
    assert match_pattern({"list": []}, pattern)


def test_a_nested_anchor_is_evaluated_before_its_siblings() -> None:
    pattern = {"list": [{"size": 1, "deep": {"(kind)": "a"}}]}
    skipped = {"size": 2, "deep": {"kind": "b"}}
    assert match_pattern({"list": [{"size": 1, "deep": {"kind": "a"}}, skipped]}, pattern)
