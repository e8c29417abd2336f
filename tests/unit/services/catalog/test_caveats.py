"""Caveats: triggers that the settings of a cluster keep from firing a rule."""

import pytest

from reconciler.dialects.registry import compile_policy
from reconciler.services.catalog.caveats import filtered, is_silent, why_silent
from tests.filters import parse_filters

SHIPPED = (
    "[*/*,kube-system,*][*/*,kyverno,*][Node,*,*][Node/?*,*,*][ReplicaSet,*,*][Pod/binding,*,*]"
)


def compiled(match, namespace=""):
    mutate = {
        "targets": [{"apiVersion": "v1", "kind": "Secret", "name": "s"}],
        "patchStrategicMerge": {"metadata": {"labels": {"a": "b"}}},
    }
    policy = {
        "apiVersion": "kyverno.io/v1",
        "kind": "Policy" if namespace else "ClusterPolicy",
        "metadata": {"name": "p", **({"namespace": namespace} if namespace else {})},
        "spec": {"rules": [{"name": "r", "match": match, "mutate": mutate}]},
    }
    return compile_policy(policy)


def program(match, namespace=""):
    return compiled(match, namespace).programs[0]


def resources(**fields):
    return {"any": [{"resources": fields}]}


@pytest.mark.parametrize(
    ("match", "filters", "expected"),
    [
        (resources(kinds=["Node"]), "[Node,*,*]", "Node"),
        (resources(kinds=["v1/Node"]), "[Node,*,*]", "Node"),
        (resources(kinds=["Node/status"]), "[Node/?*,*,*]", "Node/status"),
        (resources(kinds=["Secret"], names=["a", "b"]), "[Secret,*,a][Secret,*,b]", "Secret"),
        (resources(kinds=["Pod"], namespaces=["kube-system"]), "[*/*,kube-system,*]", "Pod"),
        (resources(kinds=["Namespace"], names=["kube-system"]), SHIPPED, "Namespace"),
        ({"all": [{"resources": {"kinds": ["Node"]}}]}, SHIPPED, "Node"),
    ],
)
def test_a_rule_whose_triggers_are_all_filtered_is_reported_as_silent(match, filters, expected):
    found = program(match)
    (text,) = why_silent(found, parse_filters(resources=filters))
    assert text.startswith(f"nothing ever fires it: resourceFilters leave out {expected} ([")
    assert is_silent(found, parse_filters(resources=filters))


@pytest.mark.parametrize(
    ("match", "filters"),
    [
        (resources(kinds=["Node"]), ""),
        (resources(kinds=["Node"]), "[Node/?*,*,*]"),
        (resources(kinds=["Node"]), "[Node,*,x]"),
        (resources(kinds=["Pod"]), "[Pod,kube-*,*]"),
        (resources(kinds=["*"]), "[Node,*,*]"),
        (resources(kinds=["apps/v1/ReplicaSet"]), "[extensions/v1/ReplicaSet,*,*]"),
        (resources(kinds=["Secret"], names=["a", "b"]), "[Secret,*,a]"),
        (resources(kinds=["Namespace"]), SHIPPED),
    ],
)
def test_a_rule_with_unfiltered_triggers_is_not_reported_as_silent(match, filters):
    assert why_silent(program(match), parse_filters(resources=filters)) == ()


def test_a_rule_with_some_filtered_kinds_reports_only_those_kinds():
    found = program(resources(kinds=["Node", "Pod", "ReplicaSet"]))
    filters = parse_filters(resources=SHIPPED)
    assert why_silent(found, filters) == (
        "Node never fires it: resourceFilters leave it out ([Node,*,*])",
        "ReplicaSet never fires it: resourceFilters leave it out ([ReplicaSet,*,*])",
    )
    assert not is_silent(found, filters)


def test_a_status_written_by_kubelets_is_reported_if_kubelets_are_excluded():
    policy = compiled(resources(kinds=["v1/Pod.status", "ConfigMap"]))
    filters = parse_filters(exclude_groups="system:nodes")
    (caveat,) = filtered(policy, filters)
    assert caveat.text == (
        "Pod/status is written by kubelets, whose requests fire nothing: excludeGroups leaves out"
        " system:nodes"
    )
    assert not list(filtered(policy, parse_filters(exclude_groups="system:nodes,!system:nodes")))


def test_a_policy_in_a_filtered_namespace_is_silent():
    found = program(resources(kinds=["ConfigMap"]), namespace="kube-system")
    assert is_silent(found, parse_filters(resources=SHIPPED))


def test_a_match_with_very_many_names_is_not_checked():
    names = [f"n{number}" for number in range(2000)]
    found = program(resources(kinds=["Node"], names=names))
    assert why_silent(found, parse_filters(resources="[Node,*,*]")) == ()
