"""Directives of strategic merge beside `$patch`; tests/contract compares with a real server."""

from typing import Any

import pytest

from reconciler.engine.patch import SHIPPED, merge
from reconciler.errors import EvaluationError


def pod(**spec: Any) -> dict[str, Any]:
    names = [{"name": name} for name in "abcd"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "shop", "finalizers": ["x", "y", "z"]},
        "spec": {"containers": names, **spec},
    }


def spec_of(patch: dict[str, Any], **spec: Any) -> Any:
    return merge(pod(**spec), {"spec": patch}, SHIPPED)["spec"]


def order(*names: str) -> dict[str, Any]:
    return {"$setElementOrder/containers": [{"name": name} for name in names]}


def names_after(patch: dict[str, Any]) -> str:
    return "".join(item["name"] for item in spec_of(patch)["containers"])


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        (order("d", "c", "b", "a"), "dcba"),
        # Elements that the order does not name keep their place among the others.
        (order("c", "a"), "bcad"),
        (order("d", "a"), "bcda"),
        (order("d", "gone", "a"), "bcda"),
        ({"containers": [{"name": "n"}], **order("a", "n", "d")}, "anbcd"),
        ({"containers": [{"name": "b", "$patch": "delete"}], **order("d", "c", "a")}, "dca"),
        ({"containers": [{"$patch": "replace"}, {"name": "b"}, {"name": "a"}], **order("a", "b")},
         "ab"),
    ],
)  # fmt: skip
def test_set_element_order_sorts_keyed_lists(patch: dict[str, Any], expected: str) -> None:
    assert names_after(patch) == expected


def test_an_order_that_already_holds_changes_nothing() -> None:
    resource = pod()
    assert merge(resource, {"spec": order("a", "c")}, SHIPPED) is resource
    assert (
        merge(resource, {"spec": {"$setElementOrder/volumes": [{"name": "v"}]}}, SHIPPED) == pod()
    )


def test_lists_of_scalars_are_ordered_and_values_deleted_from_them() -> None:
    patch = {
        "finalizers": ["n"],
        "$deleteFromPrimitiveList/finalizers": ["y", "gone"],
        "$setElementOrder/finalizers": ["z", "n", "x"],
    }
    assert merge(pod(), {"metadata": patch}, SHIPPED)["metadata"]["finalizers"] == ["z", "n", "x"]


def test_values_are_deleted_from_replaced_lists_as_well() -> None:
    containers = [{"name": "a", "args": ["-v", "x", "-v"]}]
    patch = {"containers": [{"name": "a", "$deleteFromPrimitiveList/args": ["-v"]}]}
    assert spec_of(patch, containers=containers)["containers"] == [{"name": "a", "args": ["x"]}]
    assert spec_of({"$deleteFromPrimitiveList/gone": ["x"]}) == pod()["spec"]


def test_true_is_not_equal_to_one() -> None:
    resource = {"list": [1, True, "1"]}
    found = merge(resource, {"$deleteFromPrimitiveList/list": [True]}, SHIPPED)
    assert found == {"list": [1, "1"]}


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        ({"$retainKeys": ["name", "emptyDir"], "emptyDir": {}}, {"name": "v", "emptyDir": {}}),
        ({"$retainKeys": ["name"], "configMap": None}, {"name": "v"}),
        ({"$retainKeys": ["name", "configMap"]}, {"name": "v", "configMap": {"name": "c"}}),
    ],
)
def test_retain_keys_removes_all_other_keys(patch: dict[str, Any], expected: Any) -> None:
    volumes = [{"name": "v", "configMap": {"name": "c"}}]
    named = {"name": "v", **patch}
    assert spec_of({"volumes": [named]}, volumes=volumes)["volumes"] == [expected]


def test_a_new_element_carries_no_directive() -> None:
    patch = {"name": "v", "$retainKeys": ["name", "emptyDir"], "emptyDir": {}}
    assert spec_of({"volumes": [patch]})["volumes"] == [{"name": "v", "emptyDir": {}}]


def test_other_keys_with_a_dollar_sign_are_fields() -> None:
    schema = {"$schema": "x", "$ref": "#/y"}
    assert merge({"a": {}}, {"a": schema}, SHIPPED) == {"a": schema}


@pytest.mark.parametrize(
    ("patch", "problem"),
    [
        ({"$retainKeys": ["a"], "b": 1}, r"\$retainKeys at spec does not name b"),
        ({"$retainKeys": "a"}, r"\$retainKeys at spec must be a list"),
        ({"$setElementOrder/containers": "a"}, "at spec must be a list"),
        ({"$deleteFromPrimitiveList/containers": {}}, "at spec must be a list"),
        ({"$deleteFromPrimitiveList/nodeSelector": ["a"]}, "nodeSelector is not a list"),
        ({"containers": [{"name": "n"}], **order("a")}, "must name every element of the patch"),
        ({"$setElementOrder/tolerations": [{"key": "t"}]}, "have no key"),
    ],
)
def test_an_invalid_directive_is_an_error(patch: dict[str, Any], problem: str) -> None:
    with pytest.raises(EvaluationError, match=problem):
        spec_of(patch, nodeSelector={"a": "b"}, tolerations=[{"key": "t"}])
