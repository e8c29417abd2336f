"""Anchors in strategic merge patches, from the written patch to the patched object."""

from typing import Any

import pytest

from reconciler.api.meta import Object
from reconciler.dialects.kyverno.anchors import compile_strategic
from reconciler.engine.outcome import Unmet
from reconciler.engine.patch import SHIPPED, merge
from reconciler.errors import EvaluationError, InvalidPolicy


def preprocess(patch: Any, resource: Object) -> Object | None:
    """Resolve the anchors of a patch without variables; None where a condition is unmet."""
    compiled = compile_strategic(patch, location="patchStrategicMerge")
    plain = compiled.resolve(patch, resource, SHIPPED)
    return None if isinstance(plain, Unmet) else plain


def pod(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "shop", "labels": {"tier": "front"}},
        "spec": spec
        or {
            "containers": [
                {"name": "cart", "image": "acme/cart:latest"},
                {"name": "proxy", "image": "acme/proxy:7"},
            ]
        },
    }


def apply(patch: dict[str, Any], resource: dict[str, Any]) -> dict[str, Any]:
    plain = preprocess(patch, resource)
    return resource if plain is None else merge(resource, plain, SHIPPED)


def containers(patch: list[Any], **spec: Any) -> list[Any]:
    result: list[Any] = apply({"spec": {"containers": patch}}, pod(**spec))["spec"]["containers"]
    return result


def reason(patch: dict[str, Any], resource: dict[str, Any]) -> str:
    plain = compile_strategic(patch, location="patch").resolve(patch, resource, SHIPPED)
    assert isinstance(plain, Unmet)
    return plain.reason


def test_a_condition_in_an_element_selects_the_elements() -> None:
    found = containers([{"(image)": "*:latest", "imagePullPolicy": "Always"}])
    assert found == [
        {"name": "cart", "image": "acme/cart:latest", "imagePullPolicy": "Always"},
        {"name": "proxy", "image": "acme/proxy:7"},
    ]


def test_a_condition_that_no_element_meets_changes_nothing() -> None:
    resource = pod()
    patch = {"spec": {"containers": [{"(image)": "*:9", "imagePullPolicy": "Always"}]}}
    assert apply(patch, resource) is resource


def test_a_failed_condition_outside_of_a_list_disables_the_whole_patch() -> None:
    patch = {
        "metadata": {"labels": {"(tier)": "back", "a": "b"}, "annotations": {"x": "y"}},
    }
    assert preprocess(patch, pod()) is None
    assert reason(patch, pod()) == 'condition failed: "tier" does not match the patch'


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("(gone)", 'condition failed: could not found "gone" key in the resource'),
        ("<(gone)", 'global condition failed: could not found "gone" key in the resource'),
        ("X(tier)", 'condition failed: the resource has the "tier" key'),
    ],
)
def test_the_reason_names_the_condition(key: str, expected: str) -> None:
    assert reason({"metadata": {"labels": {key: "x"}}}, pod()) == expected


def test_a_negation_holds_for_an_absent_key_and_adds_nothing_to_the_patch() -> None:
    patch = {"metadata": {"labels": {"X(team)": None, "owner": "ops"}}}
    assert apply(patch, pod())["metadata"]["labels"] == {"tier": "front", "owner": "ops"}


def test_add_if_absent_adds_only_what_is_absent() -> None:
    patch = {"metadata": {"labels": {"+(tier)": "back", "+(team)": "core"}}}
    assert preprocess(patch, pod()) == {"metadata": {"labels": {"team": "core"}}}
    assert preprocess({"metadata": {"labels": {"+(tier)": "back"}}}, pod()) == {}


@pytest.mark.parametrize("first", ["team", "+(team)"])
def test_a_key_with_an_anchor_comes_before_the_same_key_without_one(first: str) -> None:
    values = {"+(team)": "new", "team": "changed"}
    labels = {first: values.pop(first), **values}
    patch = {"metadata": {"labels": labels}}
    assert preprocess(patch, pod()) == {"metadata": {"labels": {"team": "new"}}}
    there = {"metadata": {"labels": {"team": "old"}}}
    assert preprocess(patch, there) == {"metadata": {"labels": {"team": "changed"}}}


def test_a_key_with_null_counts_as_present() -> None:
    patch = {"spec": {"+(priority)": 5}}
    assert preprocess(patch, pod(priority=None)) == {}


def test_add_if_absent_is_decided_for_each_element() -> None:
    patch = [{"(name)": "*", "+(imagePullPolicy)": "Always"}]
    found = containers(
        patch, containers=[{"name": "a"}, {"name": "b", "imagePullPolicy": "Never"}, {"name": "c"}]
    )
    assert [(item["name"], item["imagePullPolicy"]) for item in found] == [
        ("a", "Always"),
        ("c", "Always"),
        ("b", "Never"),
    ]


def test_several_templates_in_one_list_all_apply() -> None:
    patch = [
        {"(name)": "cart", "tty": True},
        {"(name)": "proxy", "stdin": True},
        {"(name)": "*", "workingDir": "/"},
    ]
    assert containers(patch) == [
        {"name": "cart", "image": "acme/cart:latest", "tty": True, "workingDir": "/"},
        {"name": "proxy", "image": "acme/proxy:7", "stdin": True, "workingDir": "/"},
    ]


def test_templates_that_match_no_element_leave_the_list_unchanged() -> None:
    patch = [{"(name)": "x", "tty": True}, {"(name)": "y", "tty": True}]
    assert containers(patch) == pod()["spec"]["containers"]


def test_a_template_applies_beside_a_plain_element() -> None:
    patch = [{"(name)": "cart", "tty": True}, {"name": "new", "image": "acme/new:1"}]
    assert [item["name"] for item in containers(patch)] == ["new", "cart", "proxy"]


def test_a_plain_name_in_a_template_is_replaced_by_the_name_of_the_element() -> None:
    patch = [{"name": "ignored", "+(tty)": True}]
    assert [(item["name"], item["tty"]) for item in containers(patch)] == [
        ("cart", True),
        ("proxy", True),
    ]


def test_a_template_identifies_its_element_by_the_merge_keys_of_the_list() -> None:
    ports = [{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 81, "protocol": "TCP"}]
    patch = [{"(name)": "cart", "ports": [{"(containerPort)": 81, "hostPort": 9}]}]
    found = containers(patch, containers=[{"name": "cart", "ports": ports}])
    assert found[0]["ports"] == [
        {"containerPort": 81, "protocol": "TCP", "hostPort": 9},
        {"containerPort": 80, "protocol": "TCP"},
    ]


def test_a_template_inside_of_a_custom_resource_uses_the_merge_keys_of_the_inner_kind() -> None:
    ports = [{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 81, "protocol": "TCP"}]
    inner = pod(containers=[{"name": "cart", "ports": ports}])
    resource = {"apiVersion": "example.org/v1", "kind": "Thing", "template": inner}
    template = {"(name)": "cart", "ports": [{"(containerPort)": 81, "hostPort": 9}]}
    found = apply({"template": {"spec": {"containers": [template]}}}, resource)
    assert found["template"]["spec"]["containers"][0]["ports"] == [
        {"containerPort": 81, "protocol": "TCP", "hostPort": 9},
        {"containerPort": 80, "protocol": "TCP"},
    ]


def test_an_inner_mismatch_skips_only_the_inner_element() -> None:
    patch = [{"(name)": "*", "tty": True, "env": [{"(name)": "DEBUG", "value": "0"}]}]
    found = containers(
        patch, containers=[{"name": "a", "env": [{"name": "DEBUG", "value": "1"}]}, {"name": "b"}]
    )
    assert found == [
        {"name": "a", "env": [{"name": "DEBUG", "value": "0"}], "tty": True},
        {"name": "b", "tty": True},
    ]


def test_a_template_without_a_list_does_nothing() -> None:
    patch = {"spec": {"initContainers": [{"(name)": "*", "tty": True}], "hostPID": False}}
    assert preprocess(patch, pod()) == {"spec": {"hostPID": False}}


def test_a_global_condition_in_a_list_holds_if_one_element_meets_it() -> None:
    patch = {
        "spec": {"containers": [{"<(image)": "acme/*", "(name)": "cart"}], "dnsPolicy": "None"}
    }
    assert preprocess(patch, pod()) == {"spec": {"dnsPolicy": "None"}}


def test_a_global_condition_fails_if_no_element_meets_it_or_no_list_exists() -> None:
    patch = {"spec": {"containers": [{"<(image)": "other/*"}], "dnsPolicy": "None"}}
    assert preprocess(patch, pod()) is None
    assert preprocess(patch, pod(hostPID=True)) is None
    assert preprocess(patch, pod(containers=[])) == {"spec": {"dnsPolicy": "None"}}


def test_content_beside_a_global_condition_in_an_element_is_not_applied() -> None:
    patch = {
        "metadata": {"annotations": {"seen": "yes"}},
        "spec": {"containers": [{"<(image)": "*:latest", "imagePullPolicy": "Always"}]},
    }
    assert preprocess(patch, pod()) == {"metadata": {"annotations": {"seen": "yes"}}}


def test_a_condition_with_a_map_patches_its_plain_leaves() -> None:
    resource = pod(securityContext={"runAsUser": 5})
    patch: Object = {"spec": {"(securityContext)": {"(runAsUser)": ">0", "runAsGroup": 7}}}
    assert preprocess(patch, resource) is None
    patch = {"spec": {"(securityContext)": {"(runAsUser)": ">0", "+(runAsGroup)": 7}}}
    assert preprocess(patch, resource) == {"spec": {"securityContext": {"runAsGroup": 7}}}
    patch = {"spec": {"(securityContext)": {"(runAsUser)": ">0"}, "hostPID": False}}
    assert preprocess(patch, resource) == {"spec": {"hostPID": False}}


def test_the_anchor_of_a_condition_at_the_root_is_removed_from_the_patch() -> None:
    patch = {"(metadata)": {"labels": {"tier": "front"}}, "spec": {"hostPID": False}}
    assert preprocess(patch, pod()) == {
        "metadata": {"labels": {"tier": "front"}},
        "spec": {"hostPID": False},
    }
    tested = {"(metadata)": {"(labels)": {"(tier)": "front"}}, "spec": {"hostPID": False}}
    assert preprocess(tested, pod()) == {"spec": {"hostPID": False}}


def test_all_anchors_are_evaluated_inside_the_value_of_a_condition() -> None:
    patch = {
        "spec": {"(containers)": [{"X(tty)": True, "=(image)": "acme/*"}], "hostPID": False},
    }
    assert preprocess(patch, pod()) == {"spec": {"hostPID": False}}
    with_terminal = pod(containers=[{"name": "a", "tty": True}])
    assert preprocess(patch, with_terminal) is None


@pytest.mark.parametrize(
    ("value", "wanted", "met"),
    [
        (True, "true", True),
        (True, True, True),
        (5, ">4", True),
        (5, "1-4", False),
        ("x", "!y", True),
        ("", "*", True),
        (None, "null", True),
        ({"a": 1}, "*", False),
    ],
)
def test_scalars_are_compared_as_patterns(value: Any, wanted: Any, met: bool) -> None:
    patch = {"spec": {"(field)": wanted, "hostPID": False}}
    assert (preprocess(patch, pod(field=value)) is not None) is met


def test_empty_maps_stay_in_the_patch() -> None:
    patch = {"spec": {"volumes": [{"name": "tmp", "emptyDir": {}}], "+(hostPID)": True}}
    assert preprocess(patch, pod()) == {
        "spec": {"volumes": [{"name": "tmp", "emptyDir": {}}], "hostPID": True}
    }


def test_keys_may_hold_variables() -> None:
    written = {"metadata": {"labels": {"+({{ key }})": "{{ value }}", "(tier)": "front"}}}
    compiled = compile_strategic(written, location="patch")
    filled = {"metadata": {"labels": {"+(team)": "core", "(tier)": "front"}}}
    assert compiled.resolve(filled, pod(), SHIPPED) == {"metadata": {"labels": {"team": "core"}}}


@pytest.mark.parametrize(
    ("patch", "place", "cure"),
    [
        ({"spec": {"=(hostPID)": True}}, "p.spec.=(hostPID)", "use (key)"),
        ({"spec": {"^(containers)": [{}]}}, "p.spec.^(containers)", "value of a condition"),
        ({"a": [[{"(b)": 1}]]}, "p.a[0]", "list of lists"),
        ([], "p", "must be a map"),
        ("text", "p", "must be a map"),
    ],
)
def test_a_meaningless_anchor_or_patch_is_refused_with_its_location(
    patch: Any, place: str, cure: str
) -> None:
    with pytest.raises(InvalidPolicy) as caught:
        compile_strategic(patch, location="p")
    assert caught.value.location == place
    assert cure in caught.value.reason


def test_a_template_where_the_object_has_no_list_is_an_error() -> None:
    patch = {"spec": {"containers": [{"(name)": "*", "tty": True}]}}
    with pytest.raises(EvaluationError, match="wrong node kind"):
        preprocess(patch, pod(containers={"name": "a"}))


def test_a_patch_from_one_variable_must_be_a_map() -> None:
    compiled = compile_strategic("{{ request.object.data }}", location="patch")
    assert compiled.resolve({"(a)": 1}, pod(), SHIPPED) == {"(a)": 1}
    with pytest.raises(EvaluationError, match="must be a map"):
        compiled.resolve("x", pod(), SHIPPED)


def test_a_patch_nested_too_deeply_is_refused() -> None:
    patch: dict[str, Any] = {"(a)": 1}
    for _ in range(2000):
        patch = {"a": patch}
    with pytest.raises(InvalidPolicy, match="nested too deeply"):
        compile_strategic(patch, location="p")
