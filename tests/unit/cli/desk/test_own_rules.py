"""Rules that change their trigger, and the rules generated from rules for Pods."""

from typing import Any

import pytest

from reconciler.dialects.kyverno.parts import parts_of
from reconciler.dialects.registry import compile_policy
from reconciler.engine.context import request_context
from reconciler.engine.evaluate import change
from reconciler.engine.given import Given
from reconciler.engine.outcome import RuleStatus
from reconciler.engine.program import Phase

PODS = {"any": [{"resources": {"kinds": ["Pod"]}}]}
OFF = {"pod-policies.kyverno.io/autogen-controllers": "none"}
LABELS = {"metadata": {"labels": {"node": "{{ request.object.spec.nodeName }}"}}}


def rule(name: str = "r", match: Any = PODS, **mutate: Any) -> dict[str, Any]:
    return {"name": name, "match": match, "mutate": mutate or {"patchStrategicMerge": LABELS}}


def policy(*rules: dict[str, Any], annotations: Any = None) -> dict[str, Any]:
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "p", "annotations": annotations},
        "spec": {"rules": list(rules)},
    }


def names(*rules: dict[str, Any], annotations: Any = None) -> list[str]:
    compiled = compile_policy(policy(*rules, annotations=annotations))
    return [program.rule for program in compiled.programs]


def changed(obj: dict[str, Any], which: int = 0, **mutate: Any) -> Any:
    compiled = compile_policy(policy(rule(**mutate)))
    program = compiled.programs[which]
    context = request_context(
        operation="CREATE", obj=obj, old_object=None, name="x", namespace="y",
        kind=("", "v1", "Pod"), user_info=None,
    )  # fmt: skip
    return change(program, None, program.binding.bind(context), obj)


def test_rules_without_targets_run_only_before_their_trigger_is_stored() -> None:
    compiled = compile_policy(policy(rule()))
    assert compiled.programs[0].phases == {Phase.ADMISSION}
    assert compiled.in_phase(Phase.TRIGGERED) == ()
    assert compiled.warnings == ()


def test_the_patch_is_applied_to_the_trigger() -> None:
    obj = {"kind": "Pod", "metadata": {"name": "a"}, "spec": {"nodeName": "n"}}
    result = changed(obj)
    assert result.status is RuleStatus.PASS
    assert result.after["metadata"] == {"name": "a", "labels": {"node": "n"}}
    assert result.message == "mutated Pod/a"
    assert changed(result.after).status is RuleStatus.SKIP


@pytest.mark.parametrize("field", ["apiVersion", "kind", "metadata"])
def test_a_patch_that_removes_what_every_object_has_is_an_error(field: str) -> None:
    obj = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}
    result = changed(obj, patchesJson6902=f"- {{op: remove, path: /{field}}}")
    assert (result.status, result.after) == (RuleStatus.ERROR, obj)
    assert f"something that is not an object: it has no {field}" in result.message


def test_a_patch_can_read_the_value_at_its_place() -> None:
    obj = {"kind": "Pod", "metadata": {"name": "a"}, "spec": {"nodeName": "n"}}
    result = changed(obj, patchStrategicMerge={"spec": {"nodeName": "{{ @ }}-1"}})
    assert result.after["spec"] == {"nodeName": "n-1"}


def test_a_foreach_block_is_evaluated_on_the_result_of_the_block_before_it() -> None:
    obj = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a"},
        "spec": {"containers": [{"name": "x"}, {"name": "y"}]},
    }
    image = {
        "spec": {"containers": [{"name": "{{ element.name }}", "image": "i-{{ element.name }}"}]}
    }
    labels = {"metadata": {"labels": {"{{ element.name }}": "{{ element.image }}"}}}
    blocks = [
        {"list": "request.object.spec.containers", "patchStrategicMerge": image},
        {"list": "request.object.spec.containers", "patchStrategicMerge": labels},
    ]
    result = changed(obj, foreach=blocks)
    assert [item["name"] for item in result.after["spec"]["containers"]] == ["x", "y"]
    assert result.after["metadata"]["labels"] == {"x": "i-x", "y": "i-y"}


def test_rules_for_pods_are_expanded_to_pod_controllers() -> None:
    assert names(rule()) == ["r", "autogen-r", "autogen-cronjob-r"]


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        ("none", ["r"]),
        ("CronJob", ["r", "autogen-cronjob-r"]),
        ("Deployment, Nonsense", ["r", "autogen-r"]),
    ],
)
def test_an_annotation_selects_the_controllers_of_generated_rules(
    annotation: str, expected: list[str]
) -> None:
    key = "pod-policies.kyverno.io/autogen-controllers"
    assert names(rule(), annotations={key: annotation}) == expected


@pytest.mark.parametrize(
    "other",
    [
        rule("o", patchesJson6902="- {op: remove, path: /a}"),
        rule("o", foreach=[{"list": "request.object.a", "patchesJson6902": "[]"}]),
        rule("o", match={"any": [{"resources": {"kinds": ["Pod"], "names": ["a"]}}]}),
        rule("o", match={"any": [{"resources": {"kinds": ["Pod", "Service"]}}]}),
        {"name": "o", "match": PODS, "generate": {}},
    ],
)  # fmt: skip
def test_one_unsuitable_rule_prevents_the_expansion_of_the_whole_policy(
    other: dict[str, Any],
) -> None:
    assert "autogen-r" not in names(rule(), other)


@pytest.mark.parametrize("kind", ["v1/Pod", "*/Pod"])
def test_rules_are_expanded_only_if_a_filter_has_the_bare_name_of_a_kind(kind: str) -> None:
    long = rule(match={"any": [{"resources": {"kinds": [kind]}}]})
    assert names(long) == ["r"]
    bare = rule("o", match={"any": [{"resources": {"kinds": ["Deployment"]}}]})
    assert names(long, bare) == ["r", "o", "autogen-r", "autogen-cronjob-r"]


def test_a_rule_that_is_generated_for_cron_jobs_matches_nothing_else() -> None:
    filters = [{"resources": {"kinds": [kind]}} for kind in ("Pod", "Deployment")]
    controllers, jobs = compile_policy(policy(rule(match={"any": filters}))).generated
    assert jobs["match"]["any"] == [{"resources": {"kinds": ["batch/v1/CronJob"]}}] * 2
    assert controllers["match"]["any"][1] == filters[1]


def test_rules_with_targets_are_never_expanded() -> None:
    targets = [{"apiVersion": "v1", "kind": "Secret", "name": "s", "namespace": "n"}]
    assert names(rule(targets=targets, patchStrategicMerge=LABELS)) == ["r"]


@pytest.mark.parametrize(("which", "path"), [(1, ["spec"]), (2, ["spec", "jobTemplate", "spec"])])
def test_the_patch_of_a_generated_rule_applies_to_the_pod_template(
    which: int, path: list[str]
) -> None:
    inner: dict[str, Any] = {"template": {"spec": {"nodeName": "n"}, "metadata": {}}}
    obj: dict[str, Any] = inner
    for step in reversed(path):
        obj = {step: obj}
    result = changed({"kind": "X", "metadata": {"name": "a"}, **obj}, which)
    assert result.status is RuleStatus.PASS
    found = result.after
    for step in path:
        found = found[step]
    assert found["template"]["metadata"]["labels"] == {"node": "n"}


def test_context_entries_with_given_values_are_not_compiled() -> None:
    one = rule() | {"context": [{"name": "node", "imageRegistry": {"reference": "x"}}]}
    given = {"r": Given(names=frozenset({"node"}))}
    compiled = compile_policy(policy(one, annotations=OFF), given=given)
    assert parts_of(compiled.programs[0]).entries == ()
