import pytest

from reconciler.dialects.registry import compile_policy
from reconciler.requests.rebuild import why_not_rebuildable


def program(*, match=None, exclude=None, value="x", apply_rules="All", patch=None, context=None):
    rule = {
        "name": "r",
        "match": {"any": [{"resources": match or {"kinds": ["ConfigMap"]}}]},
        "context": context or [],
        "mutate": {
            "targets": [{"apiVersion": "v1", "kind": "Secret", "name": "s", "namespace": "n"}],
            **(patch or {"patchStrategicMerge": {"metadata": {"labels": {"a": value}}}}),
        },
    }
    if exclude:
        rule["exclude"] = {"any": [exclude]}
    policy = {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "p"},
        "spec": {
            "background": False,
            "applyRules": apply_rules,
            "rules": [rule, {**rule, "name": "second"}],
        },
    }
    return compile_policy(policy).programs[1]


@pytest.mark.parametrize(
    ("rule", "word"),
    [
        ({}, ""),
        ({"value": "{{ request.object.data.v }}{{ request.namespace }}"}, ""),
        ({"match": {"kinds": ["Pod/status"]}}, "cannot be listed"),
        ({"match": {"kinds": ["*"]}}, "cannot be listed"),
        ({"exclude": {"resources": {"namespaces": ["b"]}}}, ""),
        ({"value": "{{ target.metadata.name }}"}, "how often"),
        ({"patch": {"patchesJson6902": "- {op: add, path: /l/-, value: 1}"}}, "how often"),
        ({"match": {"kinds": ["Pod"], "operations": ["CREATE"]}}, "operation"),
        ({"exclude": {"resources": {"operations": ["UPDATE"]}}}, "operation"),
        ({"exclude": {"clusterRoles": ["admin"]}}, "who sent"),
        ({"match": {"kinds": ["Pod/binding"]}}, "subresource binding"),
        ({"match": {"kinds": ["Pod/*"]}}, "subresource *"),
        ({"value": "{{ request.oldObject.data.v }}"}, "oldObject"),
        ({"value": "{{ request.operation }}"}, "reads operation"),
        ({"value": "{{ serviceAccountName }}"}, "serviceAccountName"),
        ({"value": "{{ to_string(request) }}"}, "anything of the request"),
    ],
)
def test_rules_that_cannot_be_rebuilt_from_the_live_object_are_explained(rule, word):
    text = why_not_rebuildable(program(**rule))
    assert (word in text) if word else not text


def test_a_rule_is_rebuildable_only_if_the_rules_before_it_are():
    assert not why_not_rebuildable(program(apply_rules="One"))
    assert "operation" in why_not_rebuildable(
        program(apply_rules="One", match={"kinds": ["Pod"], "operations": ["CREATE"]})
    )
