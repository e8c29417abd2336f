"""The findings of lint, and their absence for a plain policy."""

import copy
from typing import Any

import pytest

from reconciler.api.meta import ANNOTATION_ALL_KINDS
from reconciler.services.authoring.lint import Finding, Level, lint_policy

NAMESPACED = {"ConfigMap": True, "Deployment": True, "Node": False, "Namespace": False}
RULE = "spec.rules[0]"
IGNORE = {"failurePolicy": "Ignore"}
TARGET = f"{RULE}.mutate.targets[0]"


def scope(_api_version: str, kind: str) -> bool | None:
    return NAMESPACED.get(kind)


CONSENT = {"name": "p", "annotations": {ANNOTATION_ALL_KINDS: "fail"}}


def policy(**changes: Any) -> dict[str, Any]:
    """Return a policy without findings, with some parts replaced.

    An underscore in a name separates the steps of a path: ``target_namespace`` is the field
    ``namespace`` of the target. None removes a field.
    """
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "a", "name": "web"}
    resources: dict[str, Any] = {"kinds": ["ConfigMap"]}
    rule: dict[str, Any] = {
        "name": "r",
        "match": {"any": [{"resources": resources}]},
        "mutate": {
            "targets": [target],
            "patchStrategicMerge": {"metadata": {"labels": {"x": "y"}}},
        },
    }
    obj: dict[str, Any] = {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "p"},
        "spec": {"rules": [rule]},
    }
    places = {
        "target": target,
        "resources": resources,
        "rule": rule,
        "mutate": rule["mutate"],
        "spec": obj["spec"],
        "meta": obj["metadata"],
        "top": obj,
    }
    for path, value in changes.items():
        part, _, field = path.partition("_")
        if value is None:
            places[part].pop(field)
        else:
            places[part][field] = value
    return obj


def patched(text: str, **changes: Any) -> dict[str, Any]:
    return policy(mutate_patchStrategicMerge=None, mutate_patchesJson6902=text, **changes)


def labelled(labels: Any) -> dict[str, Any]:
    return policy(mutate_patchStrategicMerge={"metadata": labels})


def found(obj: dict[str, Any]) -> list[Finding]:
    before = copy.deepcopy(obj)
    findings = list(lint_policy(obj, scope=scope))
    assert obj == before
    return findings


LABEL = "target.metadata.labels.owner"


def at_admission(*namespaces: str, **changes: Any) -> list[Finding]:
    more = {"resources_namespaces": list(namespaces)} if namespaces else {}
    obj = policy(mutate_targets=None, **more, **changes)
    return [item for item in found(obj) if item.code == "protected-object"]


@pytest.mark.parametrize(
    "namespaces", [("kyverno",), ("kube-system",), ("kube-system", "kyverno")]
)
def test_a_rule_that_matches_only_protected_namespaces_gets_a_warning(
    namespaces: tuple[str, ...],
) -> None:
    (finding,) = at_admission(*namespaces)
    assert (finding.level, finding.location) == (Level.WARNING, f"{RULE}.match")
    assert namespaces[0] in finding.text
    assert not at_admission(*namespaces, "shop")
    assert not at_admission("kube-*")
    assert not at_admission()


def test_a_policy_in_the_namespace_of_kube_retrofit_gets_a_warning() -> None:
    own = {"meta_namespace": "kyverno", "top_kind": "Policy"}
    (finding,) = at_admission(**own)
    assert "kyverno" in finding.text


@pytest.mark.parametrize(
    ("expression", "warned"),
    [
        (LABEL, True),
        ('target.metadata.annotations."a.b/c"', True),
        (f"join('-', [{LABEL}, request.name])", True),
        (f"to_upper({LABEL})", True),
        (f"{LABEL} || ''", False),
        (f"to_upper({LABEL} || request.name)", False),
        ("target.metadata.labels || `{}`", False),
        ("target.metadata.labels", True),
        ("keys(target.metadata.labels)", True),
        ("target.metadata.name", False),
        ("request.object.metadata.labels.owner", False),
    ],
)
def test_a_target_label_read_without_a_default_gets_a_warning(
    expression: str, *, warned: bool
) -> None:
    obj = policy(mutate_patchStrategicMerge={"spec": {"paused": "{{ " + expression + " }}"}})
    findings = [item for item in found(obj) if item.code == "no-default"]
    assert len(findings) == warned
    for item in findings:
        assert item.level is Level.WARNING
        assert item.location == "spec.rules[0].mutate.patchStrategicMerge.spec.paused"


@pytest.mark.parametrize(
    "asked",
    [
        {"target_selector": {"matchLabels": {"owner": "?*"}}, "target_name": None},
        {
            "target_selector": {"matchExpressions": [{"key": "owner", "operator": "Exists"}]},
            "target_name": None,
        },
        {
            "target_preconditions": {
                "all": [{"key": "{{ " + LABEL + " || '' }}", "operator": "NotEquals", "value": ""}]
            }
        },
    ],
)
def test_no_default_is_needed_for_a_label_that_the_target_must_have(asked: dict[str, Any]) -> None:
    obj = policy(mutate_patchStrategicMerge={"a": "{{ " + LABEL + " }}"}, **asked)
    assert "no-default" not in [item.code for item in found(obj)]


def test_a_rule_that_compiles_is_checked_beside_one_that_does_not() -> None:
    obj = policy(target_namespace=None)
    obj["spec"]["rules"].append({**obj["spec"]["rules"][0], "name": "s", "match": {}})
    assert [(item.code, item.location) for item in found(obj)] == [
        ("whole-cluster", "spec.rules[0].mutate.targets[0]"),
        ("invalid", "spec.rules[1].match"),
    ]


def test_a_file_without_metadata_is_checked() -> None:
    assert lint_policy(policy(top_metadata=None), scope=scope) == ()


def test_a_plain_policy_has_no_findings() -> None:
    assert found(policy()) == []


def test_a_rule_under_ignore_that_can_be_caught_up_has_no_findings() -> None:
    assert found(policy(spec_webhookConfiguration=IGNORE)) == []


ONLY_CREATE = {"any": [{"resources": {"kinds": ["ConfigMap"], "operations": ["CREATE"]}}]}
BOTH = {"any": [{"resources": {"kinds": ["ConfigMap"]}}, *ONLY_CREATE["any"]]}
CONDITION = {"key": "{{ target.spec.x || '' }}", "operator": "Equals", "value": "y"}
OPERATION = {"key": "{{request.operation}}", "operator": "Equals", "value": "DELETE"}
APPEND = "- {op: add, path: /spec/list/-, value: x}"
ITSELF = {"kinds": ["Deployment"], "operations": ["DELETE"]}


@pytest.mark.parametrize(
    ("obj", "level", "code", "location"),
    [
        pytest.param(
            policy(target_namespace=None), "warning", "whole-cluster", TARGET, id="no namespace"
        ),
        pytest.param(
            policy(
                target_namespace=None,
                target_name=None,
                target_selector={"matchLabels": {"a": "b"}},
            ),
            "note",
            "whole-cluster",
            TARGET,
            id="a selector in all namespaces",
        ),
        pytest.param(
            policy(rule_match=BOTH, spec_webhookConfiguration=IGNORE),
            "note",
            "no-catch-up",
            RULE,
            id="a trigger that is lost for good",
        ),
        pytest.param(
            policy(target_kind="Node"), "error", "cluster-scoped-target", TARGET, id="node in a ns"
        ),
        pytest.param(
            policy(target_kind="Node", target_namespace=None, target_name=None),
            "note",
            "every-object",
            TARGET,
            id="all nodes",
        ),
        pytest.param(
            policy(resources_kinds=["Deployment"]), "note", "trigger-is-target", TARGET, id="own"
        ),
        pytest.param(
            policy(
                resources_kinds=["apps/v1/Deployment"],
                rule_skipBackgroundRequests=False,
                mutate_patchStrategicMerge={
                    "metadata": {"labels": {"x": "{{ target.metadata.name }}"}}
                },
            ),
            "warning",
            "may-loop",
            TARGET,
            id="own writes fire it again",
        ),
        pytest.param(
            policy(rule_match={"any": [{"resources": ITSELF}]}, target_name="{{ request.name }}"),
            "warning",
            "deleted-target",
            TARGET,
            id="deleted trigger",
        ),
        pytest.param(
            policy(rule_match=ONLY_CREATE, mutate_mutateExistingOnPolicyUpdate=True),
            "warning",
            "never-on-policy-update",
            f"{RULE}.match",
            id="operations",
        ),
        pytest.param(
            policy(rule_match=BOTH, mutate_mutateExistingOnPolicyUpdate=True),
            "note",
            "partly-on-policy-update",
            f"{RULE}.match",
            id="operations in one filter",
        ),
        pytest.param(
            policy(
                mutate_mutateExistingOnPolicyUpdate=True,
                target_name="{{ serviceAccountName }}",
            ),
            "error",
            "no-user-on-policy-update",
            RULE,
            id="user read",
        ),
        pytest.param(
            policy(
                mutate_mutateExistingOnPolicyUpdate=True,
                target_name="{{ serviceAccountName }}",
                spec_background=False,
            ),
            "warning",
            "no-user-on-policy-update",
            RULE,
            id="user read without background",
        ),
        pytest.param(
            policy(
                mutate_mutateExistingOnPolicyUpdate=True,
                rule_preconditions={"all": [{**OPERATION, "value": "UPDATE"}]},
            ),
            "note",
            "no-request-on-policy-update",
            RULE,
            id="operation read",
        ),
        pytest.param(
            policy(rule_context=[{"name": "c", "variable": {"value": 1}}]),
            "note",
            "unused-entry",
            f"{RULE}.context[0]",
            id="unused entry",
        ),
        pytest.param(
            policy(
                mutate_patchStrategicMerge={"metadata": {"labels": {"a": "{{ to_string(var) }}"}}}
            ),
            "warning",
            "unknown-name",
            f"{RULE}.mutate.patchStrategicMerge.metadata.labels.a",
            id="unknown name in a call",
        ),
        pytest.param(
            policy(mutate_patchStrategicMerge={"metadata": {"labels": {"a": "{{ target.kind }"}}}),
            "warning",
            "unclosed-variable",
            f"{RULE}.mutate.patchStrategicMerge.metadata.labels.a",
            id="unclosed variable",
        ),
        pytest.param(
            policy(
                rule_context=[
                    {"name": "x", "variable": {"value": "{{ request.{{ request.operation }}"}}
                ],
                mutate_patchStrategicMerge={"data": {"x": "{{ x }}"}},
            ),
            "warning",
            "unclosed-variable",
            f"{RULE}.context[0].variable.value",
            id="unclosed variable around another",
        ),
        pytest.param(
            policy(resources_kinds=["*"], spec_background=False, top_metadata=CONSENT),
            "warning",
            "every-kind",
            f"{RULE}.match",
            id="every kind",
        ),
        pytest.param(
            patched(APPEND), "warning", "append", f"{RULE}.mutate.patchesJson6902", id="append"
        ),
        pytest.param(
            policy(
                mutate_patchStrategicMerge=None,
                mutate_foreach=[
                    {
                        "list": "target.spec.names",
                        "patchesJson6902": "- {op: add, path: '/a/{{ element }}/-', value: x}",
                    }
                ],
            ),
            "warning",
            "append",
            f"{RULE}.mutate.foreach[0].patchesJson6902",
            id="append beside a variable",
        ),
        pytest.param(
            patched(APPEND, target_preconditions={"all": [CONDITION]}),
            "note",
            "append",
            f"{RULE}.mutate.patchesJson6902",
            id="guarded append",
        ),
        pytest.param(
            labelled({"labels": {"x": "{{ random('[a-z]{4}') }}"}}),
            "warning",
            "never-settles",
            f"{RULE}.mutate",
            id="random",
        ),
        pytest.param(
            labelled({"labels": {"x": 1}}),
            "error",
            "unquoted-value",
            f"{RULE}.mutate.patchStrategicMerge.metadata.labels.x",
            id="number as label",
        ),
        pytest.param(
            labelled({"+(annotations)": {"+(x)": True}}),
            "error",
            "unquoted-value",
            f"{RULE}.mutate.patchStrategicMerge.metadata.+(annotations).+(x)",
            id="boolean below add anchors",
        ),
        pytest.param(
            patched("- {op: add, path: /metadata/labels/x, value: 5}"),
            "error",
            "unquoted-value",
            f"{RULE}.mutate.patchesJson6902[0].value",
            id="number in a JSON patch",
        ),
        pytest.param(
            patched("- op: add\n  path: /metadata/labels/x\n  value: {{ request.name }}"),
            "warning",
            "unquoted-value",
            f"{RULE}.mutate.patchesJson6902[0].value",
            id="variable without quotes",
        ),
        pytest.param(
            policy(rule_match={"resources": {"kinds": ["ConfigMap"]}}),
            "note",
            "deprecated-field",
            f"{RULE}.match",
            id="direct filter",
        ),
        pytest.param(
            policy(resources_name="x"),
            "note",
            "deprecated-field",
            f"{RULE}.match.any[0].resources.name",
            id="name",
        ),
        pytest.param(
            policy(spec_failurePolicy="Fail"),
            "note",
            "deprecated-field",
            "spec.failurePolicy",
            id="failurePolicy",
        ),
        pytest.param(
            policy(target_preconditions=[CONDITION]),
            "note",
            "deprecated-field",
            f"{TARGET}.preconditions",
            id="plain list",
        ),
        pytest.param(
            policy(target_preconditions={"all": [{**CONDITION, "operator": "in"}]}),
            "warning",
            "deprecated-operator",
            f"{TARGET}.preconditions.all[0].operator",
            id="In",
        ),
        pytest.param(
            policy(rule_preconditions={"any": [OPERATION]}),
            "warning",
            "delete-not-listed",
            f"{RULE}.preconditions.any[0].value",
            id="DELETE not listed",
        ),
    ],
)
def test_each_fault_gives_exactly_one_finding(
    obj: dict[str, Any], level: str, code: str, location: str
) -> None:
    assert [(item.level, item.code, item.location) for item in found(obj)] == [
        (level, code, location)
    ]


PATTERN = {"resources": {"kinds": ["ConfigMap"], "names": ["a-*"]}}
EVERY = {"resources": {"kinds": ["ConfigMap", "Secret"]}}
OF_ONE = {"resources": {"kinds": ["ConfigMap"], "names": ["a-1"]}}


def excluded(match: Any, exclude: Any) -> dict[str, Any]:
    return policy(rule_match=match, rule_exclude=exclude, top_metadata=CONSENT)


EVERYTHING = {"resources_kinds": ["*"]}


def named(name: str, annotations: dict[str, str]) -> dict[str, Any]:
    return policy(top_metadata={"name": name, "annotations": annotations})


@pytest.mark.parametrize(
    ("obj", "code", "location"),
    [
        pytest.param(
            excluded({"any": [PATTERN]}, {"any": [OF_ONE, PATTERN]}),
            "empty-match",
            f"{RULE}.exclude",
            id="the same filter",
        ),
        pytest.param(
            excluded({"any": [OF_ONE]}, {"any": [PATTERN]}),
            "empty-match",
            f"{RULE}.exclude",
            id="a wider name",
        ),
        pytest.param(
            excluded({"any": [OF_ONE, PATTERN]}, {"any": [{"resources": {"kinds": ["*"]}}]}),
            "empty-match",
            f"{RULE}.exclude",
            id="all kinds",
        ),
        pytest.param(
            excluded({"all": [OF_ONE, {"resources": {"kinds": ["*"]}}]}, {"all": [PATTERN]}),
            "empty-match",
            f"{RULE}.exclude",
            id="one of all",
        ),
        pytest.param(
            policy(**EVERYTHING), "all-kinds-fail", f"{RULE}.match", id="all kinds under Fail"
        ),
        pytest.param(
            policy(resources_kinds=["ConfigMap", "*/*"]),
            "all-kinds-fail",
            f"{RULE}.match",
            id="all subresources under Fail",
        ),
        pytest.param(
            policy(spec_admission=False), "admission-off", "spec.admission", id="no admission"
        ),
        pytest.param(
            policy(spec_admission=False, spec_background=False),
            "admission-off",
            "spec.admission",
            id="nothing at all",
        ),
        pytest.param(named("n" * 64, {}), "long-name", "metadata.name", id="long name"),
        pytest.param(
            named("n", {"pod-policies.kyverno.io/autogen-controllers": "Job, all"}),
            "unknown-controller",
            "metadata.annotations[pod-policies.kyverno.io/autogen-controllers]",
            id="all controllers",
        ),
        pytest.param(
            patched("- {op: add, path: '/a/{{ request.name }}', value: x}"),
            "variable-in-path",
            f"{RULE}.mutate.patchesJson6902[0].path",
            id="variable in a path",
        ),
        pytest.param(
            patched("- {op: move, path: /a/b, from: '/a/{{ request.name }}'}"),
            "variable-in-path",
            f"{RULE}.mutate.patchesJson6902[0].from",
            id="variable in a source",
        ),
        pytest.param(
            policy(rule_preconditions={"any": [{**OPERATION, "value": ["CREATE", 1]}]}),
            "no-operation",
            f"{RULE}.preconditions.any[0].value[1]",
            id="a number as operation",
        ),
        pytest.param(
            policy(rule_preconditions={"any": [{**OPERATION, "value": "{{ request.x }"}]}),
            "no-operation",
            f"{RULE}.preconditions.any[0].value",
            id="a variable that is not closed",
        ),
    ],
)
def test_each_refused_policy_gives_exactly_one_error(
    obj: dict[str, Any], code: str, location: str
) -> None:
    errors = [item for item in found(obj) if item.level is Level.ERROR]
    assert [(item.code, item.location) for item in errors] == [(code, location)]


@pytest.mark.parametrize("other", [None, {}])
def test_an_empty_filter_covers_nothing_and_is_not_covered(other: Any) -> None:
    blank = excluded({"any": [other, OF_ONE]}, {"any": [other, PATTERN]})
    assert not [item for item in found(blank) if item.level is Level.ERROR]


@pytest.mark.parametrize(
    "changes",
    [
        {"top_metadata": CONSENT},
        {"spec_failurePolicy": "Ignore"},
        {"resources_namespaces": ["a"]},
        {"resources_kinds": ["apps/*"]},
        {"spec_webhookConfiguration": {"matchConditions": [{"name": "a", "expression": "true"}]}},
        {"top_kind": "Policy", "top_metadata": {"name": "p", "namespace": "a"}},
    ],
    ids=["consent", "ignore", "a namespace", "a group", "conditions", "a namespace's policy"],
)
def test_a_rule_for_all_kinds_that_cannot_stop_a_cluster_is_not_refused(
    changes: dict[str, Any],
) -> None:
    assert "all-kinds-fail" not in {item.code for item in found(policy(**EVERYTHING | changes))}


@pytest.mark.parametrize(
    "obj",
    [
        excluded({"any": [PATTERN]}, {"any": [OF_ONE]}),
        excluded({"any": [PATTERN, EVERY]}, {"any": [PATTERN]}),
        excluded({"any": [PATTERN]}, {"all": [PATTERN, OF_ONE]}),
        excluded(
            {"any": [PATTERN]}, {"any": [{**PATTERN, "subjects": [{"kind": "User", "name": "a"}]}]}
        ),
        excluded({"any": [PATTERN]}, {"any": [{"resources": {"kinds": ["Secret"]}}]}),
        patched("{{ request.object.data.patch }}"),
        patched("- {op: add, path: /a, value: '{{ request.name }}'}"),
        named("n" * 63, {"pod-policies.kyverno.io/autogen-controllers": "none"}),
    ],
)
def test_valid_policies_give_no_errors(obj: dict[str, Any]) -> None:
    obj["spec"]["background"] = False
    assert [item for item in found(obj) if item.level is Level.ERROR] == []


def test_a_rule_with_malformed_fields_gives_only_invalid_findings() -> None:
    obj = labelled({"labels": {"x": "y"}})
    rule = obj["spec"]["rules"][0]
    del rule["mutate"]["targets"]
    rule["match"] = rule["exclude"] = {"any": "text", "all": [[{}]]}
    obj["metadata"]["annotations"] = ["pod-policies.kyverno.io/autogen-controllers"]
    assert {item.code for item in found(obj)} == {"invalid"}


def test_a_background_rule_that_changes_its_trigger_may_not_read_the_user() -> None:
    obj = labelled({"labels": {"by": "{{ request.userInfo.username }}"}})
    del obj["spec"]["rules"][0]["mutate"]["targets"]
    (error,) = [item for item in found(obj) if item.level is Level.ERROR]
    assert error.code == "user-in-background"
    assert error.location == f"{RULE}.mutate.patchStrategicMerge.metadata.labels.by"
    assert "Set spec.background=false" in error.text
    obj["spec"]["background"] = False
    assert found(obj) == []


def test_a_validate_rule_gets_a_warning_that_it_is_not_acted_on() -> None:
    obj = policy()
    obj["spec"]["rules"].append(
        {"name": "v", "match": obj["spec"]["rules"][0]["match"], "validate": {"message": "m"}}
    )
    (finding,) = found(obj)
    assert (finding.level, finding.code) == (Level.WARNING, "not-acted-on")
    assert finding.location == "spec.rules[1]"
    assert finding.text.startswith("rule v is a validate rule")


def own_rule(**changes: Any) -> dict[str, Any]:
    obj = policy(mutate_targets=None, **changes)
    obj["metadata"]["annotations"] = {"pod-policies.kyverno.io/autogen-controllers": "none"}
    return obj


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("floor(a, b)", "incorrect number of args: floor takes 1, not 2"),
        ("nonsense(a)", "unknown function: nonsense"),
        ("sort_by(a, b)", "argument 2 of sort_by must be an expression, written &..."),
        ("to_upper('{{ floor(a, b) }}')", "incorrect number of args: floor takes 1, not 2"),
        ("request.object.x[::0]", "the step of a slice cannot be 0"),
    ],
)
def test_a_wrong_call_is_only_a_warning_in_a_rule_that_changes_its_trigger(
    call: str, reason: str
) -> None:
    conditions = {"all": [{"key": "{{ " + call + " || '' }}", "operator": "Equals", "value": ""}]}
    place = f"{RULE}.preconditions.all[0].key"
    findings = found(own_rule(rule_preconditions=conditions))
    (finding,) = [item for item in findings if item.code == "wrong-call"]
    assert (finding.level, finding.code, finding.location) == (Level.WARNING, "wrong-call", place)
    assert reason in finding.text
    assert "every request for which this is evaluated will fail" in finding.text
    (refused,) = found(policy(rule_preconditions=conditions))
    assert (refused.level, refused.code, refused.location) == (Level.ERROR, "invalid", place)
    assert reason in refused.text


def test_an_unknown_function_in_a_patch_of_the_trigger_is_a_wrong_call() -> None:
    patch = {"data": {"x": "{{ nonsense(request.name) }}"}}
    (finding,) = found(own_rule(mutate_patchStrategicMerge=patch))
    assert finding.code == "wrong-call"
    assert finding.location == f"{RULE}.mutate.patchStrategicMerge.data.x"


def test_an_unknown_foreach_list_is_a_warning_in_a_rule_that_changes_its_trigger() -> None:
    blocks = [{"list": "items", "patchStrategicMerge": {"data": {"x": "{{ element }}"}}}]
    (finding,) = found(own_rule(mutate_foreach=blocks, mutate_patchStrategicMerge=None))
    assert (finding.level, finding.code) == (Level.WARNING, "unknown-name")
    assert finding.location == f"{RULE}.mutate.foreach[0].list"
    (refused,) = found(policy(mutate_foreach=blocks, mutate_patchStrategicMerge=None))
    assert (refused.code, refused.location) == ("invalid", finding.location)


@pytest.mark.parametrize("kind", ["*", "**", "?*"])
def test_a_rule_that_changes_triggers_of_all_kinds_is_refused(kind: str) -> None:
    codes = {item.code: item.level for item in found(own_rule(resources_kinds=[kind]))}
    assert codes == {"all-kinds-fail": Level.ERROR, "every-kind": Level.WARNING}


@pytest.mark.parametrize(
    ("spec", "codes"),
    [
        ({}, {"all-kinds-fail", "every-kind"}),
        (
            {"resourceSelectors": [{"apiVersion": "v1", "kind": "Pod", "namespace": "kyverno"}]},
            {"protected-object"},
        ),
    ],
    ids=["everything", "a protected namespace"],
)
def test_findings_on_the_selection_of_a_kinitiras_policy_name_its_selectors(spec, codes):
    edit = {"type": "labels", "labels": {"a": "b"}}
    obj = {
        "apiVersion": "policy.kcloudlabs.io/v1alpha1",
        "kind": "ClusterOverridePolicy",
        "metadata": {"name": "p", "annotations": {"kube-retrofit.dev/objects": "all"}},
        "spec": {**spec, "overrideRules": [{"overriders": {"origin": [edit]}}]},
    }
    findings = found(obj)
    assert {item.code for item in findings} == codes
    assert {item.location for item in findings} == {"spec.resourceSelectors"}
    assert not any("spec.failurePolicy" in item.cure for item in findings)


def test_escaped_or_closed_braces_are_not_unclosed_variables() -> None:
    labels = {"a": r"\{{ x }", "b": "{{ target.kind }} }}", "c": "{ { x }"}
    assert found(policy(mutate_patchStrategicMerge={"metadata": {"labels": labels}})) == []


ENTRY = {"name": "x", "globalReference": {"name": "g"}}
SETTINGS = {"name": "x", "configMap": {"name": "c", "namespace": "a"}}
READS = {"mutate_patchStrategicMerge": {"data": {"x": "{{ x }}"}}}


def test_an_account_for_entries_that_are_read_at_admission_gets_a_warning() -> None:
    for obj, warned in (
        (own_rule(rule_context=[SETTINGS], **READS), True),
        (own_rule(rule_context=[ENTRY], **READS), False),
        (own_rule(), False),
    ):
        assert found(obj) == []
        place = "kube-retrofit.dev/service-account"
        obj["metadata"]["annotations"][place] = "team/bot"
        findings = found(obj)
        assert bool(findings) is warned
        for finding in findings:
            assert (finding.level, finding.code) == (Level.WARNING, "entry-at-admission")
            assert finding.location == f"metadata.annotations[{place}]"
            assert "for which r reads a context entry will fail" in finding.text


def on_existing(**changes: Any) -> dict[str, Any]:
    obj = own_rule(**changes)
    obj["metadata"]["annotations"]["kube-retrofit.dev/existing"] = "true"
    return obj


def test_the_annotation_for_existing_objects_is_checked() -> None:
    assert found(on_existing()) == []
    (never,) = found(on_existing(resources_operations=["CREATE"]))
    assert (never.level, never.code) == (Level.WARNING, "never-on-policy-update")
    assert never.text.startswith("kube-retrofit.dev/existing has no effect")
    reads = {"data": {"x": "{{ request.operation }}"}}
    (empty,) = found(on_existing(mutate_patchStrategicMerge=reads))
    assert (empty.level, empty.code) == (Level.NOTE, "no-request-on-policy-update")
    (guarded, *_) = found(on_existing(resources_namespaces=["kyverno"]))
    assert (guarded.level, guarded.code) == (Level.ERROR, "protected-target")
    assert guarded.location == f"{RULE}.match"
    plain = policy()
    plain["metadata"]["annotations"] = {"kube-retrofit.dev/existing": "true"}
    (unused,) = found(plain)
    assert (unused.level, unused.code) == (Level.WARNING, "unused-existing")


@pytest.mark.parametrize(
    ("changes", "value"),
    [
        ({}, "yes"),
        ({"mutate_patchStrategicMerge": {"data": {"x": "{{ request.roles }}"}}}, "true"),
    ],
)
def test_an_annotation_for_existing_objects_that_cannot_be_followed_is_invalid(
    changes: dict[str, Any], value: str
) -> None:
    obj = own_rule(spec_background=False, **changes)
    obj["metadata"]["annotations"]["kube-retrofit.dev/existing"] = value
    (finding,) = found(obj)
    place = "metadata.annotations[kube-retrofit.dev/existing]"
    assert (finding.level, finding.code, finding.location) == (Level.ERROR, "invalid", place)


@pytest.mark.parametrize("build", [policy, own_rule])
def test_a_json_patch_path_that_begins_with_a_variable_is_refused(build: Any) -> None:
    text = '[{"op": "add", "path": "{{ request.object.data.a }}/x", "value": "y"}]'
    obj = build(mutate_patchStrategicMerge=None, mutate_patchesJson6902=text)
    (refused,) = found(obj)
    assert refused.location == f"{RULE}.mutate.patchesJson6902[0].path"
    assert 'rule "r" should not have variables in patchesJSON6902 path section' in refused.text
    block = {"list": "request.object.spec.x", "patchesJson6902": text}
    (refused,) = found(build(mutate_patchStrategicMerge=None, mutate_foreach=[block]))
    assert refused.text == ('path "{{ request.object.data.a }}/x" must begin with a forward slash')


@pytest.mark.parametrize("operation", ["mutate", "generate", "verifyImages"])
def test_admission_cannot_be_turned_off_for_rules_that_change_objects(operation: str) -> None:
    obj = policy(spec_admission=False)
    rule = obj["spec"]["rules"][0]
    if operation != "mutate":
        rule[operation] = (
            {"kind": "x"} if operation == "generate" else [{"imageReferences": ["*"]}]
        )
        del rule["mutate"]
    (error,) = [item for item in found(obj) if item.level is Level.ERROR]
    assert (error.code, error.location) == ("admission-off", "spec.admission")


@pytest.mark.parametrize(
    ("operation", "value", "refused"),
    [
        ("validate", {"cel": {"expressions": []}}, False),
        ("validate", {"pattern": {}}, True),
        ("generate", {"kind": "x"}, True),
        ("verifyImages", [{"imageReferences": ["*"]}], True),
        ("mutate", {"patchStrategicMerge": {"data": {}}}, True),
    ],
)
def test_cel_preconditions_are_refused_outside_validate_cel(
    operation: str, value: Any, *, refused: bool
) -> None:
    obj = policy()
    rule = obj["spec"]["rules"][0]
    del rule["mutate"]
    rule |= {operation: value, "celPreconditions": [{"name": "a", "expression": "true"}]}
    errors = [item for item in found(obj) if item.level is Level.ERROR]
    assert bool(errors) is refused
    for error in errors:
        assert error.location == f"{RULE}.celPreconditions"
        assert error.text == "celPrecondition can only be used with validate.cel"


def test_every_rule_that_is_refused_is_named() -> None:
    obj = policy(rule_match={"any": [{"resources": {"kinds": ["{{ x }}"]}}]})
    good = policy()["spec"]["rules"][0]
    bad = policy(target_kind=None)["spec"]["rules"][0]
    obj["spec"]["rules"] += [{**good, "name": "good"}, {**bad, "name": "bad"}]
    assert [(item.level, item.code, item.location) for item in found(obj)] == [
        ("error", "invalid", f"{RULE}.match.any[0].resources.kinds[0]"),
        ("error", "invalid", "spec.rules[2].mutate.targets[0].kind"),
    ]


def test_a_finding_for_an_unknown_kind_applies_only_if_it_is_namespaced() -> None:
    (finding,) = found(policy(target_kind="Widget", target_namespace=None))
    assert finding.text.startswith("if the kind is namespaced, ")


def test_a_namespaced_policy_for_cluster_scoped_kinds_is_refused() -> None:
    obj = policy(
        top_kind="Policy",
        meta_namespace="a",
        resources_kinds=["Namespace"],
        target_kind="Node",
        target_namespace=None,
    )
    codes = {(item.code, item.level) for item in found(obj)}
    assert codes == {("cluster-kind-in-policy", "error"), ("cluster-scoped-target", "error")}


def test_an_append_without_targets_names_no_target_and_no_stand_in_of_a_variable() -> None:
    block = {
        "list": "request.object.spec.containers",
        "patchesJson6902": "- op: add\n"
        "  path: /spec/containers/{{elementIndex}}/env/-\n"
        "  value: {name: A, value: b}\n",
    }
    obj = policy(mutate_patchStrategicMerge=None, mutate_foreach=[block], mutate_targets=None)
    (finding,) = [item for item in found(obj) if item.code == "append"]
    assert finding.text.startswith("add at /spec/containers/*/env/- appends another element")
    assert "target" not in finding.cure


def test_values_of_condition_anchors_need_no_quotes() -> None:
    assert found(labelled({"labels": {"(x)": 1, "y": "z"}})) == []


def test_a_policy_without_a_spec_is_invalid() -> None:
    (finding,) = found({"apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {}})
    assert (finding.code, finding.location) == ("invalid", "spec.rules")


def test_annotations_for_limits_are_checked() -> None:
    marks = {"kube-retrofit.dev/pause": "true", "kube-retrofit.dev/promote": "auto"}
    obj = policy()
    obj["metadata"]["annotations"] = marks
    assert [item.code for item in lint_policy(obj, scope=scope)] == [
        "unknown-annotation",
        "promote-without-canary",
    ]
    obj["metadata"]["annotations"] = {"kube-retrofit.dev/rate": "fast"}
    (finding,) = lint_policy(obj, scope=scope)
    assert (finding.level, finding.code) == (Level.ERROR, "invalid")


@pytest.mark.parametrize(
    "changes",
    [
        {"target_namespace": "kyverno"},
        {
            "target_apiVersion": "admissionregistration.k8s.io/v1",
            "target_kind": "ValidatingWebhookConfiguration",
            "target_namespace": None,
        },
        {"target_apiVersion": "coordination.k8s.io/v1", "target_kind": "Lease"},
        {
            "target_apiVersion": "kyverno.io/v1",
            "target_kind": "Policy",
            "target_name": "{{ request.name }}",
        },
        {"top_kind": "Policy", "meta_namespace": "kyverno", "target_namespace": None},
    ],
)
def test_a_protected_target_is_refused(changes: dict[str, Any]) -> None:
    (finding,) = [item for item in found(policy(**changes)) if item.code == "protected-target"]
    assert (finding.level, finding.location) == (Level.ERROR, TARGET)


def call(path: str, **more: Any) -> dict[str, Any]:
    """Return a context entry that calls the API server with this path."""
    return {"name": "got", "apiCall": {"urlPath": path, **more}}


@pytest.mark.parametrize(
    ("entry", "refused"),
    [
        (call("/api/v1/namespaces/kyverno/secrets/{{ request.name }}"), True),
        (call("/apis/admissionregistration.k8s.io/v1/{{ request.name }}"), True),
        (call("/api/v1/namespaces/a/configmaps", method="POST"), True),
        (call("/api/v1/namespaces/{{ request.namespace }}/secrets/x"), False),
        (call("{{ request.object.data.path }}", method="POST"), False),
        (call("/apis/authorization.k8s.io/v1/subjectaccessreviews", method="POST"), False),
    ],
)
@pytest.mark.parametrize("place", ["rule", "target"])
def test_api_calls_to_protected_paths_are_refused(
    entry: dict[str, Any], place: str, *, refused: bool
) -> None:
    findings = found(policy(**{f"{place}_context": [entry]}))
    location = f"{TARGET if place == 'target' else RULE}.context[0].apiCall"
    protected = [item for item in findings if item.code == "protected-call"]
    assert [item.location for item in protected] == ([location] if refused else [])
    assert all("whatever rights" in item.cure for item in protected)


OWNERS = [{"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "u"}]


@pytest.mark.parametrize(
    "obj",
    [
        labelled({"finalizers": ["example.org/x"]}),
        labelled({"+(ownerReferences)": OWNERS}),
        patched("- {op: add, path: /metadata/finalizers/-, value: example.org/x}"),
        patched("- {op: remove, path: /metadata/ownerReferences}"),
        patched("- {op: move, from: /metadata/finalizers, path: /metadata/annotations/a}"),
        policy(
            mutate_patchStrategicMerge=None,
            mutate_foreach=[
                {
                    "list": "request.object.data",
                    "patchStrategicMerge": {"metadata": {"finalizers": None}},
                }
            ],
        ),
    ],
)
def test_a_patch_of_finalizers_or_owner_references_is_refused(obj: dict[str, Any]) -> None:
    (finding,) = [item for item in found(obj) if item.code == "guarded-metadata"]
    assert finding.level is Level.ERROR
    assert "whatever rights" in finding.cure


@pytest.mark.parametrize(
    "obj",
    [
        labelled({"(finalizers)": ["example.org/x"], "labels": {"x": "y"}}),
        patched("- {op: test, path: /metadata/finalizers/0, value: example.org/x}"),
    ],
)
def test_a_patch_that_only_tests_finalizers_is_not_refused(obj: dict[str, Any]) -> None:
    assert not [item for item in found(obj) if item.code == "guarded-metadata"]


@pytest.mark.parametrize(("account", "wrong"), [("shop/bot", False), ("bot", True)])
def test_an_account_without_a_namespace_is_an_error(account: str, *, wrong: bool) -> None:
    made = policy()
    made["metadata"]["annotations"] = {"kube-retrofit.dev/service-account": account}
    places = [item.location for item in found(made) if item.code == "invalid"]
    wanted = ["metadata.annotations[kube-retrofit.dev/service-account]"] if wrong else []
    assert places == wanted


def test_a_generated_rule_has_the_place_of_its_rule_although_an_earlier_one_is_invalid() -> None:
    on_pods = {"match": {"any": [{"resources": {"kinds": ["Pod"]}}]}}
    patch = {"patchStrategicMerge": {"metadata": {"labels": {"a": "{{ to_string(nothing) }}"}}}}
    obj = policy()
    obj["spec"]["rules"] = [
        {"name": "", **on_pods, "mutate": patch},
        {"name": "v", **on_pods, "validate": {"message": "x", "pattern": {}}},
        {"name": "m", **on_pods, "mutate": patch},
    ]
    places = {
        item.location for item in lint_policy(obj, scope=scope) if item.code == "unknown-name"
    }
    assert all(place.startswith("spec.rules[2]") for place in places)
    assert places
