"""The assertion language: matches, mismatches and their places, expressions."""

import pytest

from tests.conformance.chainsaw.assertions import compare
from tests.conformance.chainsaw.expressions import ExpressionError, evaluate, expand

POD = {
    "metadata": {"name": "web", "labels": {"app": "shop", "tier": "front"}},
    "spec": {"replicas": 2, "containers": [{"name": "a", "image": "x:1"}, {"name": "b"}]},
    "status": {"ready": True, "note": '{"size": 3}'},
}


@pytest.mark.parametrize(
    "expected",
    [
        {"metadata": {"labels": {"app": "shop"}}},
        {"spec": {"replicas": 2.0}},
        {"spec": {"containers": [{"image": "x:1"}, {"name": "b"}]}},
        {"spec": {"(length(containers))": 2}},
        {"spec": {"(containers[?name=='b'])": [{"name": "b"}]}},
        {"spec": {"(missing != null)": False}},
        {"spec": {"(missing)": None}},
        {"status": {"note": {"(json_parse(@))": {"size": 3}}}},
        {"metadata": {"name": "($wanted)"}},
        {"metadata": {"name": "(join('', ['we', 'b']))"}},
        {"($wanted)": "web"},
        {"metadata": {"labels": {}}},
    ],
)
def test_a_matching_object_has_no_differences(expected: object) -> None:
    assert compare(expected, POD, {"wanted": "web"}) == []


@pytest.mark.parametrize(
    ("expected", "path"),
    [
        ({"metadata": {"labels": {"app": "other"}}}, "metadata.labels.app"),
        ({"metadata": {"labels": {"absent": None}}}, "metadata.labels.absent"),
        ({"spec": {"containers": [{"name": "a"}]}}, "spec.containers"),
        ({"spec": {"containers": [{"name": "b"}, {"name": "b"}]}}, "spec.containers[0].name"),
        ({"spec": {"containers": {}}}, "spec.containers"),
        ({"spec": {"containers": []}}, "spec.containers"),
        ({"spec": {"replicas": "2"}}, "spec.replicas"),
        ({"spec": {"replicas": True}}, "spec.replicas"),
        ({"status": {"ready": 1}}, "status.ready"),
        ({"status": {"ready": "True"}}, "status.ready"),
        ({"status": {"ready": {"x": 1}}}, "status.ready.x"),
        ({"spec": {"(length(containers))": 3}}, "spec.(length(containers))"),
        ({"spec": {"(length(missing))": 0}}, "spec.(length(missing))"),
        ({"metadata": {"(name": "web"}}, "metadata.(name"),
        ({"metadata": {"(name ==)": True}}, "metadata.(name ==)"),
        ({"metadata": {"name": "($unknown)"}}, "metadata.name"),
        ({"spec": {"~.(containers)": {"name": "a"}}}, "spec.~.(containers)"),
        ({"status": {"(json_parse(ready))": {}}}, "status.(json_parse(ready))"),
        ({"metadata": {"name": {"(json_parse(@))": {}}}}, "metadata.name.(json_parse(@))"),
    ],
)
def test_a_mismatch_is_reported_with_its_path(expected: object, path: str) -> None:
    assert [item.path for item in compare(expected, POD, {})] == [path]


def test_every_difference_is_named() -> None:
    expected = {"metadata": {"name": "x", "labels": {"app": "y"}}, "kind": "Pod"}
    paths = [item.path for item in compare(expected, POD, {})]
    assert paths == ["metadata.name", "metadata.labels.app", "kind"]


@pytest.mark.parametrize(
    "value", ["plain", "", 'a "b" `c` \\`d\\ $x', "zeile\nzwei", 3, None, {"a": [1]}]
)
def test_a_binding_evaluates_to_its_value(value: object) -> None:
    assert evaluate("$it", {"it": 1}, {"it": value}) == value


def test_a_dollar_in_quotes_is_not_a_binding() -> None:
    assert evaluate("""['$a', "$a", `"$a"`, $a]""", {"$a": 2}, {"a": 3}) == ["$a", 2, "$a", 3]


def test_a_binding_may_be_followed_by_fields() -> None:
    assert evaluate("$test.metadata.name", None, {"test": POD}) == "web"


def test_expand_replaces_values_and_leaves_keys_and_texts() -> None:
    document = {
        "(name)": ["($n)", "a ($n)", "(folded\n)", 1],
        "x": {"y": "(join('-', ['a', $n]))"},
    }
    assert expand(document, {"n": "z"}) == {
        "(name)": ["z", "a ($n)", "(folded\n)", 1],
        "x": {"y": "a-z"},
    }


def test_an_unknown_binding_is_an_error() -> None:
    with pytest.raises(ExpressionError, match=r"no binding \$nobody"):
        expand({"a": "($nobody)"}, {})
