"""Policies of kinitiras: selection, changes, refusals, and errors of the policy."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest

from reconciler.dialects.kinitiras import KINITIRAS
from reconciler.dialects.kinitiras.labelled import ANNOTATION, LABEL
from reconciler.engine.allowance import UNLIMITED, Allowance, Exhausted
from reconciler.engine.chain import Chain, by_policy
from reconciler.engine.context import Context, request_context
from reconciler.engine.match import Decision, Subject
from reconciler.engine.outcome import Convergence
from reconciler.engine.patch import SHIPPED
from reconciler.engine.program import FAIL, IGNORE, CompiledPolicy, Phase, Program
from reconciler.engine.run import RuleRun
from reconciler.errors import EvaluationError, InvalidPolicy

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web"}},
    "spec": {
        "containers": [
            {"name": "a", "resources": {"limits": {"cpu": "1500m", "memory": "1Gi"}}},
        ],
    },
}
DEPLOYMENT: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {"replicas": 3, "template": {"spec": {"containers": [{"name": "a"}]}}},
}


def policy(kind: str, spec: dict[str, Any], namespace: str = "") -> dict[str, Any]:
    meta: dict[str, Any] = {"name": "p", "annotations": {ANNOTATION: "all"}}
    if namespace:
        meta["namespace"] = namespace
    return {"apiVersion": "policy.kcloudlabs.io/v1alpha1", "kind": kind, "metadata": meta} | {
        "spec": spec
    }


def override(overriders: dict[str, Any], **rule: Any) -> Program:
    spec = {"overrideRules": [{"overriders": overriders, **rule}]}
    (program,) = KINITIRAS.compile(policy("ClusterOverridePolicy", spec)).programs
    return program


def refusal(condition: dict[str, Any], operations: list[str]) -> Program:
    template = {"type": "condition", "condition": condition}
    spec = {"validateRules": [{"targetOperations": operations, "template": template}]}
    (program,) = KINITIRAS.compile(policy("ClusterValidatePolicy", spec)).programs
    return program


def context(obj: dict[str, Any], old: dict[str, Any] | None = None, op: str = "UPDATE") -> Context:
    return request_context(
        operation=op,
        obj=obj,
        old_object=old,
        name="web",
        namespace="shop",
        kind=("", "v1", "Pod"),
        user_info=None,
    )


def changed(overriders: dict[str, Any], obj: Any = None, old: Any = None) -> dict[str, Any]:
    obj = POD if obj is None else obj
    found = override(overriders).mutation.apply(None, context(obj, old), obj, SHIPPED)
    assert isinstance(found, dict)
    return found


def test_template_then_origin_then_plaintext_are_applied() -> None:
    found = changed(
        {
            "plaintext": [{"path": "/metadata/labels/c", "op": "replace", "value": "plaintext"}],
            "origin": [
                {"type": "labels", "labels": {"b": "origin", "c": "origin"}},
                {"type": "hostNetwork", "hostNetwork": True},
            ],
            "template": {
                "type": "labels",
                "operation": "add",
                "value": {"stringMap": {"a": "template", "b": "template"}},
            },
        }
    )
    labels = {"app": "web", "a": "template", "b": "origin", "c": "plaintext"}
    assert found["metadata"]["labels"] == labels
    assert found["spec"]["hostNetwork"] is True
    assert POD["metadata"]["labels"] == {"app": "web"}


def test_plaintext_replace_adds_a_missing_field_and_remove_fails_on_it() -> None:
    found = changed({"plaintext": [{"path": "/spec/x", "op": "replace", "value": 1}]})
    assert found["spec"]["x"] == 1
    with pytest.raises(EvaluationError, match="missing key"):
        changed({"plaintext": [{"path": "/spec/y", "op": "remove"}]})


def affinity(count: int) -> dict[str, Any]:
    terms = [{"weight": number} for number in range(count)]
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}


@pytest.mark.parametrize(
    ("overriders", "spec"),
    [
        (
            {"plaintext": [{"path": "/spec/k", "op": "replace", "value": 1}] * 100},
            {str(number): 1 for number in range(2_000)},
        ),
        ({"plaintext": [{"path": "/spec/k", "op": "replace", "value": 1}] * 800}, {}),
        (
            {
                "template": {
                    "type": "tolerations",
                    "operation": "replace",
                    "tolerations": [{"key": f"a{number}"} for number in range(100)],
                }
            },
            {"tolerations": [{"key": f"b{number}"} for number in range(7_000)]},
        ),
        (
            {"template": {"type": "affinity", "operation": "add", "affinity": affinity(100)}},
            {"affinity": affinity(100)},
        ),
    ],
)
def test_changes_cost_steps_for_what_they_copy_and_compare(
    overriders: dict[str, Any], spec: dict[str, Any]
) -> None:
    pod = {**POD, "spec": spec}
    mutation = override(overriders).mutation
    with pytest.raises(Exhausted):
        mutation.apply(None, context(pod).within(Allowance(200_000)), pod, SHIPPED)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"value": {"string": "x"}}, "x"),
        ({"value": {"boolean": True}}, "true"),
        ({"value": {"float": "0.5"}}, "0.5"),
        ({"valueRef": {"from": "current", "path": "/metadata/name"}}, "web"),
        ({"valueRef": {"from": "old", "path": "spec.n"}}, "7"),
        ({"valueRef": {"from": "current", "path": "/spec/nothing"}}, None),
    ],
)
def test_an_annotation_gets_its_value(value: dict[str, Any], text: str | None) -> None:
    edit = {"type": "annotations", "operation": "add", "path": "example.com/a", **value}
    found = changed({"template": edit}, old={"spec": {"n": 7}})
    assert found["metadata"].get("annotations", {}).get("example.com/a") == text


def test_an_oversell_sets_requests_to_a_share_of_the_limits() -> None:
    factors = {"cpuFactor": "0.1", "memoryFactor": "0.5", "diskFactor": "0.5"}
    edit = {"type": "resourcesOversell", "operation": "replace", "resourcesOversell": factors}
    found = changed({"template": edit})["spec"]["containers"][0]["resources"]
    assert found["requests"] == {"cpu": "150m", "memory": "512Mi"}
    again = changed({"template": {**edit, "operation": "remove"}}, changed({"template": edit}))
    assert again["spec"]["containers"][0]["resources"]["requests"] == {}


def test_an_oversell_of_origin_multiplies_existing_requests_and_limits() -> None:
    pod = {**POD, "spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}}
    factors = {"requests": {"cpu": "0.5", "memory": "0.5"}, "limits": {"cpu": "0.1"}}
    edit = {"type": "resourceOversell", "operation": "replace", "resourcesOversell": factors}
    found = changed({"origin": [edit]}, pod)
    assert found["spec"]["containers"] == [{"resources": {"requests": {"cpu": "500m"}}}]


def test_braces_in_a_value_are_literal_text() -> None:
    values = {"value": {"stringMap": {"a": "{{metadata.name}}"}}}
    found = changed({"template": {"type": "annotations", "operation": "add", **values}})
    assert found["metadata"]["annotations"] == {"a": "{{metadata.name}}"}


def test_tolerations_and_affinity_are_set_in_the_pod_template_of_a_workload() -> None:
    toleration = {"key": "k", "operator": "Equal", "value": "v", "effect": "NoExecute"}
    found = changed(
        {"template": {"type": "tolerations", "operation": "add", "tolerations": [toleration]}},
        DEPLOYMENT,
    )
    pod = found["spec"]["template"]["spec"]
    assert pod["tolerations"] == [toleration]
    terms: dict[str, Any] = {"nodeSelectorTerms": [{"matchExpressions": []}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    edit = {"type": "affinity", "operation": "add", "affinity": {"nodeAffinity": required}}
    found = changed({"template": edit}, found)
    assert found["spec"]["template"]["spec"]["affinity"] == {"nodeAffinity": required}
    assert changed({"template": edit}, found) == found


def test_pod_fields_cannot_be_set_on_an_object_without_a_pod() -> None:
    edit = {"origin": [{"type": "schedulerName", "schedulerName": "x"}]}
    with pytest.raises(EvaluationError, match="a ConfigMap has no Pod"):
        changed(edit, {"kind": "ConfigMap", "metadata": {}})
    with pytest.raises(EvaluationError, match="there is no container 4"):
        changed({"origin": [{"type": "resourceRequirements", "containerCount": 4}]})


@pytest.mark.parametrize(
    ("condition", "refused"),
    [
        ({"cond": "Exist"}, True),
        ({"cond": "NotExist"}, False),
        ({"cond": "Exist", "affectMode": "allow"}, False),
        ({"cond": "Gt", "value": {"integer": 2}}, True),
        ({"cond": "Lte", "value": {"float": "2.5"}}, False),
        ({"cond": "Lte", "value": {"float": "2.5"}, "affectMode": "allow"}, True),
        ({"cond": "In", "value": {"integerSlice": [1, 3]}}, True),
        ({"cond": "NotIn", "value": {"integerSlice": [1, 3]}}, False),
        (
            {
                "cond": "Lt",
                "valueRef": {"from": "old", "path": "/spec/replicas"},
                "valueProcess": {"operation": "*", "operationWith": "50%"},
            },
            True,
        ),
        ({"cond": "Equal", "valueRef": {"from": "old", "path": "/spec/none"}}, False),
    ],
)
def test_a_condition_refuses_the_request_where_it_holds(
    condition: dict[str, Any], *, refused: bool
) -> None:
    data = {"dataRef": {"from": "current", "path": "/spec/replicas"}}
    program = refusal({**condition, **data, "message": "no"}, ["UPDATE"])
    asked = context(DEPLOYMENT, {"spec": {"replicas": 8}})
    assert program.condition is not None
    assert program.condition.evaluate(asked).passed is refused
    assert program.verdict is not None
    assert program.verdict.message(asked) == "p: no"


def test_a_condition_on_a_deletion_reads_the_deleted_object() -> None:
    data = {"from": "current", "path": "/metadata/annotations/no-delete"}
    program = refusal({"cond": "Exist", "message": "keep it", "dataRef": data}, ["DELETE"])
    old = {"metadata": {"annotations": {"no-delete": "yes"}}}
    assert program.condition is not None
    assert program.condition.evaluate(context({}, old, "DELETE")).passed
    assert not program.condition.evaluate(context({}, {"metadata": {}}, "DELETE")).passed


def annotated(kind: str, rules: list[dict[str, Any]], **annotations: str) -> CompiledPolicy:
    """Return a compiled policy for Pods with only these annotations of kube-retrofit."""
    field = "validateRules" if kind == "ClusterValidatePolicy" else "overrideRules"
    spec = {"resourceSelectors": [{"apiVersion": "v1", "kind": "Pod"}], field: rules}
    found = policy(kind, spec)
    written = {
        f"kube-retrofit.dev/{name.replace('_', '-')}": text for name, text in annotations.items()
    }
    return KINITIRAS.compile({**found, "metadata": {"name": "p", "annotations": written}})


ADDING: dict[str, Any] = {"overriders": {"origin": [{"type": "labels", "labels": {"a": "b"}}]}}


@pytest.mark.parametrize(
    ("new", "old", "fires"),
    [
        ("enabled", None, True),
        (None, "enabled", True),
        ("disabled", None, False),
        (None, None, False),
    ],
)
def test_a_rule_acts_if_the_new_or_the_old_object_has_the_label(
    new: str | None, old: str | None, *, fires: bool
) -> None:
    def labelled(value: str | None) -> dict[str, Any]:
        labels = {} if value is None else {LABEL[0]: value}
        return {**POD, "metadata": {**POD["metadata"], "labels": labels}}

    compiled = annotated("ClusterOverridePolicy", [ADDING])
    (program,) = compiled.programs
    assert compiled.object_labels == (LABEL,)
    assert program.condition is not None
    assert program.condition.evaluate(context(labelled(new), labelled(old))).passed is fires


def test_a_policy_for_all_objects_requires_no_label() -> None:
    compiled = annotated("ClusterOverridePolicy", [ADDING], objects="all")
    assert compiled.object_labels == ()
    assert compiled.programs[0].condition is None
    with pytest.raises(InvalidPolicy, match="expected labelled or all"):
        annotated("ClusterOverridePolicy", [ADDING], objects="some")


def test_the_failure_policy_is_fail_unless_the_policy_sets_ignore() -> None:
    assert annotated("ClusterOverridePolicy", [ADDING]).failure_policy == FAIL
    found = annotated("ClusterOverridePolicy", [ADDING], failure_policy=IGNORE)
    assert found.failure_policy == IGNORE
    with pytest.raises(InvalidPolicy, match="expected Fail or Ignore"):
        annotated("ClusterOverridePolicy", [ADDING], failure_policy="Maybe")


def test_removing_an_entry_requires_its_key() -> None:
    edit = {"type": "labels", "operation": "remove", "value": {"stringMap": {"a": "1"}}}
    with pytest.raises(InvalidPolicy, match="expected a key"):
        override({"template": edit})
    assert override({"template": {**edit, "path": "a"}}).mutation.convergence is Convergence.YES


class TestExisting:
    def test_rules_run_on_existing_objects_only_if_the_policy_enables_it(self):
        assert annotated("ClusterOverridePolicy", [ADDING]).on_existing == ()
        compiled = annotated("ClusterOverridePolicy", [ADDING], existing="true")
        (program,) = compiled.on_existing
        assert program.phases == frozenset({Phase.EXISTING})
        assert not program.projection.old_object
        (listing,) = program.match.listings()
        assert listing.kinds[0].kind == "Pod"

    def test_a_rule_that_reads_the_old_object_skips_existing_objects(self):
        reads = {"from": "old", "path": "/metadata/name"}
        template = {"type": "labels", "operation": "add", "path": "x", "valueRef": reads}
        rules = [{"overriders": {"template": template}}, ADDING]
        compiled = annotated("ClusterOverridePolicy", rules, existing="true")
        assert [item.rule for item in compiled.on_existing] == ["overrideRules[1]"]
        assert compiled.warnings == (
            "spec.overrideRules[0] does not apply to existing objects: it reads the old object",
        )
        alone = annotated("ClusterOverridePolicy", rules[:1], existing="true")
        assert alone.warnings == compiled.warnings

    def test_validate_rules_and_missing_selectors_are_refused_for_existing(self):
        data = {"from": "current", "path": "/a"}
        condition = {"cond": "Exist", "dataRef": data}
        rule = {"template": {"type": "condition", "condition": condition}}
        with pytest.raises(InvalidPolicy, match="validate rules do not apply to existing"):
            annotated("ClusterValidatePolicy", [rule], existing="true")
        found = policy("ClusterOverridePolicy", {"overrideRules": [ADDING]})
        found["metadata"]["annotations"]["kube-retrofit.dev/existing"] = "true"
        with pytest.raises(InvalidPolicy, match="it requires resourceSelectors"):
            KINITIRAS.compile(found)


class TestConnections:
    def kinds(
        self, operations: list[str], *selected: str
    ) -> list[tuple[str, str, tuple[str, ...]]]:
        data = {"from": "current", "path": "/command"}
        condition = {"cond": "Exist", "dataRef": data}
        rule = {"template": {"type": "condition", "condition": condition}}
        spec = {
            "resourceSelectors": [{"apiVersion": "v1", "kind": kind} for kind in selected],
            "validateRules": [{**rule, "targetOperations": operations}],
        }
        (program,) = KINITIRAS.compile(policy("ClusterValidatePolicy", spec)).programs
        return [
            (item.selector.kind, item.selector.subresource, item.operations)
            for item in program.match.kinds()
        ]

    def test_an_options_kind_selects_connections_to_its_subresource(self):
        assert self.kinds(["*"], "Pod", "PodExecOptions") == [
            ("Pod", "", ("CREATE", "UPDATE", "DELETE")),
            ("Pod", "exec", ("CONNECT",)),
        ]

    def test_a_policy_for_all_kinds_matches_connect_only_if_it_is_listed(self):
        assert self.kinds([]) == [("*", "", ("CREATE", "UPDATE", "DELETE"))]
        assert self.kinds(["DELETE", "CONNECT"]) == [
            ("*", "", ("DELETE",)),
            ("*", "*", ("CONNECT",)),
        ]


@pytest.mark.parametrize(
    ("namespace", "operations", "operation", "matches"),
    [
        ("", ["*"], "CONNECT", False),
        ("", [], "UPDATE", True),
        ("", ["CREATE"], "UPDATE", False),
        ("shop", [], "CREATE", True),
        ("other", [], "CREATE", False),
    ],
)
def test_a_policy_matches_only_its_operations_and_its_namespace(
    namespace: str, operations: list[str], operation: str, *, matches: bool
) -> None:
    plaintext = {"plaintext": [{"path": "/a", "op": "add", "value": 1}]}
    spec = {
        "resourceSelectors": [{"apiVersion": "v1", "kind": "Pod"}],
        "overrideRules": [{"targetOperations": operations, "overriders": plaintext}],
    }
    kind = "OverridePolicy" if namespace else "ClusterOverridePolicy"
    (program,) = KINITIRAS.compile(policy(kind, spec, namespace)).programs
    subject = Subject(
        obj=POD,
        group="",
        version="v1",
        kind="Pod",
        name="web",
        namespace="shop",
        operation=operation,
    )
    assert (program.match.evaluate(subject).decision is Decision.MATCH) is matches


@pytest.mark.parametrize("selectors", [[{"apiVersion": "v1", "kind": "Pod"}], []])
@pytest.mark.parametrize("subresource", ["ephemeralcontainers", "resize", "status"])
def test_a_change_of_a_subresource_is_not_matched(
    selectors: list[dict[str, str]], subresource: str
) -> None:
    spec = {"resourceSelectors": selectors, "overrideRules": [ADDING]}
    (program,) = KINITIRAS.compile(policy("ClusterOverridePolicy", spec)).programs
    subject = Subject(
        obj=POD,
        group="",
        version="v1",
        kind="Pod",
        subresource=subresource,
        name="web",
        namespace="shop",
        operation="UPDATE",
    )
    assert program.match.evaluate(subject).decision is Decision.NO_MATCH


@pytest.mark.parametrize(("namespace", "place"), [("shop", ""), ("", "shop")])
def test_a_namespace_object_is_not_matched_as_if_inside_itself(namespace: str, place: str) -> None:
    # The admission request for a Namespace gives its own name as the namespace.
    selector = {"apiVersion": "v1", "kind": "Namespace", "namespace": place}
    spec = {"resourceSelectors": [selector], "overrideRules": [ADDING]}
    kind = "OverridePolicy" if namespace else "ClusterOverridePolicy"
    (program,) = KINITIRAS.compile(policy(kind, spec, namespace)).programs
    obj = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}
    subject = Subject(
        obj=obj, group="", version="v1", kind="Namespace", name="shop", namespace="shop"
    )
    assert program.match.evaluate(subject).decision is Decision.NO_MATCH


def labelling(name: str, label: str, namespace: str = "", where: str = "") -> dict[str, Any]:
    edit = {"type": "labels", "labels": {label: "1"}}
    selector: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod"}
    if where:
        selector["labelSelector"] = {"matchLabels": {where: "1"}}
    kind = "OverridePolicy" if namespace else "ClusterOverridePolicy"
    spec = {
        "resourceSelectors": [selector],
        "overrideRules": [{"overriders": {"origin": [edit]}}],
    }
    found = policy(kind, spec, namespace)
    return {**found, "metadata": {**found["metadata"], "name": name}}


def applied(*policies: dict[str, Any]) -> list[str]:
    """Return the labels that policies add to a Pod, in order."""
    compiled = [KINITIRAS.compile(item) for item in policies]
    chain = Chain(
        groups=by_policy(program for item in compiled for program in item.programs), obj=POD
    )
    subject = Subject(
        obj=POD,
        group="",
        version="v1",
        kind="Pod",
        name="web",
        namespace="shop",
        operation="CREATE",
    )

    def run_on(program: Program, obj: Mapping[str, Any]) -> RuleRun:
        return RuleRun.of(
            program, subject.with_object(obj, UNLIMITED), context(dict(obj), op="CREATE")
        )

    for step in chain.steps():
        chain.settle(step.evaluate(partial(run_on, step.program)))
    return [name for name in chain.obj["metadata"]["labels"] if name != "app"]


def test_cluster_policies_run_before_namespaced_ones_each_sorted_by_name() -> None:
    policies = [
        labelling("a", "own-a", "shop"),
        labelling("z", "all-z"),
        labelling("b", "all-b"),
    ]
    assert applied(*policies) == ["all-b", "all-z", "own-a"]
    assert applied(*reversed(policies)) == ["all-b", "all-z", "own-a"]


def test_cluster_policies_do_not_select_by_changes_of_other_cluster_policies() -> None:
    first, second = labelling("a", "one"), labelling("b", "two", where="one")
    assert applied(first, second) == ["one"]
    own = labelling("b", "two", "shop", where="one")
    assert applied(first, own) == ["one", "two"]


def test_a_selector_with_a_name_ignores_its_label_selector() -> None:
    labels: dict[str, Any] = {"labelSelector": {"matchLabels": {"app": "db"}}}
    selectors: list[dict[str, Any]] = [{"name": "web", **labels}, labels]
    spec = {
        "resourceSelectors": [{"apiVersion": "v1", "kind": "Pod", **item} for item in selectors],
        "overrideRules": [{"overriders": {"plaintext": [{"path": "/a", "op": "remove"}]}}],
    }
    (program,) = KINITIRAS.compile(policy("ClusterOverridePolicy", spec)).programs
    subject = Subject(obj=POD, group="", version="v1", kind="Pod", name="web", namespace="shop")
    assert program.match.evaluate(subject).decision is Decision.MATCH
    assert [item.label_selector for item in program.match.listings()] == ["", "app=db"]


@pytest.mark.parametrize("current", [5, "x", {"key": "x"}])
@pytest.mark.parametrize("operation", ["add", "remove"])
def test_tolerations_that_are_no_list_are_taken_as_none(current: Any, operation: str) -> None:
    given = [{"key": "a", "operator": "Exists"}]
    pod = {**POD, "spec": {"tolerations": current}}
    found = changed(
        {"origin": [{"type": "tolerations", "operation": operation, "tolerations": given}]}, pod
    )
    assert found["spec"]["tolerations"] == (given if operation == "add" else None)


@pytest.mark.parametrize(
    ("overriders", "place", "reason"),
    [
        ({}, "overriders", "expected plaintext, template, origin or cue"),
        ({"cue": ["x"]}, "overriders.cue", "expected a string, got a list"),
        ({"renderedCue": "x" * 100_001}, "overriders.renderedCue", "longer than 100000"),
        ({"plaintext": [{"path": "/a", "op": "move"}]}, "plaintext[0].op", "add, remove"),
        ({"plaintext": [{"path": "a", "op": "remove"}]}, "plaintext[0].path", "forward slash"),
        ({"origin": [{"type": "x"}]}, "origin[0].type", "expected one of annotations"),
        (
            {"origin": [{"type": "hostNetwork", "operation": "add"}]},
            "origin[0].operation",
            "can only be replaced",
        ),
        (
            {"template": {"type": "labels", "operation": "add", "path": "a"}},
            "template.value",
            "expected a value or a valueRef",
        ),
        (
            {
                "template": {
                    "type": "labels",
                    "operation": "add",
                    "path": "a",
                    "value": {"string": "x", "integer": 1},
                }
            },
            "template.value",
            "found string, integer",
        ),
        (
            {
                "template": {
                    "type": "labels",
                    "operation": "add",
                    "path": "a",
                    "valueRef": {"from": "elsewhere", "path": "a"},
                }
            },
            "template.valueRef.from",
            "expected one of current, old, k8s, owner, http",
        ),
        (
            {
                "template": {
                    "type": "resourcesOversell",
                    "operation": "add",
                    "resourcesOversell": {"cpuFactor": "half"},
                }
            },
            "template.resourcesOversell.cpuFactor",
            "between 0 and 1",
        ),
        *(
            (
                {
                    "origin": [
                        {
                            "type": "resourceOversell",
                            "resourcesOversell": {"limits": {"cpu": factor}},
                        }
                    ]
                },
                "origin[0].resourcesOversell.limits.cpu",
                "expected a factor",
            )
            for factor in ("-1", True, " 0.5", "\N{ARABIC-INDIC DIGIT FIVE}", 10**400)
        ),
        (
            {
                "template": {
                    "type": "resources",
                    "operation": "add",
                    "resources": {"limits": {"cpu": "much"}},
                }
            },
            "template.resources.limits.cpu",
            "expected a quantity",
        ),
        *(
            ({"origin": [{"type": field, field: value, **more}]}, f"origin[0].{place}", reason)
            for field, value, more, place, reason in (
                (
                    "resourceRequirements",
                    {"limits": {"cpu": "1K"}},
                    {},
                    "resourceRequirements.limits.cpu",
                    "expected a quantity",
                ),
                (
                    "resourceRequirements",
                    {"limit": {"cpu": "1"}},
                    {},
                    "resourceRequirements.limit",
                    "unknown field",
                ),
                ("affinity", {"nodeAffinty": {}}, {}, "affinity.nodeAffinty", "unknown field"),
                (
                    "affinity",
                    {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": ["x"]}},
                    {},
                    "affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0]",
                    "expected an object",
                ),
                (
                    "affinity",
                    {
                        "nodeAffinity": {
                            "requiredDuringSchedulingIgnoredDuringExecution": {
                                "nodeSelectorTerms": ["x"]
                            }
                        }
                    },
                    {},
                    (
                        "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
                        ".nodeSelectorTerms[0]"
                    ),
                    "expected an object",
                ),
                (
                    "topologySpreadConstraints",
                    ["zone"],
                    {},
                    "topologySpreadConstraints[0]",
                    "expected an object",
                ),
                ("labels", {"a": "b"}, {"replace": "true"}, "replace", "expected true or false"),
            )
        ),
        *(
            (
                {"template": {"type": "tolerations", "operation": "add", "tolerations": [item]}},
                f"template.tolerations[0].{place}",
                reason,
            )
            for item, place, reason in (
                ({"key": 5}, "key", "expected a string, got a number"),
                ({"key": "a", "value": False}, "value", "expected a string, got a boolean"),
                (
                    {"key": "a", "effect": "NoExecute", "tolerationSeconds": "30"},
                    "tolerationSeconds",
                    "expected an integer",
                ),
            )
        ),
    ],
)
def test_an_invalid_overrider_is_refused_with_its_location(
    overriders: dict[str, Any], place: str, reason: str
) -> None:
    with pytest.raises(InvalidPolicy) as caught:
        override(overriders)
    assert caught.value.location.startswith("spec.overrideRules[0].overriders")
    assert caught.value.location.endswith(place)
    assert reason in caught.value.reason


def test_all_errors_of_a_policy_are_reported_at_once() -> None:
    spec = {"resourceSelectors": [{"kind": "Pod"}], "overrideRules": [{"targetOperations": ["x"]}]}
    compiled, wrong = KINITIRAS.examine(policy("ClusterOverridePolicy", spec))
    assert compiled is None
    assert {error.location for error in wrong} == {
        "spec.resourceSelectors[0].apiVersion",
        "spec.overrideRules[0].targetOperations[0]",
    }
