"""CUE programs in policies: their input, the use of their results, and refusals."""

import json
from collections.abc import Hashable
from typing import Any

import pytest

from reconciler.dialects.finding import Level
from reconciler.dialects.kinitiras import KINITIRAS
from reconciler.dialects.kinitiras.labelled import ANNOTATION
from reconciler.engine.context import Context, request_context
from reconciler.engine.loads import CueLoad, LoadFailure, NeedsLoad
from reconciler.engine.outcome import Unmet
from reconciler.engine.patch import SHIPPED
from reconciler.engine.program import CompiledPolicy
from reconciler.errors import EvaluationError, InvalidPolicy
from reconciler.services.catalog.policy_store import PolicyStore

OBJECT = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": {"l": "1"}}}
OLD = {**OBJECT, "metadata": {"name": "a"}}


def stored(kind: str, *rules: dict[str, Any]) -> dict[str, Any]:
    field = "validateRules" if kind == "ClusterValidatePolicy" else "overrideRules"
    return {
        "apiVersion": "policy.kcloudlabs.io/v1alpha1",
        "kind": kind,
        "metadata": {"name": "p", "annotations": {ANNOTATION: "all"}},
        "spec": {field: list(rules)},
    }


def overriding(**overriders: Any) -> CompiledPolicy:
    return KINITIRAS.compile(stored("ClusterOverridePolicy", {"overriders": overriders}))


def refusing(**rule: Any) -> CompiledPolicy:
    return KINITIRAS.compile(stored("ClusterValidatePolicy", rule))


def context(loads: dict[Hashable, Any] | None = None, operation: str = "UPDATE") -> Context:
    found = request_context(
        operation=operation,
        obj=OBJECT,
        old_object=OLD if operation == "UPDATE" else None,
        name="a",
        namespace="shop",
        kind=("", "v1", "ConfigMap"),
        user_info=None,
    )
    return found.with_loads(loads or {})


def asked(policy: CompiledPolicy, operation: str = "UPDATE") -> CueLoad:
    """Return the one load of a CUE program that a policy needs."""
    (program,) = policy.programs
    asking = context(operation=operation)
    condition, mutation = program.condition, program.mutation
    with pytest.raises(NeedsLoad) as needed:
        _ = (
            condition.evaluate(asking)
            if condition
            else mutation.apply(None, asking, OBJECT, SHIPPED)
        )
    (load,) = needed.value.loads
    assert isinstance(load, CueLoad)
    return load


def changed(policy: CompiledPolicy, answer: Any) -> dict[str, Any]:
    (program,) = policy.programs
    loads: dict[Hashable, Any] = {asked(policy): answer}
    found = program.mutation.apply(None, context(loads), OBJECT, SHIPPED)
    assert not isinstance(found, Unmet)
    return found


@pytest.mark.parametrize(
    ("policy", "operation", "data", "output"),
    [
        (overriding(cue="x"), "UPDATE", {"object": OBJECT}, "patches"),
        (
            overriding(renderedCue="x"),
            "UPDATE",
            {"data": {"object": OBJECT, "oldObject": OLD, "extraParams": {}}},
            "patches",
        ),
        (refusing(cue="x"), "CREATE", {"object": OBJECT}, "validate"),
        (refusing(cue="x"), "UPDATE", {"object": OBJECT, "oldObject": OLD}, "validate"),
        (
            refusing(renderedCue="x"),
            "CREATE",
            {"data": {"object": OBJECT, "oldObject": {}, "extraParams": {}}},
            "validate",
        ),
    ],
)
def test_a_program_receives_the_new_and_the_old_object(policy, operation, data, output) -> None:
    load = asked(policy, operation)
    assert (load.source, json.loads(load.data), load.output) == ("x", data, output)
    assert load.tenant == "shop"
    assert "x" not in repr(load)


def test_patches_of_a_program_are_applied_before_origin_and_plaintext() -> None:
    policy = overriding(
        cue="x",
        origin=[{"type": "labels", "labels": {"b": "origin"}}],
        plaintext=[{"op": "replace", "path": "/metadata/labels/c", "value": "plaintext"}],
    )
    patches = [{"op": "add", "path": f"/metadata/labels/{name}", "value": "cue"} for name in "abc"]
    labels = {"l": "1", "a": "cue", "b": "origin", "c": "plaintext"}
    assert changed(policy, patches)["metadata"]["labels"] == labels
    assert policy.acts_once


def test_a_program_that_replaces_the_object_with_a_number_fails() -> None:
    with pytest.raises(EvaluationError, match="leaves a number in place of the object"):
        changed(overriding(cue="x"), [{"op": "replace", "path": "", "value": 5}])


def test_rendered_cue_beside_a_template_is_not_evaluated() -> None:
    template = {"type": "labels", "operation": "add", "path": "a", "value": {"string": "b"}}
    assert overriding(template=template, renderedCue="x").cue == ()
    both = overriding(template=template, renderedCue="x", cue="y")
    assert both.cue == (("spec.overrideRules[0].overriders.cue", "y"),)


@pytest.mark.parametrize(
    ("mode", "valid", "refused"),
    [
        ({}, False, True),
        ({"affectMode": "reject"}, True, False),
        ({"affectMode": "allow"}, False, False),
        ({"affectMode": "allow"}, True, True),
    ],
)
def test_rendered_cue_is_evaluated_beside_a_condition_that_reads_nothing(
    mode: dict[str, str], valid: Any, refused: Any
) -> None:
    condition = {"cond": "Exist", "message": "no", **mode}
    policy = refusing(template={"type": "condition", "condition": condition}, renderedCue="x")
    assert policy.cue == (("spec.validateRules[0].renderedCue", "x"),)
    (program,) = policy.programs
    asking = context({asked(policy): {"valid": valid}})
    assert program.condition is not None
    assert program.condition.evaluate(asking).passed is refused
    if refused:
        assert program.verdict is not None
        assert program.verdict.message(asking) == "p: it is refused"


@pytest.mark.parametrize(
    ("condition", "place"),
    [
        ({"cond": "Exist", "affectMode": "both"}, "condition.affectMode"),
        ({"cond": "Exists"}, "condition.cond"),
        ({"cond": "Exist", "dataref": {"from": "current", "path": "/a"}}, "condition.dataref"),
        ({"cond": "Exist", "dataRef": {"from": "current"}}, "condition.dataRef.path"),
    ],
)
def test_rendered_cue_does_not_hide_errors_of_its_condition(
    condition: dict[str, Any], place: str
) -> None:
    with pytest.raises(InvalidPolicy) as caught:
        refusing(template={"type": "condition", "condition": condition}, renderedCue="x")
    assert caught.value.location == f"spec.validateRules[0].template.{place}"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (None, "does not return a list of patches"),
        ({"op": "add"}, "does not return a list of patches"),
        (
            [{"op": "move", "path": "/a", "from": "/b"}],
            r"an invalid patch: patches\[0\].op: expected one of add, remove, replace",
        ),
        (
            [{"op": "test", "path": "/a", "value": 1}],
            r"an invalid patch: patches\[0\].op: expected one of add, remove, replace",
        ),
        (
            [{"op": "remove", "path": "/a"}, {"op": "add", "path": "a"}],
            r"an invalid patch: patches\[1\].path: expected a path that begins with /",
        ),
        (["canary"], r"an invalid patch: patches\[0\]: expected an object"),
        (LoadFailure("line 3"), "returned no output: line 3"),
    ],
)
def test_an_output_that_is_not_a_patch_is_an_error_that_quotes_no_values(answer, reason) -> None:
    with pytest.raises(EvaluationError, match=reason) as failed:
        changed(overriding(cue="x"), answer)
    assert "canary" not in str(failed.value)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"valid": False, "reason": "no"}, "p: no"),
        ({"valid": False}, "p: it is refused"),
        ({"valid": True, "reason": "no"}, None),
        ({}, None),
        ({"Valid": False, "Reason": "no", "more": 1}, "p: no"),
    ],
)
def test_a_verdict_refuses_with_its_reason(answer, message) -> None:
    policy = refusing(cue="x")
    (program,) = policy.programs
    asking = context({asked(policy): answer})
    assert program.condition is not None
    assert program.condition.evaluate(asking).passed is (message is not None)
    if message:
        assert program.verdict is not None
        assert program.verdict.message(asking) == message


@pytest.mark.parametrize(
    "answer",
    [None, ["canary"], {"valid": "false"}, {"valid": 0}, {"valid": None}, {"reason": 5}],
)
def test_an_output_that_is_not_a_verdict_is_an_error_that_quotes_no_values(answer: Any) -> None:
    policy = refusing(cue="x")
    (program,) = policy.programs
    assert program.condition is not None
    with pytest.raises(EvaluationError, match="does not return a validate object") as failed:
        program.condition.evaluate(context({asked(policy): answer}))
    assert "canary" not in str(failed.value)


def test_field_names_of_patches_may_begin_with_a_capital_letter() -> None:
    found = changed(overriding(cue="x"), [{"Op": "add", "Path": "/b", "Value": {"C": 1}}])
    assert found["b"] == {"C": 1}


def test_a_condition_that_refuses_leaves_out_the_program() -> None:
    condition = {
        "cond": "Exist",
        "message": "labelled",
        "dataRef": {"from": "current", "path": "/metadata/labels/l"},
    }
    policy = refusing(cue="x", template={"type": "condition", "condition": condition})
    (program,) = policy.programs
    assert program.condition is not None
    assert program.verdict is not None
    # The condition refuses, so the program is not evaluated.
    asking = context()
    assert program.condition.evaluate(asking).passed
    assert program.verdict.message(asking) == "p: labelled"


def test_without_a_command_a_policy_with_a_program_does_not_act() -> None:
    policy = stored("ClusterOverridePolicy", {"overriders": {"cue": "x"}})
    able, unable = PolicyStore(), PolicyStore(why_no_cue="CUE is not evaluated")
    for store in (able, unable):
        store.apply(policy)
    assert len(able.policies()) == 1
    assert unable.policies() == ()
    (invalid,) = unable.invalid()
    assert isinstance(invalid.result, InvalidPolicy)
    assert str(invalid.result) == "spec.overrideRules[0].overriders.cue: CUE is not evaluated"


def test_lint_reports_programs_and_credentials_in_the_policy() -> None:
    http = {"url": "http://a.b.svc", "auth": {"staticToken": "canary"}}
    reference = {"from": "http", "path": "a", "http": http}
    template = {"type": "labels", "operation": "add", "path": "a", "valueRef": reference}
    rules: list[dict[str, Any]] = [
        {"overriders": {"cue": "x"}},
        {"overriders": {"template": template}},
    ]
    policy = stored("ClusterOverridePolicy", *rules)
    compiled = KINITIRAS.compile(policy)
    found = list(
        KINITIRAS.lint(policy, compiled, scope=lambda _version, _kind: None, guard=_NOTHING)
    )
    place = "spec.overrideRules[1].overriders.template.valueRef.http.auth.staticToken"
    assert [(item.level, item.code, item.location) for item in found] == [
        (Level.NOTE, "cue", "spec.overrideRules[0].overriders.cue"),
        (Level.WARNING, "credentials", place),
    ]
    assert "canary" not in repr(found)


class _Nothing:
    """Protects no field and no path."""

    def of_field(self, field: str) -> str:
        return ""

    def of_call(self, method: str, path: str) -> str:
        return ""


_NOTHING = _Nothing()
