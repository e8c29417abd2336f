"""Values of a wrong type or form are refused when a policy is written, with their place."""

from typing import Any

import pytest

from reconciler.dialects.kinitiras import KINITIRAS
from reconciler.errors import InvalidPolicy
from tests.unit.dialects.kinitiras.test_policies import policy

OVERRIDE, VALIDATE = "ClusterOverridePolicy", "ClusterValidatePolicy"
EMPTY: tuple[Any, ...] = (0, False, [], {})
"""Values of a wrong type for a string, each of which Python takes for false."""


def refused(kind: str, spec: dict[str, Any]) -> list[str]:
    """Return the errors of a policy."""
    with pytest.raises(InvalidPolicy) as caught:
        KINITIRAS.compile(policy(kind, spec))
    return [str(error) for error in (caught.value, *caught.value.others)]


def overriding(**overriders: Any) -> list[str]:
    return refused(OVERRIDE, {"overrideRules": [{"overriders": overriders}]})


def selecting(selector: dict[str, Any]) -> list[str]:
    rules = [{"overriders": {"origin": [{"type": "labels", "labels": {"a": "b"}}]}}]
    given = {"apiVersion": "v1", "kind": "Pod", **selector}
    return refused(OVERRIDE, {"resourceSelectors": [given], "overrideRules": rules})


def referring(**reference: Any) -> list[str]:
    template = {"type": "labels", "operation": "add", "path": "a", "valueRef": reference}
    return overriding(template=template)


def judging(**fields: Any) -> list[str]:
    condition = {"cond": "Exist", "dataRef": {"from": "current", "path": "/a"}, **fields}
    rule = {"template": {"type": "condition", "condition": condition}}
    return refused(VALIDATE, {"validateRules": [rule]})


@pytest.mark.parametrize("value", EMPTY, ids=repr)
def test_an_empty_value_of_a_wrong_type_is_not_taken_as_missing(value: Any) -> None:
    named = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a"}
    called = {"url": "http://a.b.svc/c"}
    token = {"staticToken": "t"}
    toleration = {"key": "a", "operator": "Exists"}
    origin = "spec.overrideRules[0].overriders.origin[0]"
    template = "spec.overrideRules[0].overriders.template"
    reference = f"{template}.valueRef"
    condition = "spec.validateRules[0].template.condition"
    found = {
        "spec.resourceSelectors[0].namespace": selecting({"namespace": value}),
        "spec.resourceSelectors[0].name": selecting({"name": value}),
        f"{condition}.affectMode": judging(affectMode=value),
        f"{condition}.message": judging(message=value),
        f"{reference}.k8s.namespace": referring(
            **{"from": "k8s", "path": "a", "k8s": {**named, "namespace": value}}
        ),
        f"{reference}.http.method": referring(
            **{"from": "http", "path": "a", "http": {**called, "method": value}}
        ),
        f"{reference}.http.auth.password": referring(
            **{
                "from": "http",
                "path": "a",
                "http": {**called, "auth": {**token, "password": value}},
            }
        ),
        f"{reference}.http.auth.expireDuration": referring(
            **{
                "from": "http",
                "path": "a",
                "http": {**called, "auth": {**token, "expireDuration": value}},
            }
        ),
        f"{origin}.schedulerName": overriding(
            origin=[{"type": "schedulerName", "schedulerName": value}]
        ),
        f"{origin}.tolerations[0].effect": overriding(
            origin=[{"type": "tolerations", "tolerations": [{**toleration, "effect": value}]}]
        ),
        f"{origin}.tolerations[0].operator": overriding(
            origin=[{"type": "tolerations", "tolerations": [{**toleration, "operator": value}]}]
        ),
        f"{template}.path": overriding(
            template={
                "type": "labels",
                "operation": "add",
                "path": value,
                "value": {"stringMap": {"a": "b"}},
            }
        ),
    }
    for place, errors in found.items():
        assert [error for error in errors if error.startswith(f"{place}: expected a string")] == (
            errors
        )


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ({"apiVersion": "a/b/v1"}, "apiVersion: expected a value such as apps/v1"),
        ({"apiVersion": "*"}, "apiVersion: expected a value such as apps/v1"),
        ({"kind": "*"}, "kind: expected a value such as Deployment"),
        ({"kind": "Pod/exec"}, "kind: expected a value such as Deployment"),
        ({"labelSelector": []}, "labelSelector: expected an object, got a list"),
        (
            {"labelSelector": {"matchExpressions": 0}},
            "labelSelector.matchExpressions: expected a list, got a number",
        ),
    ],
    ids=repr,
)
def test_a_selector_that_can_select_nothing_is_refused(
    selector: dict[str, Any], message: str
) -> None:
    assert selecting(selector) == [f"spec.resourceSelectors[0].{message}"]


@pytest.mark.parametrize("version", ["v1", "apps/v1", "example.com/alpha-2"])
def test_a_selector_may_name_any_version_that_an_api_can_have(version: str) -> None:
    selector = {"apiVersion": version, "kind": "Thing"}
    rules = [{"overriders": {"origin": [{"type": "labels", "labels": {"a": "b"}}]}}]
    spec = {"resourceSelectors": [selector], "overrideRules": rules}
    assert KINITIRAS.compile(policy(OVERRIDE, spec)).programs


@pytest.mark.parametrize(
    ("name", "reason"),
    [("a/b", "it holds '/'"), ("%2e", "it holds '%'"), ("..", "it is dots")],
)
@pytest.mark.parametrize("field", ["name", "namespace"])
def test_a_reference_to_a_name_that_no_object_can_have_is_refused(
    field: str, name: str, reason: str
) -> None:
    named = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "namespace": "b", field: name}
    (error,) = referring(**{"from": "k8s", "path": "a", "k8s": named})
    assert f"valueRef.k8s.{field}: {reason}" in error


@pytest.mark.parametrize("template", [[], "", 0])
def test_a_template_of_a_wrong_type_is_refused_beside_other_changes(template: Any) -> None:
    (error,) = overriding(template=template, origin=[{"type": "labels", "labels": {"a": "b"}}])
    assert error.startswith("spec.overrideRules[0].overriders.template: expected an object, got")


@pytest.mark.parametrize("value", [0, "", [], {}], ids=repr)
def test_a_flag_of_a_wrong_type_is_refused(value: Any) -> None:
    (error,) = overriding(origin=[{"type": "labels", "labels": {"a": "b"}, "replace": value}])
    assert error == ("spec.overrideRules[0].overriders.origin[0].replace: expected true or false")


@pytest.mark.parametrize(
    "value",
    [{"boolean": True}, {"integerSlice": [1]}, {"stringSlice": ["a"]}, {"stringMap": {"a": "b"}}],
    ids=repr,
)
def test_a_value_that_no_field_can_be_compared_with_is_refused(value: dict[str, Any]) -> None:
    place = "spec.validateRules[0].template.condition.value"
    for cond in ("Gt", "Gte", "Lt", "Lte"):
        assert judging(cond=cond, value=value) == [
            f"{place}: {cond} takes a number or a string: integer, float or string"
        ]
    process = {"operation": "*", "operationWith": "50%"}
    for given in (value, {"string": "5"}):
        (error,) = judging(cond="Equal", value=given, valueProcess=process)
        assert error == f"{place}: valueProcess takes a number: integer or float"
