"""Strategic merge of plain patches."""

from typing import Any

import pytest

from reconciler.engine.patch import SHIPPED, merge
from reconciler.errors import EvaluationError


def pod() -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "shop", "labels": {"tier": "front"}},
        "spec": {"containers": [{"name": "cart", "image": "c:1"}, {"name": "proxy"}]},
    }


def containers(*patch: Any, old: Any = None) -> Any:
    resource = pod()
    if old is not None:
        resource["spec"]["containers"] = old
    return merge(resource, {"spec": {"containers": list(patch)}}, SHIPPED)["spec"]["containers"]


def test_patched_and_new_elements_come_first() -> None:
    found = containers({"name": "proxy", "tty": True}, {"name": "new", "image": "n:1"})
    assert found == [
        {"name": "proxy", "tty": True},
        {"name": "new", "image": "n:1"},
        {"name": "cart", "image": "c:1"},
    ]


def test_a_patch_that_changes_no_element_does_not_reorder() -> None:
    resource = pod()
    patch = {"spec": {"containers": [{"name": "proxy"}]}}
    assert merge(resource, patch, SHIPPED) is resource


def test_null_deletes_a_field_but_not_its_parent() -> None:
    found = merge(pod(), {"metadata": {"labels": {"tier": None}}}, SHIPPED)
    assert found["metadata"]["labels"] == {}
    assert merge(pod(), {"metadata": {"labels": None}}, SHIPPED)["metadata"] == {"name": "shop"}


def test_null_below_an_absent_field_creates_its_parents() -> None:
    found = merge(pod(), {"metadata": {"annotations": {"x": None}}}, SHIPPED)
    assert found["metadata"]["annotations"] == {}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [("front", 3, "3"), ("front", True, "true"), ("1", 2.5, "2.5"), (1, "2", "2"), (1, 3, 3)],
)
def test_a_value_that_replaces_a_string_becomes_a_string(
    old: Any, new: Any, expected: Any
) -> None:
    resource = {"kind": "Pod", "metadata": {"labels": {"tier": old}}}
    found = merge(resource, {"metadata": {"labels": {"tier": new}}}, SHIPPED)
    assert found["metadata"]["labels"] == {"tier": expected}
    assert type(found["metadata"]["labels"]["tier"]) is type(expected)


def test_nulls_in_an_atomic_list_are_content() -> None:
    patch = {"spec": {"tolerations": [{"key": "a", "value": None}]}}
    assert merge(pod(), patch, SHIPPED)["spec"]["tolerations"] == [{"key": "a", "value": None}]


def test_explicit_nulls_of_the_object_survive() -> None:
    resource = {"spec": {"a": None}}
    assert merge(resource, {"spec": {"b": 1}}, SHIPPED) == {"spec": {"a": None, "b": 1}}
    assert merge(resource, {"spec": {"a": {"b": 1}}}, SHIPPED) == {"spec": {"a": {"b": 1}}}


def test_atomic_lists_are_replaced() -> None:
    old = [{"name": "cart", "args": ["a", "b"]}]
    assert containers({"name": "cart", "args": ["c"]}, old=old)[0]["args"] == ["c"]


def test_lists_of_custom_resources_are_replaced() -> None:
    resource = {"apiVersion": "example.org/v1", "kind": "Thing", "items": [{"name": "a"}]}
    assert merge(resource, {"items": [{"name": "b"}]}, SHIPPED)["items"] == [{"name": "b"}]


def test_an_object_inside_of_a_custom_resource_has_its_own_schema() -> None:
    resource = {"apiVersion": "example.org/v1", "kind": "Thing", "template": pod()}
    patch = {"template": {"spec": {"containers": [{"name": "cart", "tty": True}]}}}
    found = merge(resource, patch, SHIPPED)["template"]["spec"]["containers"]
    assert [item["name"] for item in found] == ["cart", "proxy"]


def test_sets_of_scalars_are_joined() -> None:
    resource = {**pod(), "metadata": {"finalizers": ["a", "b"]}}
    patch = {"metadata": {"finalizers": ["c", "a"]}}
    found = merge(resource, patch, SHIPPED)["metadata"]
    assert found == {"finalizers": ["c", "a", "b"]}
    assert merge(resource, {"metadata": {"finalizers": ["b"]}}, SHIPPED) is resource


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        ([{"name": "proxy", "$patch": "delete"}], [{"name": "cart", "image": "c:1"}]),
        ([{"name": "gone", "$patch": "delete"}], pod()["spec"]["containers"]),
        (
            [{"name": "cart", "$patch": "replace", "tty": True}],
            [{"name": "cart", "tty": True}, {"name": "proxy"}],
        ),
        ([{"$patch": "replace"}, {"name": "x"}], [{"name": "x"}]),
        (
            [{"$patch": "merge"}, {"name": "cart", "tty": True}],
            [{"name": "cart", "image": "c:1", "tty": True}, {"name": "proxy"}],
        ),
        ([], pod()["spec"]["containers"]),
    ],
)
def test_directives_apply_to_elements_of_a_keyed_list(patch: Any, expected: Any) -> None:
    assert containers(*patch) == expected


def test_deleting_all_elements_leaves_an_empty_list() -> None:
    patch = [{"name": name, "$patch": "delete"} for name in ("cart", "proxy")]
    assert containers(*patch) == []


def test_a_list_can_be_deleted_as_a_whole() -> None:
    patch = {"spec": {"containers": [{"$patch": "delete"}]}}
    assert merge(pod(), patch, SHIPPED)["spec"] == {}


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({"$patch": "replace", "a": "b"}, {"a": "b"}),
        ({"$patch": "merge", "a": "b"}, {"tier": "front", "a": "b"}),
    ],
)
def test_directives_replace_or_merge_a_map(labels: Any, expected: Any) -> None:
    assert (
        merge(pod(), {"metadata": {"labels": labels}}, SHIPPED)["metadata"]["labels"] == expected
    )


def test_a_map_can_be_deleted_by_a_directive() -> None:
    found = merge(pod(), {"metadata": {"labels": {"$patch": "delete"}}}, SHIPPED)
    assert found["metadata"] == {"name": "shop"}


def test_replacing_a_map_by_an_equal_one_changes_nothing() -> None:
    resource = pod()
    patch = {"metadata": {"labels": {"$patch": "replace", "tier": "front"}}}
    assert merge(resource, patch, SHIPPED) is resource


def test_an_unknown_directive_is_an_error() -> None:
    with pytest.raises(
        EvaluationError, match=r"unknown patch strategy 'drop' at metadata\.labels"
    ):
        merge(pod(), {"metadata": {"labels": {"$patch": "drop"}}}, SHIPPED)


def test_an_element_without_its_key_is_an_error() -> None:
    with pytest.raises(EvaluationError, match=r"spec\.containers: an element .* has no name"):
        containers({"image": "x"})


def test_an_element_that_is_not_a_map_is_an_error() -> None:
    with pytest.raises(EvaluationError, match="expected MappingNode but got ScalarNode"):
        containers("cart")


@pytest.mark.parametrize("patch", [{"spec": []}, {"metadata": {"labels": "x"}}, {"kind": {}}])
def test_different_kinds_of_value_are_an_error(patch: Any) -> None:
    with pytest.raises(EvaluationError, match="wrong node kind: expected"):
        merge(pod(), patch, SHIPPED)


def ports(*patch: Any, old: list[Any]) -> Any:
    service = {"apiVersion": "v1", "kind": "Service", "spec": {"ports": old}}
    return merge(service, {"spec": {"ports": list(patch)}}, SHIPPED)["spec"]["ports"]


def test_composite_keys_distinguish_elements() -> None:
    old = [{"port": 53, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]
    assert ports({"port": 53, "protocol": "UDP", "name": "dns"}, old=old) == [
        {"port": 53, "protocol": "UDP", "name": "dns"},
        {"port": 53, "protocol": "TCP"},
    ]


def test_a_partial_key_finds_its_element() -> None:
    old = [{"port": 80, "protocol": "TCP"}, {"port": 81, "protocol": "TCP"}]
    assert ports({"port": 81, "name": "web"}, old=old)[0] == {
        "port": 81,
        "protocol": "TCP",
        "name": "web",
    }


def test_a_partial_key_that_matches_several_elements_is_an_error() -> None:
    old = [{"port": 53, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]
    with pytest.raises(EvaluationError, match=r"several elements .* give all of port, protocol"):
        ports({"port": 53, "name": "dns"}, old=old)


def test_duplicates_in_the_object_collapse_only_where_the_patch_names_them() -> None:
    old = [{"name": "a", "v": 1}, {"name": "a", "v": 2}, {"name": "b"}, {"name": "b"}]
    found = containers({"name": "a", "w": 3}, old=old)
    assert found == [{"name": "a", "v": 2, "w": 3}, {"name": "b"}, {"name": "b"}]


def test_unchanged_parts_are_shared() -> None:
    resource = pod()
    found = merge(resource, {"spec": {"hostPID": True}}, SHIPPED)
    assert found["metadata"] is resource["metadata"]
    assert "hostPID" not in resource["spec"]


def test_deep_nesting_is_an_error() -> None:
    deep: Any = {}
    for _ in range(3000):
        deep = {"a": deep}
    with pytest.raises(EvaluationError, match="nested too deeply"):
        merge({}, deep, SHIPPED)
