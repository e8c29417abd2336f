"""Invalid ModRules are refused with the place of each error; lint reports surprises."""

from typing import Any

import pytest

from reconciler.api.meta import Object
from reconciler.dialects.kubemod import KUBEMOD
from reconciler.errors import InvalidPolicy
from reconciler.services.authoring.lint import lint_policy
from tests.unit.dialects.kubemod.modrules import POD, modrule, patching

ADD = {"op": "add", "path": "/metadata/labels/x", "value": "z"}


def refused(rule: Object) -> list[str]:
    compiled, wrong = KUBEMOD.examine(rule)
    assert compiled is None
    return [str(error) for error in wrong]


def with_patch(**fields: Any) -> Object:
    return patching({**ADD, **fields})


def with_item(**fields: Any) -> Object:
    rule = patching(ADD)
    rule["spec"]["match"] = [{"select": "$.kind", **fields}]
    return rule


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (modrule(type="Reject"), "spec.match: at least one item"),
        (
            modrule(type="Reject", match=[POD], matches=[POD]),
            "spec.matches: unknown field 'matches', expected one of type,",
        ),
        (
            modrule(type="Reject", match=[POD] * 2_001),
            "spec: there are more than 2000 match items",
        ),
        (
            modrule(type="Reject", match=[{"select": f"$.{'a' * 20_000}"}] * 2),
            "spec: the select expressions are longer than 32768 characters",
        ),
        (modrule(match=[POD]), "spec.type: Patch or Reject"),
        (modrule(type="Delete", match=[POD]), "spec.type: Patch or Reject"),
        (modrule(type="Patch", match=[POD]), "spec.patch: a rule of type Patch needs"),
        (modrule(type="Reject", match=[POD], patch=[ADD]), "spec.patch: a rule of type Reject"),
        (patching(ADD, rejectMessage="no"), "spec.rejectMessage: a rule of type Patch"),
        (
            patching(ADD, executionTier=40_000),
            "spec.executionTier: expected an integer from -32767",
        ),
        (patching(ADD, executionTier=True), "spec.executionTier: expected an integer"),
        (
            patching(ADD, admissionOperations=["PATCH"]),
            "spec.admissionOperations[0]: expected one",
        ),
        (patching(ADD, targetNamespaceRegex="(?!x)"), "spec.targetNamespaceRegex: not a regular"),
        (with_item(select="$.metadata['name']"), "spec.match[0].select: not a select expression"),
        (with_item(select=""), "spec.match[0].select: an expression is needed"),
        (
            with_item(select="$.metadata.labels.my-label"),
            'spec.match[0].select: a name with "-" in it is read as a subtraction',
        ),
        (
            with_item(select="size($.spec.containers) > 1"),
            "spec.match[0].select: there is no function size; available: date, isDefined,",
        ),
        (
            with_item(select='$.spec.x =~ "(?=x)"'),
            "spec.match[0].select: =~ not a regular expression",
        ),
        (with_item(select="$.spec.x || 1 && 2"), "spec.match[0].select: both sides of &&"),
        (with_patch(select="$.spec[? size(@) > 1]"), "spec.patch[0].select: there is no function"),
        (with_patch(select='$.spec[? @ !~ "["]'), "spec.patch[0].select: !~ not a regular"),
        (with_item(matchRegex="(?=x)"), "spec.match[0].matchRegex: not a regular expression"),
        (with_item(matchFor="Some"), "spec.match[0].matchFor: Any or All"),
        (with_item(matchValue={"a": 1}), "spec.match[0].matchValue: expected a string"),
        (with_item(matchValues=["a", []]), "spec.match[0].matchValues[1]: expected a string"),
        (with_item(negate="yes"), "spec.match[0].negate: true or false"),
        (with_item(matchvalue="Pod"), "spec.match[0].matchvalue: unknown field"),
        (with_patch(op="move"), "spec.patch[0].op: expected one of add, remove, replace"),
        (with_patch(path="metadata"), 'spec.patch[0].path: path "metadata" must begin'),
        (with_patch(path=""), "spec.patch[0].path: a path is needed"),
        (with_patch(path="/a" * 300), "spec.patch[0].path: deeper than 200 levels"),
        (
            with_patch(select="length($.spec)"),
            "spec.patch[0].select: not a select expression",
        ),
        (with_patch(select=""), "spec.patch[0].select: not a select expression"),
        (
            with_patch(select="$.spec.containers[*].ports[*]", path="/spec/#3"),
            "spec.patch[0].path: #3 is not among the keys that select captures (2: #0 to #1)",
        ),
        (with_patch(select="$.spec", path="/spec/#0"), "captures (no wildcard or filter"),
        (
            with_patch(value="{{ .Target"),
            "spec.patch[0].value: the template cannot be parsed: line 1",
        ),
        (
            with_patch(value="{{ env `HOME` }}"),
            "spec.patch[0].value: the template cannot be parsed",
        ),
        (
            with_patch(value="a: b: c"),
            "spec.patch[0].value: the value is not YAML: line 1, column 5",
        ),
        (with_patch(from_="/a"), "spec.patch[0].from_: unknown field"),
        (
            modrule(type="Reject", match=[POD], rejectMessage="{{ if }}"),
            "spec.rejectMessage: the template cannot be parsed",
        ),
        *(
            (
                modrule(
                    type="Reject",
                    match=[{"select": "$.metadata.name"}],
                    annotations={"kube-retrofit.dev/kinds": f"Deployment, {kind}"},
                ),
                f"metadata.annotations[kube-retrofit.dev/kinds]: {kind} is not a kind",
            )
            for kind in ("Pod/status", "///", "a b")
        ),
        (
            patching(ADD, annotations={"kube-retrofit.dev/failure-policy": "Maybe"}),
            "metadata.annotations[kube-retrofit.dev/failure-policy]: expected Fail or Ignore",
        ),
    ],
)
def test_an_invalid_rule_is_refused_with_its_location_and_a_remedy(
    rule: Object, expected: str
) -> None:
    (message,) = refused(rule)
    assert expected in message


def test_all_errors_of_a_rule_are_reported_at_once() -> None:
    rule = modrule(
        type="Patch",
        executionTier="1",
        match=[{"select": "$."}, {"select": "$.a", "matchFor": "One"}],
        patch=[{"op": "put", "path": "x", "value": "{{"}, {"op": "add"}],
    )
    places = [message.partition(": ")[0] for message in refused(rule)]
    assert places == [
        "spec.executionTier",
        "spec.match[0].select",
        "spec.match[1].matchFor",
        "spec.patch[0].op",
        "spec.patch[0].path",
        "spec.patch[0].value",
        "spec.patch[1].path",
    ]


@pytest.mark.parametrize("spec", [None, [], "text", {"match": "x", "patch": 1, "type": ["Patch"]}])
def test_a_spec_of_any_other_shape_is_refused(spec: Any) -> None:
    with pytest.raises(InvalidPolicy):
        KUBEMOD.compile({**modrule(), "spec": spec})


def codes(rule: Object) -> set[str]:
    return {item.code for item in lint_policy(rule, scope=lambda _group, _kind: None)}


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        (with_item(select='$.spec.x != "a"'), "undefined-differs"),
        (with_item(select='$.spec.x[? @.y !~ "a"]'), "undefined-differs"),
        (with_item(select='$.spec.x =~ "^(a|)$"'), "undefined-differs"),
        (with_item(select="$.spec.x[? @.y]"), "existence-filter"),
        (with_item(select="$.spec.x[? @.y[? @.z == 80]].name"), "list-compared"),
        (with_item(select='$.spec.x[*].name == "a"'), "list-compared"),
        (with_item(select='"a" != $.spec.x[0:2].name'), "list-compared"),
        (with_item(select='$..image in ["a", "b"]'), "list-compared"),
        (with_item(select='$.kind == "Pod" && $.spec.x[? @.y == 1]'), "list-compared"),
        (with_item(select="!$.spec.x.*"), "list-compared"),
        (with_item(select="@.kind"), "no-element"),
        (with_item(matchValue='"Pod"'), "quoted-value"),
        (with_item(select="$.spec.replicas", matchValue="1000000"), "long-number"),
        (with_patch(path="/metadata/labels/#0"), "placeholder-without-select"),
        (with_patch(path="/metadata/labels/a", value="1"), "not-a-text"),
        (with_patch(path="/spec/template/metadata/annotations/a~1b", value="false"), "not-a-text"),
        (with_patch(path="/metadata/annotations", value="{a: b, c: 8080}"), "not-a-text"),
        (with_patch(path="/spec/containers/-1"), "append"),
        (with_patch(path="/spec/containers/-"), "append"),
        (with_item(select="$.metadata.name"), "default-kinds"),
        (modrule(type="Reject", match=[POD, {**POD, "matchValue": "Job"}]), "no-kind"),
        (with_item(select="$.kind", matchRegex="^Widget$"), "no-kind"),
        (patching(ADD, targetNamespaceRegex=".*"), "no-system-namespace"),
        (patching(ADD, namespace="kubemod-system"), "no-target-namespace"),
        (patching(ADD, admissionOperations=["DELETE"]), "patch-on-delete"),
    ],
)
def test_lint_warns_of_surprising_rules(rule: Object, code: str) -> None:
    assert code in codes(rule)


@pytest.mark.parametrize(
    "select", ["$.spec.x[? @.y[? @.z == 80]].name", '$.spec.x[*].name != "a"']
)
def test_lint_does_not_take_a_list_for_a_field_that_may_be_missing(select: str) -> None:
    assert codes(with_item(select=select)).isdisjoint({"existence-filter", "undefined-differs"})


@pytest.mark.parametrize("select", ['$.spec.x !~ "^$"', '"a" !~ $.spec.x', '$.spec.x =~ "a"'])
def test_lint_knows_which_expressions_a_missing_field_does_not_match(select: str) -> None:
    assert "undefined-differs" not in codes(with_item(select=select))


@pytest.mark.parametrize(
    "rule",
    [
        patching(ADD),
        patching(ADD, namespace="kubemod-system", targetNamespaceRegex=".*"),
        modrule(
            type="Patch",
            match=[
                POD,
                {"select": "$.spec.containers[*].name", "matchValue": "side", "negate": True},
                {"select": '$.spec.containers[? @ != "x" && isDefined(@.image)]'},
                {"select": "isDefined($.spec.x) && $.spec.x == 1"},
                {"select": "length($.spec.x[? length(@.y[*]) > 0]) == 1 && $.spec.x[*] == []"},
            ],
            patch=[{"op": "add", "path": "/spec/containers/-1", "value": "name: side"}],
        ),
        with_patch(path="/metadata/labels", value="{a: '1', b: , c: x}"),
        with_patch(path="/metadata/labels/a", value=""),
        with_patch(path="/metadata/labels/a", value="{{ .Target.spec.replicas }}"),
        with_patch(
            select="$.spec.containers[? isEmpty(@.securityContext)]",
            path="/spec/containers/#0/securityContext",
            value="runAsNonRoot: true",
        ),
    ],
)
def test_lint_does_not_warn_of_ordinary_rules(rule: Object) -> None:
    assert codes(rule) == set()
