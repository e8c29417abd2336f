"""All errors of a policy are reported at once."""

import copy
from typing import Any

import pytest

from reconciler.dialects.registry import (
    compile_entry,
    compile_exception,
    compile_policy,
    examine_policy,
)
from reconciler.errors import InvalidPolicy

RULE: dict[str, Any] = {
    "name": "r",
    "match": {"any": [{"resources": {"kinds": ["ConfigMap"]}}]},
    "mutate": {
        "targets": [{"apiVersion": "v1", "kind": "Secret", "namespace": "a"}],
        "patchStrategicMerge": {"metadata": {"labels": {"x": "y"}}},
    },
}


def policy(*rules: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "p"},
        "spec": {"rules": list(rules), **spec},
    }


def rule(name: str = "r", **fields: Any) -> dict[str, Any]:
    return {**copy.deepcopy(RULE), "name": name, **fields}


def mutate(**fields: Any) -> dict[str, Any]:
    return rule(mutate={**copy.deepcopy(RULE["mutate"]), **fields})


def places(obj: dict[str, Any]) -> list[str]:
    with pytest.raises(InvalidPolicy) as caught:
        compile_policy(obj)
    first = caught.value
    assert all(not error.others for error in first.others)
    return [error.location.removeprefix("spec.rules[0].") for error in (first, *first.others)]


@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        (
            rule(match={"any": [{"resources": {"kinds": [""], "operations": ["PATCH", "X"]}}, 1]}),
            [
                "match.any[0].resources.kinds[0]",
                "match.any[0].resources.operations[0]",
                "match.any[0].resources.operations[1]",
                "match.any[1]",
            ],
        ),
        (
            rule(
                match={"any": [{"resources": {"kinds": ["A"], "selector": {}}, "roles": ["x"]}]},
                exclude={"all": 3},
                unknown=1,
            ),
            [
                "unknown",
                "match.any[0].resources.selector",
                "match.any[0].roles",
                "exclude.all",
            ],
        ),
        (
            rule(
                context=[
                    {"name": "a", "variable": {"value": "{{ nobody }}", "default": "{{ none }}"}},
                    {"name": "request"},
                    {"name": "b"},
                    {"name": "c", "variable": {"value": "{{ a }}{{ b }}"}},
                ],
                preconditions={
                    "all": [
                        {"key": "{{ a", "operator": "Equals", "value": ""},
                        {"key": "{{ target.x }}", "operator": "Equals", "value": "{{ c( }}"},
                        {"key": "", "operator": "Same", "value": ""},
                    ],
                    "none": [],
                },
            ),
            [
                "context[0].variable",
                "context[1].name",
                "context[2]",
                "preconditions.all[1].key",
                "preconditions.all[1].value",
                "preconditions.all[2].operator",
                "preconditions.none",
            ],
        ),
        (
            mutate(
                targets=[
                    {"kind": 5, "name": "{{ a }}", "selector": {}},
                    {"apiVersion": "v1", "kind": "Secret", "uid": 1, "other": 2},
                    "Secret",
                ],
                patchStrategicMerge={
                    "a": "{{ x }}",
                    "b": ["{{ y( }}", {"c": "{{ z }} and {{ w }}"}],
                },
            ),
            [
                "mutate.targets[0].apiVersion",
                "mutate.targets[0].kind",
                "mutate.targets[0].name",
                "mutate.targets[0].selector",
                "mutate.targets[1].other",
                "mutate.targets[1].uid",
                "mutate.targets[2]",
                "mutate.patchStrategicMerge.a",
                "mutate.patchStrategicMerge.b[0]",
                "mutate.patchStrategicMerge.b[1].c",
                "mutate.patchStrategicMerge.b[1].c",
            ],
        ),
        (
            mutate(patchStrategicMerge={"a": "{{ x }}", "b": [{"c": "{{ z }} and {{ w }}"}]}),
            [
                "mutate.patchStrategicMerge.a",
                "mutate.patchStrategicMerge.b[0].c",
                "mutate.patchStrategicMerge.b[0].c",
            ],
        ),
        (
            mutate(
                patchStrategicMerge=None,
                foreach=[
                    {"list": "x", "order": "Up", "patchStrategicMerge": {"a": "{{ elements }}"}},
                    {"list": "request", "patchesJson6902": "[{op: add}, {op: put, path: /}]"},
                ],
            ),
            [
                "mutate.foreach[0].list",
                "mutate.foreach[0].order",
                "mutate.foreach[0].patchStrategicMerge.a",
                "mutate.foreach[1].patchesJson6902",
            ],
        ),
        (
            mutate(
                patchStrategicMerge=None,
                patchesJson6902="- {op: add}\n- {op: put, path: /x}\n- {op: test, path: x}\n",
            ),
            [
                "mutate.patchesJson6902[0]",
                "mutate.patchesJson6902[1].op",
                "mutate.patchesJson6902[2]",
            ],
        ),
    ],
)
def test_all_errors_of_a_rule_are_reported(broken: dict[str, Any], expected: list[str]) -> None:
    assert places(policy(broken)) == expected


def test_errors_of_all_rules_and_of_the_policy_are_reported() -> None:
    one, two = rule("a", match={}), rule("a")
    two["mutate"]["targets"] = []
    found = places(
        policy(
            *(one, two, {"name": "b"}, rule("c")),
            applyRules="Two",
            background="yes",
            color="red",
            webhookConfiguration={"timeoutSeconds": 99, "failurePolicy": "Maybe"},
        )
    )
    assert found == [
        "spec.color",
        "spec.rules[1].name",
        "spec.rules[2]",
        "spec.webhookConfiguration.failurePolicy",
        "spec.webhookConfiguration.timeoutSeconds",
        "spec.applyRules",
        "spec.background",
        "match",
        "spec.rules[1].mutate.targets",
    ]


def test_rules_that_compile_are_returned_beside_the_errors_of_the_others() -> None:
    compiled, errors = examine_policy(policy(rule("a", match={}), rule("b")))
    assert compiled is not None
    assert [program.origin.location for program in compiled.programs] == ["spec.rules[1]"]
    assert [error.location for error in errors] == ["spec.rules[0].match"]


def test_all_errors_of_an_exception_are_reported() -> None:
    obj = {
        "apiVersion": "kyverno.io/v2",
        "kind": "PolicyException",
        "metadata": {"name": "e", "namespace": "a"},
        "spec": {
            "background": 3,
            "match": {"any": [{"resources": {"kinds": [""]}}]},
            "conditions": {"all": [{}, {}]},
            "exceptions": [{"ruleNames": []}, "p"],
        },
    }
    with pytest.raises(InvalidPolicy) as caught:
        compile_exception(obj)
    assert [error.location for error in (caught.value, *caught.value.others)] == [
        "spec.background",
        "spec.exceptions[0].policyName",
        "spec.exceptions[0].ruleNames",
        "spec.exceptions[1]",
        "spec.conditions.all[0]",
        "spec.conditions.all[1]",
        "spec.match.any[0].resources.kinds[0]",
    ]


def test_all_errors_of_a_global_entry_are_reported() -> None:
    obj = {
        "apiVersion": "kyverno.io/v2",
        "kind": "GlobalContextEntry",
        "metadata": {"name": "e"},
        "spec": {
            "colour": "red",
            "apiCall": {
                "urlPath": "/a",
                "method": "PUT",
                "data": [{"value": 1}],
                "refreshInterval": "soon",
                "retryLimit": 0,
            },
            "projections": [{"name": "e"}, {"name": "x", "jmesPath": "a("}],
        },
    }
    with pytest.raises(InvalidPolicy) as caught:
        compile_entry(obj)
    assert [error.location for error in (caught.value, *caught.value.others)] == [
        "spec.colour",
        "spec.apiCall.refreshInterval",
        "spec.apiCall.retryLimit",
        "spec.apiCall.method",
        "spec.apiCall.data[0].key",
        "spec.projections[0].name",
        "spec.projections[1].jmesPath",
    ]
