"""Lint findings where kinitiras differs from its documentation."""

from typing import Any

import pytest

from reconciler.dialects.finding import Level
from reconciler.services.authoring.lint import lint_policy

RULES = "spec.overrideRules[0]"
LABELS = {"origin": [{"type": "labels", "labels": {"a": "b"}}]}
PATCH = {"plaintext": [{"op": "add", "path": "/metadata/labels/a", "value": "b"}]}
TEMPLATE = {
    "template": {"type": "labels", "operation": "add", "path": "a", "value": {"string": "b"}}
}


def found(rule: Any, namespace: str = "", *places: str) -> list[tuple[Level, str]]:
    """Return the findings of a policy with one rule and selectors for some namespaces."""
    selectors = [
        {"apiVersion": "v1", "kind": "Pod", **({"namespace": place} if place else {})}
        for place in places
    ]
    spec = {"resourceSelectors": selectors, "overrideRules": [rule]}
    policy = {
        "apiVersion": "policy.kcloudlabs.io/v1alpha1",
        "kind": "OverridePolicy" if namespace else "ClusterOverridePolicy",
        "metadata": {"name": "p", **({"namespace": namespace} if namespace else {})},
        "spec": spec,
    }
    findings = lint_policy(policy, scope=lambda _group, _kind: True)
    return [(item.level, item.location) for item in findings if item.code == "original-differs"]


def refers(**k8s: str) -> Any:
    reference = {"from": "k8s", "path": "a", "k8s": {"apiVersion": "v1", "kind": "Pod", **k8s}}
    template = {"type": "labels", "operation": "add", "path": "a", "valueRef": reference}
    return {"overriders": {"template": template}}


@pytest.mark.parametrize(
    ("rule", "level", "place"),
    [
        (
            {"targetOperations": ["*"], "overriders": LABELS},
            Level.WARNING,
            f"{RULES}.targetOperations",
        ),
        ({"overriders": {**LABELS, **PATCH}}, Level.WARNING, f"{RULES}.overriders.plaintext"),
        (
            {"overriders": {**TEMPLATE, "renderedCue": "patches: []"}},
            Level.NOTE,
            f"{RULES}.overriders.renderedCue",
        ),
        (
            {"overriders": {"renderedCue": "patches: []"}},
            Level.WARNING,
            f"{RULES}.overriders.renderedCue",
        ),
        (refers(name="x"), Level.NOTE, f"{RULES}.overriders.template.valueRef.k8s.namespace"),
        (
            {"overriders": {"cue": 'processing: http: url: "http://a"\npatches: []'}},
            Level.WARNING,
            f"{RULES}.overriders.cue",
        ),
    ],
)
def test_lint_reports_fields_that_the_original_handles_differently(
    rule: Any, level: Level, place: str
) -> None:
    assert found(rule) == [(level, place)]


@pytest.mark.parametrize(
    "rule",
    [
        {"targetOperations": ["CREATE"], "overriders": LABELS},
        {"overriders": PATCH},
        {"overriders": TEMPLATE},
        refers(name="x", namespace="y"),
        {"overriders": {"cue": "patches: []"}},
    ],
)
def test_lint_reports_nothing_where_the_original_behaves_the_same(rule: Any) -> None:
    assert found(rule) == []


REFUSING = {
    "template": {
        "type": "condition",
        "condition": {
            "cond": "Exist",
            "message": "no",
            "dataRef": {"from": "current", "path": "/command"},
        },
    }
}
ALL = {"kube-retrofit.dev/objects": "all"}


@pytest.mark.parametrize(
    ("rule", "kinds", "annotations", "text"),
    [
        (REFUSING, ["Pod"], ALL, "options, and no selector names their kind"),
        (REFUSING, ["PodExecOptions"], {}, "options, which have no labels"),
        (REFUSING, [], {}, "options, which have no labels"),
        (
            {"overriders": LABELS},
            ["Pod"],
            ALL,
            "such a request contains no object",
        ),
        (REFUSING, ["Pod", "PodExecOptions"], ALL, "kinitiras ignores CONNECT"),
        (REFUSING, [], ALL, "kinitiras ignores CONNECT"),
    ],
)
def test_lint_reports_what_becomes_of_connect(
    rule: Any, kinds: list[str], annotations: dict[str, str], text: str
) -> None:
    field = "overrideRules" if "overriders" in rule else "validateRules"
    policy = {
        "apiVersion": "policy.kcloudlabs.io/v1alpha1",
        "kind": "ClusterOverridePolicy" if "overriders" in rule else "ClusterValidatePolicy",
        "metadata": {"name": "p", "annotations": annotations},
        "spec": {
            "resourceSelectors": [{"apiVersion": "v1", "kind": kind} for kind in kinds],
            field: [{"targetOperations": ["CREATE", "CONNECT"], **rule}],
        },
    }
    findings = lint_policy(policy, scope=lambda _group, _kind: True)
    where = f"spec.{field}[0].targetOperations"
    (finding,) = (item for item in findings if item.location == where)
    assert finding.level is Level.WARNING
    assert text in finding.text


def test_lint_reports_selectors_outside_the_namespace_of_the_policy() -> None:
    rule = {"overriders": LABELS}
    assert found(rule, "shop") == [(Level.NOTE, "metadata.namespace")]
    assert found(rule, "shop", "") == [(Level.NOTE, "metadata.namespace")]
    assert found(rule, "shop", "shop") == []
    where = "spec.resourceSelectors[1].namespace"
    assert found(rule, "shop", "shop", "other") == [(Level.WARNING, where)]


@pytest.mark.parametrize(
    ("cond", "value", "differs"),
    [
        ("In", {"floatSlice": ["0.5"]}, True),
        ("NotIn", {"floatSlice": ["0.5"]}, True),
        ("In", {"integerSlice": [5]}, False),
        ("In", {"stringSlice": ["0.5"]}, False),
        ("Equal", {"float": "0.5"}, False),
    ],
)
def test_lint_reports_a_list_of_numbers_that_the_original_compares_as_texts(
    cond: str, value: dict[str, Any], *, differs: bool
) -> None:
    reference = {"from": "current", "path": "/spec/share"}
    condition = {"cond": cond, "value": value, "dataRef": reference, "message": "no"}
    spec = {"validateRules": [{"template": {"type": "condition", "condition": condition}}]}
    policy = {
        "apiVersion": "policy.kcloudlabs.io/v1alpha1",
        "kind": "ClusterValidatePolicy",
        "metadata": {"name": "p"},
        "spec": spec,
    }
    findings = lint_policy(policy, scope=lambda _group, _kind: True)
    places = [item.location for item in findings if item.code == "original-differs"]
    where = "spec.validateRules[0].template.condition.value.floatSlice"
    assert places == ([where] if differs else [])
