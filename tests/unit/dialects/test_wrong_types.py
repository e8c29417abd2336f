"""Policies with a value of a wrong type in any place are refused without a crash."""

import contextlib
import copy
import functools
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from reconciler.api.meta import Object
from reconciler.dialects.registry import KNOWN_KINDS, dialect_of
from reconciler.errors import InvalidPolicy
from reconciler.services.catalog.protection import Protection
from tests.documents import DOCUMENTS, blocks

WRONG: tuple[Any, ...] = (
    None, "x", "", 0, -1, 1.5, True, [], {}, [None], ["x"], [{}], [[]], {"x": None}, {"x": "y"},
    {"x": {}}, {"x": []}, "{{", "$.", "/-", "/", "a/b/c", 10**30,
)  # fmt: skip
POD = {"apiVersion": "v1", "kind": "Pod"}
TERMS = [{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}]
TEMPLATES: list[dict[str, Any]] = [
    {"type": "labels", "operation": "add", "path": "team", "value": {"string": "blue"}},
    {"type": "annotations", "operation": "remove", "path": "old"},
    {
        "type": "labels",
        "operation": "replace",
        "path": "team",
        "valueRef": {
            "from": "k8s",
            "path": "/data/team",
            "k8s": {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "a", "name": "b"},
        },
    },
    {
        "type": "labels",
        "operation": "add",
        "path": "team",
        "valueRef": {
            "from": "http",
            "path": "body.team",
            "http": {
                "url": "https://teams.example.com/of/{{metadata.name}}",
                "method": "GET",
                "params": {"a": "b"},
                "header": {"c": "d"},
                "auth": {"staticToken": "t", "expireDuration": "10m"},
            },
        },
    },
    {
        "type": "resources",
        "operation": "replace",
        "resources": {"limits": {"cpu": "1"}, "requests": {"memory": "1Gi"}},
    },
    {
        "type": "resourcesOversell",
        "operation": "replace",
        "resourcesOversell": {"cpuFactor": "0.5", "memoryFactor": "0.5"},
    },
    {
        "type": "tolerations",
        "operation": "add",
        "tolerations": [{"key": "batch", "operator": "Exists", "effect": "NoSchedule"}],
    },
    {
        "type": "affinity",
        "operation": "add",
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": TERMS}
            },
            "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{}]},
        },
    },
]
ORIGINS: list[dict[str, Any]] = [
    {"type": "labels", "operation": "add", "labels": {"a": "b"}},
    {"type": "tolerations", "operation": "add", "tolerations": [{"operator": "Exists"}]},
    {
        "type": "resourceRequirements",
        "resourceRequirements": {"limits": {"cpu": "1"}},
        "containerCount": 1,
    },
    {"type": "resourceOversell", "resourcesOversell": {"requests": {"cpu": "0.5"}}},
    {"type": "affinity", "affinity": {"nodeAffinity": {}}},
    {"type": "topologySpreadConstraints", "topologySpreadConstraints": [{}]},
    {"type": "schedulerName", "schedulerName": "other"},
]
CONDITION = {
    "affectMode": "reject",
    "cond": "Gt",
    "dataRef": {"from": "current", "path": "/spec/replicas"},
    "value": {"integer": 3},
    "valueProcess": {"operation": "*", "operationWith": "50%"},
    "message": "no",
}
JSON_PATCH = [{"op": "add", "path": "/spec/a", "value": 1}]
MOD_RULE_PATCHES = [
    {"op": "add", "path": "/-", "value": "x"},
    {"op": "replace", "select": "$.spec.containers[*].image", "path": "/spec/containers/#0/image"},
]


def kinitiras(kind: str, **spec: Any) -> Object:
    selected = {**POD, "labelSelector": {"matchLabels": {"a": "b"}}}
    return {
        "apiVersion": "policy.kcloudlabs.io/v1alpha1",
        "kind": kind,
        "metadata": {"name": "p"},
        "spec": {"resourceSelectors": [selected], **spec},
    }


def overriding(**overriders: Any) -> Object:
    rule = {"targetOperations": ["CREATE"], "overriders": overriders}
    return kinitiras("ClusterOverridePolicy", overrideRules=[rule])


@functools.cache
def examples() -> tuple[Object, ...]:
    """Return policies with all fields of the optional languages, and those of the documents."""
    return tuple(_examples())


def _examples() -> Iterator[Object]:
    for template in TEMPLATES:
        yield overriding(template=template)
    for origin in ORIGINS:
        yield overriding(origin=[origin])
    yield overriding(plaintext=JSON_PATCH)
    judging = {"type": "condition", "condition": CONDITION}
    rule = {"targetOperations": ["DELETE"], "template": judging}
    yield kinitiras("ClusterValidatePolicy", validateRules=[rule])
    for patch in MOD_RULE_PATCHES:
        match = [
            {"select": "$.kind", "matchValue": "Pod"},
            {"select": "$.metadata.labels.a", "matchValues": ["a"], "matchFor": "Any"},
            {"select": "$.spec.a", "matchRegex": "^a", "negate": True},
        ]
        spec = {"type": "Patch", "executionTier": 1, "match": match, "patch": [patch]}
        meta = {"name": "r", "namespace": "a", "annotations": {"x": "y"}}
        rule = {"apiVersion": "api.kubemod.io/v1beta1", "kind": "ModRule", "metadata": meta}
        yield {**rule, "spec": spec}
    known = {(kind.api_version, kind.kind) for kind in KNOWN_KINDS}
    for document in DOCUMENTS:
        for block in blocks(document):
            found = yaml.safe_load_all(block.text) if block.kind == "yaml" else ()
            with contextlib.suppress(yaml.YAMLError):
                for item in found:
                    head = item if isinstance(item, dict) else {}
                    if (head.get("apiVersion"), head.get("kind")) in known:
                        yield item


def damaged(value: Any, wrong: Any) -> Iterator[Any]:
    """Yield copies of a value, each with the wrong value in another place."""
    yield copy.deepcopy(wrong)
    if not isinstance(value, dict | list):
        return
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        for other in damaged(value[key], wrong):
            copied = copy.copy(value)
            copied[key] = other
            yield copied


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
def test_a_wrong_type_is_an_error_of_the_policy(wrong: Any) -> None:
    guard = Protection()
    for policy in examples():
        dialect = dialect_of(policy)
        for spec in damaged(policy["spec"], wrong):
            given = {**policy, "spec": spec}
            compiled, errors = dialect.examine(given)
            assert all(isinstance(error, InvalidPolicy) for error in errors)
            if compiled is not None:
                for finding in dialect.lint(
                    given, compiled, scope=lambda _version, _kind: None, guard=guard, wrong=errors
                ):
                    assert finding.text


def test_annotations_that_are_not_an_object_are_refused() -> None:
    for policy in examples():
        dialect = dialect_of(policy)
        assert dialect.examine(policy)[1] == ()
        given = {**policy, "metadata": {**policy["metadata"], "annotations": ["x"]}}
        _, errors = dialect.examine(given)
        assert "metadata.annotations: expected an object, got a list" in map(str, errors)
