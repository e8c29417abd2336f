"""The effect of ModRules on an object that is written."""

import json
from dataclasses import replace
from typing import Any

import pytest

from reconciler.api.meta import Object
from reconciler.api.rights import Need
from reconciler.dialects.kubemod import KUBEMOD
from reconciler.dialects.kubemod.view import LAST_APPLIED, References, View
from reconciler.engine.allowance import Allowance, Exhausted
from reconciler.engine.evaluate import change
from reconciler.engine.loads import NeedsLoad
from reconciler.engine.match import Decision
from reconciler.engine.outcome import Convergence, RuleStatus
from reconciler.engine.patch import SHIPPED
from reconciler.engine.program import Phase
from reconciler.errors import InvalidPolicy
from tests.unit.dialects.kubemod.modrules import (
    POD,
    context_of,
    errors,
    make_pod,
    modrule,
    patching,
    program_of,
    refusals,
    request,
    run_of,
)

NAMESPACE = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": "shop", "labels": {"team": "blue"}, "managedFields": [{}]},
}
SEEN = {"op": "add", "path": "/seen", "value": "true"}
WIDE = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}}
WIDGET = {**WIDE, "metadata": {"name": "w", "namespace": "shop"}}
NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": {"zone": "z-1"}}}


def labels(obj: Any) -> dict[str, Any]:
    found: dict[str, Any] = obj["metadata"]["labels"]
    return found


def test_every_match_of_a_select_is_patched_with_its_own_keys_and_value() -> None:
    rule = patching(
        {
            "op": "replace",
            "select": '$.spec.containers[? @.image =~ "^shop/"].image',
            "path": "/spec/containers/#0/image",
            "value": '{{ regexReplaceAll "shop/(.*)" .SelectedItem "mirror/${1}" }}',
        },
        {
            "op": "add",
            "select": "$.spec.containers[*]",
            "path": "/metadata/labels/c#0",
            "value": "n-{{ .#0 }}-of-{{ len .Target.spec.containers }}",
        },
    )
    made = request([rule], make_pod()).obj
    assert [item["image"] for item in made["spec"]["containers"]] == [
        "mirror/web:1",
        "tools/log:2",
    ]
    assert labels(made) == {"app": "web", "c0": "n-0-of-2", "c1": "n-1-of-2"}


def test_a_captured_key_is_named_by_a_digit_of_ascii() -> None:
    path = "/metadata/labels/#\u0663"
    rule = patching({"op": "add", "select": "$.kind", "path": path, "value": ".#\u0663"})
    assert labels(request([rule], make_pod()).obj) == {"app": "web", "#\u0663": ".#\u0663"}


def test_templates_of_all_operations_read_the_object_before_the_rule() -> None:
    rule = patching(
        {"op": "add", "path": "/metadata/labels/app", "value": "new"},
        {
            "op": "add",
            "path": "/metadata/labels/was",
            "value": "{{ .Target.metadata.labels.app }}",
        },
    )
    assert labels(request([rule], make_pod()).obj) == {"app": "new", "was": "web"}


def test_several_elements_of_one_list_are_removed_whatever_their_order() -> None:
    pod = make_pod(spec={"containers": [{"name": name} for name in "abcdefghijkl"]})
    for select in ("$.spec.containers[0:11]", "$.spec.containers[0:11:-1]"):
        rule = patching({"op": "remove", "select": select, "path": "/spec/containers/#0"})
        assert request([rule], pod).obj["spec"]["containers"] == [{"name": "l"}]


def test_a_captured_key_with_special_characters_is_one_path_segment() -> None:
    pod = make_pod()
    pod["metadata"]["annotations"] = {"a/b": "1", "c~d": "2", 'e["f"]': "3"}
    rule = patching(
        {
            "op": "replace",
            "select": "$.metadata.annotations[*]",
            "path": "/metadata/annotations/#0",
            "value": '"{{ .SelectedItem }}{{ .SelectedItem }}"',
        }
    )
    made = request([rule], pod).obj["metadata"]["annotations"]
    assert made == {"a/b": "11", "c~d": "22", 'e["f"]': "33"}


@pytest.mark.parametrize(
    ("key", "next_one"),
    [("7", "8"), ("07", "07+1"), (str(2**63), f"{2**63}+1"), ("1" * 5_000, "1" * 5_000 + "+1")],
    ids=["integer", "with a leading zero", "too large", "far too large"],
)
def test_a_captured_key_is_an_integer_for_a_template_where_go_reads_one(
    key: str, next_one: str
) -> None:
    rule = patching(
        {
            "op": "add",
            "select": "$.spec.counts[*]",
            "path": "/metadata/next",
            "value": '"{{ if kindIs `int` .#0 }}{{ add .#0 1 }}{{ else }}{{ .#0 }}+1{{ end }}"',
        }
    )
    pod = make_pod(spec={"counts": {key: 1}})
    assert request([rule], pod).obj["metadata"]["next"] == next_one


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        (
            {"op": "replace", "path": "/spec/nope", "value": "1"},
            "replace operation does not apply",
        ),
        ({"op": "add", "path": "/spec/containers/9", "value": "1"}, "invalid index"),
        (
            {"op": "add", "path": "/metadata/x", "value": '{{ fail "no owner" }}'},
            "spec.patch[1].value: ",
        ),
        ({"op": "add", "path": "/metadata/x", "value": "{{ .Nope }}"}, "spec.patch[1].value: "),
        (
            {"op": "add", "path": "/metadata/x", "value": "a: {{ .Target.metadata.labels }}: b"},
            "spec.patch[1].value: the output of the template is not YAML",
        ),
        (
            {"op": "add", "path": "/metadata/x", "value": '{{ trunc 2 "aé" }}'},
            "spec.patch[1].value: the output of the template is not YAML: it is not valid UTF-8",
        ),
        (
            {"op": "replace", "path": "/metadata", "value": "text"},
            "something that is not an object",
        ),
        (
            {"op": "add", "path": "/spec/x", "value": "{{ .Target.spec.ill | sha256sum }}"},
            "spec.patch[1].value: the object contains a string that is not valid Unicode",
        ),
        (
            {"op": "add", "select": "$..name", "path": "/metadata/#7", "value": "1"},
            "spec.patch[1].path: #7 does not exist",
        ),
    ],
)
def test_a_failing_rule_changes_nothing_and_other_rules_still_apply(
    patch: dict[str, Any], expected: str
) -> None:
    before = {"op": "add", "path": "/metadata/labels/half", "value": "done"}
    other = patching({"op": "add", "path": "/metadata/labels/b", "value": "2"}, name="other")
    pod = make_pod()
    pod["spec"]["ill"] = "\ud800"
    chain = request([patching(before, patch), other], pod)
    assert labels(chain.obj) == {"app": "web", "b": 2}
    (message,) = errors(chain)
    assert expected in message


def test_tiers_run_in_ascending_order_on_the_result_of_the_previous_one() -> None:
    def rule(name: str, tier: int, match: dict[str, Any], key: str) -> Object:
        patch = [{"op": "add", "path": f"/metadata/labels/{key}", "value": "yes-it-is"}]
        fields = {"type": "Patch", "executionTier": tier, "match": [POD, match], "patch": patch}
        return modrule(fields, name=name)

    has_one = {"select": "$.metadata.labels.one"}
    rules = [
        rule("late", 7, has_one, "two"),
        rule("early", -3, {"select": "$.metadata.labels.app"}, "one"),
        rule("same", -3, has_one, "never"),
    ]
    assert labels(request(rules, make_pod()).obj).keys() == {"app", "one", "two"}


def test_a_reject_rule_reads_the_patched_object_and_reports_its_name() -> None:
    rules = [
        modrule(
            type="Reject",
            match=[{"select": '$.metadata.labels.app == "bad"'}],
            rejectMessage="{{ .Target.metadata.name }} in {{ .Namespace }}",
            name="no-bad",
        ),
        modrule(type="Reject", match=[POD], name="no-pods", rejectMessage="{{ .Nope }}"),
        modrule(type="Reject", match=[POD], name="none-at-all"),
        modrule(type="Reject", match=[{"select": "$.spec.nope"}], name="silent"),
        patching({"op": "replace", "path": "/metadata/labels/app", "value": "bad"}),
    ]
    assert refusals(request(rules, make_pod())) == [
        'shop/no-bad: "web-1 in shop"',
        "shop/no-pods",
        "shop/none-at-all",
    ]


@pytest.mark.parametrize(
    ("namespace", "pattern", "obj", "concerned"),
    [
        ("shop", None, make_pod(), True),
        ("other", None, make_pod(), False),
        ("other", ".*", make_pod(), False),
        ("kubemod-system", None, make_pod(), False),
        ("kubemod-system", "", make_pod(), False),
        ("kubemod-system", "^sh", make_pod(), True),
        ("kubemod-system", "op$", make_pod(), True),
        ("kubemod-system", "^x", make_pod(), False),
        ("kubemod-system", None, NODE, True),
        ("kubemod-system", ".*", NODE, True),
        ("kubemod-system", ".+", NODE, False),
        ("shop", None, {**NAMESPACE, "metadata": {"name": "shop", "namespace": "shop"}}, False),
        ("kubemod-system", None, NAMESPACE, True),
    ],
)
def test_a_rule_applies_in_the_namespaces_that_its_own_namespace_allows(
    namespace: str, pattern: str | None, obj: Object, concerned: bool
) -> None:
    fields: dict[str, Any] = {"targetNamespaceRegex": pattern} if pattern is not None else {}
    patch = [{"op": "add", "path": "/metadata/seen", "value": "true"}]
    rule = modrule(
        type="Patch",
        match=[{"select": "$.metadata.name"}],
        patch=patch,
        namespace=namespace,
        **fields,
    )
    assert ("seen" in request([rule], obj).obj["metadata"]) is concerned


@pytest.mark.parametrize(
    ("namespace", "pattern", "obj", "concerned"),
    [
        ("kubemod-system", None, WIDGET, False),
        ("kubemod-system", ".*", WIDGET, True),
        ("kubemod-system", None, WIDE, True),
        ("shop", None, WIDGET, True),
        ("shop", None, WIDE, False),
        # Its name must not count as the namespace that it is in.
        ("shop", None, {**NAMESPACE, "metadata": {"name": "shop", "namespace": "shop"}}, False),
        ("kubemod-system", None, {**NAMESPACE, "metadata": {"name": "shop"}}, True),
        ("kubemod-system", "^shop$", {**NAMESPACE, "metadata": {"name": "shop"}}, False),
    ],
)
def test_a_rule_that_names_a_kind_applies_where_its_namespace_allows(
    namespace: str, pattern: str | None, obj: Object, concerned: bool
) -> None:
    fields: dict[str, Any] = {"targetNamespaceRegex": pattern} if pattern is not None else {}
    match = [{"select": "$.kind", "matchValue": obj["kind"]}]
    rule = modrule(type="Patch", match=match, patch=[SEEN], namespace=namespace, **fields)
    assert ("seen" in request([rule], obj).obj) is concerned


@pytest.mark.parametrize("subresource", ["status", "ephemeralcontainers", "resize"])
def test_a_change_of_a_subresource_is_not_matched(subresource: str) -> None:
    program = program_of(patching(SEEN))
    pod = run_of(program, make_pod(), "UPDATE").subject
    assert program.match.evaluate(pod).decision is Decision.MATCH
    changed = replace(pod, subresource=subresource)
    assert program.match.evaluate(changed).decision is Decision.NO_MATCH


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"type": "Reject"}, "a rule of type Reject does not apply to existing objects"),
        (
            {"type": "Patch", "admissionOperations": ["DELETE"], "patch": [SEEN]},
            "a rule for DELETE does not apply to existing objects",
        ),
    ],
)
def test_a_rule_that_changes_nothing_that_exists_is_refused_with_the_annotation(
    fields: dict[str, Any], reason: str
) -> None:
    rule = modrule(match=[POD], annotations={"kube-retrofit.dev/existing": "true"}, **fields)
    with pytest.raises(InvalidPolicy, match=reason):
        KUBEMOD.compile(rule)


def test_a_rule_respects_its_operations_and_the_ignore_label_of_a_namespace() -> None:
    patch = {"op": "add", "path": "/metadata/labels/seen", "value": "true"}
    rule = patching(patch)
    assert "seen" in labels(request([rule], make_pod(), "UPDATE").obj)
    assert "seen" not in labels(request([rule], make_pod(), "DELETE").obj)
    deleting = patching(patch, admissionOperations=["DELETE"])
    assert "seen" in labels(request([deleting], make_pod(), "DELETE").obj)
    ignored = {"admission.kubemod.io/ignore": "true"}
    assert "seen" not in labels(request([rule], make_pod(), labels=ignored).obj)
    assert "seen" in labels(
        request(
            [rule],
            make_pod(),
            labels={**ignored, "a": "b"} | {"admission.kubemod.io/ignore": "no"},
        ).obj
    )


def test_the_namespace_can_be_read_as_a_reference_that_is_not_stored() -> None:
    rule = patching(
        {
            "op": "add",
            "path": "/metadata/labels/team",
            "value": "{{ .Target.syntheticRefs.namespace.metadata.labels.team }}",
        }
    )
    rule["spec"]["match"] = [POD, {"select": "$.syntheticRefs.namespace.metadata.labels.team"}]
    with pytest.raises(NeedsLoad) as needed:
        run_of(program_of(rule), make_pod()).decide()
    assert "/api/v1/namespaces/shop" in str(needed.value)
    made = request([rule], make_pod(), cluster=[NAMESPACE]).obj
    assert labels(made)["team"] == "blue"
    assert "syntheticRefs" not in made


def test_managed_fields_and_the_last_applied_of_a_namespace_are_not_shown() -> None:
    shown = {
        "op": "add",
        "path": "/metadata/annotations/shown",
        "value": "{{ .Target.metadata | toJson | quote }}",
    }
    pod = make_pod()
    pod["metadata"] = {**pod["metadata"], "annotations": {"a": "b"}, "managedFields": [{}]}
    made = request([patching(shown)], pod).obj
    assert json.loads(made["metadata"]["annotations"]["shown"]) == {
        name: value for name, value in pod["metadata"].items() if name != "managedFields"
    }
    assert made["metadata"]["managedFields"] == [{}]
    shown = {**shown, "value": "{{ .Target.syntheticRefs.namespace.metadata | toJson | quote }}"}
    last = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "a": "b"}
    meta = {"name": "shop", "labels": {"team": "blue"}, "annotations": last, "managedFields": [{}]}
    namespace = {**NAMESPACE, "metadata": meta}
    made = request([patching(shown)], pod, cluster=[namespace]).obj
    assert json.loads(made["metadata"]["annotations"]["shown"]) == {
        "name": "shop",
        "labels": {"team": "blue"},
        "annotations": {"a": "b"},
    }


def test_an_object_of_another_kind_loads_no_reference() -> None:
    rule = patching({"op": "add", "path": "/metadata/labels/x", "value": "y"})
    rule["spec"]["match"] = [POD, {"select": "$.syntheticRefs.namespace.metadata.labels.team"}]
    obj = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "shop"}}
    program = program_of(rule)
    assert not run_of(program, obj).decide().fires
    (need,) = program.binding.read_rights()
    assert isinstance(need, Need)
    (right,) = need.options
    # Only its own Namespace, which a Role in that namespace makes readable.
    assert (right.resource, right.namespace, right.name) == ("namespaces", "shop", "shop")


@pytest.mark.parametrize("name", ["ref.kubemod.io/node", "ref.kubemod.io/nodename"])
def test_the_node_reference_is_read_from_the_annotation_of_an_updated_pod(name: str) -> None:
    rule = patching(
        {
            "op": "add",
            "path": "/metadata/labels/zone",
            "value": '"{{ index .Target.syntheticRefs.node.metadata.labels "zone" }}"',
        }
    )
    rule["spec"]["match"] = [POD, {"select": "$.syntheticRefs.node.metadata.labels"}]
    pod = make_pod()
    assert "zone" not in labels(request([rule], pod, "UPDATE", cluster=[NODE]).obj)
    pod["metadata"]["annotations"] = {name: "n1"}
    assert labels(request([rule], pod, "UPDATE", cluster=[NODE]).obj)["zone"] == "z-1"
    # A name that leads elsewhere is not even looked up.
    for other in ("../secrets/x", "n1/status", "n1?x=y", "N1", "", 1):
        pod["metadata"]["annotations"] = {name: other}
        assert not run_of(program_of(rule), pod, "UPDATE").decide().fires


def test_the_node_reference_of_an_existing_pod_is_the_node_it_runs_on() -> None:
    pod = make_pod()
    pod["spec"]["nodeName"] = "n1"
    context = context_of(pod, "", [NODE])
    view = View(context, pod, References(node=True))
    assert view.full()["syntheticRefs"]["node"]["metadata"]["name"] == "n1"
    assert View(context_of(pod), pod, References(node=True)).full()["syntheticRefs"] == {}


def test_last_applied_is_patched_in_requests_but_not_in_existing_objects() -> None:
    name = "kubectl.kubernetes.io/last-applied-configuration"
    pod = make_pod()
    applied = {"metadata": {"labels": {"app": "web"}}, "spec": {"x": "<&>é"}}
    pod["metadata"]["annotations"] = {name: json.dumps(applied)}
    rule = patching({"op": "add", "path": "/metadata/labels/b", "value": "2"})
    made = request([rule], pod).obj["metadata"]["annotations"][name]
    assert json.loads(made) == {
        "metadata": {"labels": {"app": "web", "b": 2}},
        "spec": {"x": "<&>é"},
    }
    program = program_of(rule)
    for index, operation in ((0, "CREATE"), (None, "")):
        existing = change(program, index, context_of(pod, operation), pod).after
        assert existing["metadata"]["annotations"] == pod["metadata"]["annotations"]
        assert labels(existing)["b"] == 2


@pytest.mark.parametrize(
    ("operation", "kept"),
    [
        ({"op": "add", "path": "/metadata/annotations", "value": "a: b"}, True),
        (
            {
                "op": "replace",
                "path": "/metadata",
                "value": "{name: web-1, namespace: shop, annotations: {a: b}}",
            },
            True,
        ),
        ({"op": "remove", "path": "/metadata/annotations"}, False),
        (
            {"op": "remove", "path": f"/metadata/annotations/{LAST_APPLIED.replace('/', '~1')}"},
            False,
        ),
    ],
)
def test_last_applied_outlives_a_replaced_map_of_annotations(
    operation: dict[str, str], kept: bool
) -> None:
    pod = make_pod()
    applied = json.dumps({"metadata": {"annotations": {"c": "d"}}})
    pod["metadata"]["annotations"] = {LAST_APPLIED: applied, "c": "d"}
    rule = patching(operation)
    made = request([rule], pod).obj["metadata"].get("annotations", {})
    existing = change(program_of(rule), 0, context_of(pod, "CREATE"), pod).after
    if kept:
        assert json.loads(made.pop(LAST_APPLIED))["metadata"]["annotations"] == {"a": "b"}
        assert made == {"a": "b"}
        assert existing["metadata"]["annotations"] == {LAST_APPLIED: applied, "a": "b"}
    else:
        assert LAST_APPLIED not in made
        assert LAST_APPLIED not in existing["metadata"].get("annotations", {})


def test_an_empty_value_makes_an_empty_label_on_existing_objects() -> None:
    rule = patching(
        {"op": "add", "path": "/metadata/labels/worker", "value": ""},
        annotations={"kube-retrofit.dev/existing": "true"},
    )
    (program,), pod = KUBEMOD.compile(rule).on_existing, make_pod()
    made = change(program, 0, context_of(pod, ""), pod)
    assert (made.status, labels(made.after)) == (RuleStatus.PASS, {"app": "web", "worker": ""})
    again = change(program, 0, context_of(made.after, ""), made.after)
    assert (again.status, again.unchanged) == (RuleStatus.SKIP, True)


def test_a_patch_that_fails_at_its_own_result_says_which_operation_and_why() -> None:
    rule = patching(
        {"op": "add", "path": "/metadata/labels/seen", "value": "yes"},
        {"op": "replace", "path": "/metadata/labels/app", "value": "other"},
        {"op": "remove", "path": "/metadata/labels/app"},
        annotations={"kube-retrofit.dev/existing": "true"},
    )
    (program,), pod = KUBEMOD.compile(rule).on_existing, make_pod()
    found = change(program, 0, context_of(pod, ""), pod)
    assert (found.status, found.after) == (RuleStatus.SKIP, pod)
    assert found.message == (
        "applying it again fails: spec.patch[1]: replace operation does not apply:"
        " doc is missing key: /metadata/labels/app: missing value"
    )
    assert found.bare == "applying it again fails: spec.patch[1]: the operation does not apply"


def test_last_applied_is_written_in_the_format_of_kubectl() -> None:
    name = "kubectl.kubernetes.io/last-applied-configuration"
    pod = make_pod()
    text = r'{"metadata":{"labels":{"b":"\u003c\u0026é"},"name":"web-1"},"spec":{"n":1}}'
    pod["metadata"]["annotations"] = {name: text + "\n"}
    rule = patching(
        {"op": "add", "path": "/metadata/labels/a", "value": "{z: <, k: '>'}"},
        {"op": "add", "path": "/metadata/annotations/x", "value": "1"},
    )
    assert request([rule], pod).obj["metadata"]["annotations"][name] == (
        r'{"metadata":{"annotations":{"x":1},"labels":{"a":{"k":"\u003e","z":"\u003c"},'
        r'"b":"\u003c\u0026é"},"name":"web-1"},"spec":{"n":1}}'
    )


@pytest.mark.parametrize(
    "text",
    [
        "whatever",
        "[]",
        None,
        "{",
        r'{"spec":{"containers":[{"name":"a","x":"\ud800"}]}}',
        '{"spec":{"containers":[{"name":"a","x":1e400}]}}',
    ],
)
def test_last_applied_is_left_unchanged_where_it_cannot_be_patched(text: str | None) -> None:
    pod = make_pod()
    pod["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": text}
    rule = patching({"op": "replace", "path": "/spec/containers/0/name", "value": "z"})
    made = request([rule], pod).obj
    assert made["spec"]["containers"][0]["name"] == "z"
    assert made["metadata"]["annotations"] == pod["metadata"]["annotations"]


@pytest.mark.parametrize(
    ("item", "held"),
    [
        ({"select": "$.spec.containers[*].name", "matchValue": "log"}, True),
        ({"select": "$.spec.containers[*].name", "matchValue": "log", "matchFor": "All"}, False),
        (
            {
                "select": "$.spec.containers[*].name",
                "matchValues": ["log", "web"],
                "matchFor": "All",
            },
            True,
        ),
        ({"select": "$.spec.containers[*].ports[0].containerPort", "matchValue": "80"}, True),
        ({"select": "$.spec.containers[*].ports", "matchFor": "All"}, True),
        ({"select": "[$.spec.nope, $.metadata.name]", "matchFor": "All"}, False),
        ({"select": "[$.spec.nope, $.metadata.name]"}, True),
        ({"select": "$.spec.nope", "negate": True}, True),
        ({"select": "$.spec.nope == 1"}, False),
        ({"select": "$.spec.nope != 1"}, True),
        ({"select": "$.spec.containers[7].name"}, False),
        ({"select": "$.spec.containers[7].name", "negate": True}, True),
        ({"select": "length($.spec.containers) > 1", "matchValue": "ignored"}, True),
        ({"select": "$.metadata.name", "matchRegex": "^web", "matchValue": "other"}, False),
        ({"select": "$.metadata.name", "matchRegex": "EB", "negate": True}, True),
        ({"select": "$.metadata.name", "matchValues": []}, True),
    ],
)
def test_a_match_item_holds_or_fails(item: dict[str, Any], held: bool) -> None:
    rule = patching({"op": "add", "path": "/metadata/labels/x", "value": "y"})
    rule["spec"]["match"] = [POD, item]
    decision = run_of(program_of(rule), make_pod()).decide()
    assert decision.fires is held
    if not held:
        assert "spec.match[1] does not hold: " in decision.message
        assert "web-1" not in decision.message


def test_the_kinds_of_a_rule_come_from_its_match_items() -> None:
    def kinds(*items: Any, namespace: str = "shop", **annotations: str) -> list[str]:
        rule = modrule(
            type="Reject", match=list(items), namespace=namespace, annotations=annotations or None
        )
        scopes = program_of(rule).match.kinds()
        return [f"{it.selector.group}/{it.selector.version}/{it.selector.kind}" for it in scopes]

    assert kinds(POD) == ["*/*/Pod"]
    assert kinds({"select": "$.kind", "matchValues": ["Job", "CronJob"]}) == [
        "*/*/CronJob",
        "*/*/Job",
    ]
    assert kinds({"select": '$.kind == "Pod" || "Job" == $.kind'}) == ["*/*/Job", "*/*/Pod"]
    assert kinds({"select": '$.kind in ["Pod"] && $.spec.x == 1'}) == ["*/*/Pod"]
    assert kinds(POD, {"select": "$.apiVersion", "matchValue": "v1"}) == ["/v1/Pod"]
    assert kinds({"select": "$.kind", "matchRegex": "^Cron"}) == ["batch/*/CronJob"]
    assert kinds(POD, {"select": "$.kind", "matchValue": "Job"}) == []
    # Five of the 21 kinds are cluster-scoped.
    assert len(kinds({"select": "$.metadata.name"})) == 16
    assert len(kinds({**POD, "negate": True})) == 15
    assert kinds({"select": "$.kind", "matchValues": ["Node", "Pod"]}) == ["*/*/Pod"]
    assert kinds({"select": "$.kind", "matchValue": "Node"}) == ["*/*/Node"]
    assert len(kinds({"select": "$.metadata.name"}, namespace="kubemod-system")) == 5
    given = {"kube-retrofit.dev/kinds": "example.com/v1/Thing, Pod"}
    assert kinds({"select": "$.metadata.name"}, **given) == ["example.com/v1/Thing", "*/*/Pod"]


def test_a_program_reports_its_phases_convergence_and_namespaces() -> None:
    program = program_of(patching({"op": "add", "path": "/metadata/labels/x", "value": "y"}))
    assert program.phases == {Phase.ADMISSION}
    assert program.mutation.convergence is Convergence.PROBED
    random = patching({"op": "add", "path": "/metadata/labels/x", "value": "{{ uuidv4 }}"})
    assert program_of(random).mutation.convergence is Convergence.NO
    assert program.match.listings()[0].namespaces == ("shop",)


@pytest.mark.parametrize(
    ("path", "appends"),
    [
        ("/spec/containers/-", True),
        ("/spec/containers/-1", True),
        ("/spec/containers/0", True),
        ("/spec/containers/#0", True),
        ("/spec/containers/#0/image", False),
        ("/metadata/labels/c#0", False),
    ],
)
def test_an_operation_that_adds_to_a_list_is_reported_as_appending(
    path: str, appends: bool
) -> None:
    rule = patching({"op": "add", "select": "$.spec.containers[*]", "path": path, "value": "x"})
    assert program_of(rule).appends is appends
    rule["spec"]["patch"][0]["op"] = "replace"
    assert not program_of(rule).appends


def test_a_rule_that_takes_too_much_work_ends_with_an_error() -> None:
    pod = make_pod(spec={"items": [[[0] * 90] * 90] * 90})
    rule = patching({"op": "add", "path": "/metadata/labels/x", "value": "y"})
    rule["spec"]["match"] = [{"select": "$..*..*..*"}]
    (message,) = errors(request([rule], pod))
    assert "processes too much data" in message
    many = patching({"op": "add", "select": "$..[*]", "path": "/spec/x", "value": "y"})
    big = make_pod(spec={"items": [0] * 20_000})
    (message,) = errors(request([many], big))
    assert "more than 10000 operations" in message
    context = context_of(make_pod()).within(Allowance(50))
    with pytest.raises(Exception, match="allowance"):
        program_of(
            patching({"op": "add", "path": "/metadata/a", "value": "b"})
        ).condition.evaluate(context)  # type: ignore[union-attr]


def test_a_result_of_select_costs_as_much_as_its_text() -> None:
    nested: Any = "v" * 100_000
    for _ in range(100):
        nested = {"a": nested}
    rule = patching({"op": "add", "path": "/metadata/labels/x", "value": "y"})
    rule["spec"]["match"] = [{"select": "$.spec..*", "matchValue": "zzz"}]
    context = context_of(make_pod(spec=nested)).within(Allowance(4_000_000))
    condition = program_of(rule).condition
    assert condition is not None
    with pytest.raises(Exhausted):
        condition.evaluate(context)


@pytest.mark.parametrize("place", ["object", "annotation"])
@pytest.mark.parametrize("count", [10, 2_000])
def test_a_patch_costs_steps_for_what_it_copies(place: str, count: int) -> None:
    spec = {str(number): 1 for number in range(count)}
    pod = make_pod(spec=spec)
    if place == "annotation":
        applied = json.dumps({"metadata": {"name": "web-1"}, "spec": spec})
        pod = make_pod()
        pod["metadata"]["annotations"] = {
            "kubectl.kubernetes.io/last-applied-configuration": applied
        }
    mutation = program_of(
        patching(*[{"op": "add", "path": "/spec/k", "value": "1"}] * 100)
    ).mutation
    assert mutation is not None

    def apply() -> Any:
        return mutation.apply(None, context_of(pod).within(Allowance(100_000)), pod, SHIPPED)

    if count == 10:
        assert apply()["spec"]["k"] == 1
    else:
        with pytest.raises(Exhausted):
            apply()


def test_a_value_that_the_parser_takes_only_after_corrections_costs_steps_for_each() -> None:
    rule = patching({"op": "add", "path": "/spec/k", "value": "[{{ .Target.spec.v }}]"})
    mutation = program_of(rule).mutation
    assert mutation is not None

    def apply(text: str) -> Any:
        pod = make_pod(spec={"v": text})
        return mutation.apply(None, context_of(pod).within(Allowance(100_000)), pod, SHIPPED)

    assert apply("a:, b:")["spec"]["k"] == ["a:", "b:"]
    with pytest.raises(Exhausted):
        apply(", ".join(["a:"] * 100))


def test_a_captured_key_of_digits_keeps_its_zeros() -> None:
    edit = {
        "op": "replace",
        "select": "$.metadata.labels[*]",
        "path": "/metadata/labels/#0",
        "value": '"{{ .#0 }}"',
    }
    pod = make_pod()
    pod["metadata"]["labels"] = {"007": "x", "7": "y"}
    assert labels(request([patching(edit)], pod).obj) == {"007": "007", "7": "7"}
