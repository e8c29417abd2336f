"""Whole rules: what they make of their trigger or targets, and which requests they lead to."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from admission.decide import Limits, decide
from reconciler.api.meta import Object, ObjectRef
from reconciler.api.updaterequest import RequestSpec
from reconciler.clock import SystemClock
from reconciler.dialects import compile_policy
from reconciler.engine.context import Context, request_context
from reconciler.engine.edits import ForeachEdit, bound_elements
from reconciler.engine.entries import with_entries
from reconciler.engine.evaluate import change, own_change, queries
from reconciler.engine.evaluate import decide as decide_trigger
from reconciler.engine.match import Subject
from reconciler.engine.outcome import RuleStatus, TargetChange
from reconciler.engine.patch import equal, json_diff
from reconciler.engine.program import Program
from reconciler.errors import EvaluationError
from reconciler.memory.cluster import MemoryCluster
from reconciler.memory.requests import MemoryRequests
from reconciler.requests.confirmation import Presence
from reconciler.requests.draft import AdmissionRequest, TypeName
from reconciler.services.policies import PolicyIndex, policy_key
from reconciler.services.process import trigger_gone
from reconciler.services.settings import default_filters
from reconciler.services.trigger import TriggerReader
from tests.conformance.units.cases import attempt, load

Result = tuple[Program, TargetChange | None]


def group_version(obj: Mapping[str, Any]) -> tuple[str, str]:
    group, _, version = str(obj.get("apiVersion", "v1")).rpartition("/")
    return group, version


def subject_of(obj: Object, operation: str) -> Subject:
    group, version = group_version(obj)
    meta = obj["metadata"]
    return Subject(
        obj=obj,
        group=group,
        version=version,
        kind=obj["kind"],
        name=meta.get("name", ""),
        namespace=meta.get("namespace", ""),
        operation=operation,
        namespace_labels={},
    )


def context_of(obj: Object, operation: str) -> Context:
    group, version = group_version(obj)
    return request_context(
        operation=operation,
        obj=obj,
        old_object={},
        name=obj["metadata"].get("name", ""),
        namespace=obj["metadata"].get("namespace", ""),
        kind=(group, version, obj["kind"]),
        user_info=None,
    )


def own_results(policy: Object, obj: Object, operation: str) -> Iterator[Result]:
    """Apply the rules to their trigger one after the other, each to what the last one made."""
    changed: set[str] = set()
    for program in compile_policy(policy, own=True).programs:
        if any(item.rule in changed for item in program.before):
            continue
        context = with_entries(context_of(obj, operation), program.entries)
        decision = decide_trigger(program, subject_of(obj, operation), context)
        if not decision.matched:
            continue
        if not decision.fires:
            yield program, None
            continue
        result = own_change(program, context, obj)
        obj = dict(result.after)
        if result.status is RuleStatus.PASS:
            changed.add(program.rule)
        yield program, result


def written_status(result: TargetChange | None) -> str:
    return "skip" if result is None else result.status.value


@pytest.mark.parametrize("case", load("mutate.json", {"rule"}))
def test_rule(case: dict[str, Any]) -> None:
    """The reference's function gets only the mutate block; an empty one is refused here."""
    resource = case["input"]["resource"]
    rule = {"name": "r", **case["input"]["rule"]}
    if "mutate" not in rule:
        rule["mutate"] = {}
    kind = resource["kind"] if resource else "Pod"
    rule["match"] = {"any": [{"resources": {"kinds": [kind]}}]}
    policy = {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "p"},
        "spec": {"rules": [rule]},
    }
    results, error = attempt(lambda: list(own_results(policy, resource, "CREATE")))
    if case["expected"]["status"] == "error" and resource is None:
        assert error is not None
        return
    assert error is None, error
    ((_, result),) = results
    assert written_status(result) == case["expected"]["status"]
    assert equal(result.after, case["expected"]["resource"])


def elements(resource: Object, check: Mapping[str, Any]) -> list[Any]:
    listed: Any = resource
    for step in check["path"].split("."):
        listed = listed[step]
    if "index" in check:
        return [listed[check["index"]]]
    wanted = check["where"]
    return [item for item in listed if all(item.get(key) == wanted[key] for key in wanted)]


def at(element: Any, path: str) -> Any:
    for step in path.split("."):
        element = element[step]
    return element


def assert_elements(resource: Object, check: Mapping[str, Any]) -> None:
    for element in elements(resource, check):
        for path, value in check["equals"].items():
            assert at(element, path) == value


@pytest.mark.parametrize("case", load("mutate.json", {"policy"}))
def test_policy(case: dict[str, Any]) -> None:
    given, wanted = case["input"], case["expected"]
    before = given["resource"]
    results, error = attempt(
        lambda: list(own_results(given["policy"], before, given["operation"]))
    )
    assert error is None, error
    changes = [result for _, result in results if result is not None]
    after = dict(changes[-1].after) if changes else before
    statuses = [written_status(result) for _, result in results]
    if "rule_count" in wanted:
        assert len(results) == wanted["rule_count"]
    if "rules" in wanted:
        assert statuses == wanted["rules"]
    if "rules_all" in wanted:
        assert set(statuses) == {wanted["rules_all"]}
    if "resource" in wanted:
        assert equal(after, wanted["resource"])
    if "message_contains" in wanted:
        assert any(wanted["message_contains"] in result.message for result in changes)
    if "diff_ops" in wanted:
        assert json_diff(before, after) == wanted["diff_ops"]
    for check in wanted.get("checks", ()):
        assert_elements(after, check)


@pytest.mark.parametrize("case", load("mutate.json", {"policy-existing"}))
def test_policy_existing(case: dict[str, Any]) -> None:
    """The targets are given; which of them are meant is asked of each one."""
    given = case["input"]
    trigger = given["trigger"]
    changed: list[TargetChange] = []
    for program in compile_policy(given["policy"]).programs:
        context = with_entries(context_of(trigger, given["operation"]), program.entries)
        assert decide_trigger(program, subject_of(trigger, given["operation"]), context).fires
        found, errors = queries(program, context)
        assert not errors
        changed += [
            change(program, query.index, context, target)
            for query in found
            for target in given["targets"]
            if query.accepts(target)
        ]
    assert {item.status for item in changed} == {RuleStatus(case["expected"]["rules_all"])}
    assert [item.after for item in changed] == case["expected"]["patchedTargets"]


@pytest.mark.parametrize(
    "case",
    [
        item
        for item in load("background.json", {"trigger-resolution"})
        if "mutate" in item.values[0]["applies_to"]
    ],
)
async def test_trigger_resolution(case: dict[str, Any]) -> None:
    """A request has one reference; where the reference looks for two, the one given counts."""
    given, wanted = case["input"], case["expected"]
    cluster = MemoryCluster()
    for obj in given["live"]:
        cluster.add(obj)
    ref = given["spec"] or given["updateRequestSpec"]["resource"]
    info = given["updateRequestSpec"].get("context", {}).get("admissionRequestInfo", {})
    spec = RequestSpec(
        policy="p",
        rule="r",
        resource=ObjectRef(
            api_version=ref["apiVersion"],
            kind=ref["kind"],
            name=ref["name"],
            uid=ref.get("uid", ""),
        ),
        operation=info.get("admissionRequest", {}).get("operation", ""),
    )
    reader = TriggerReader(
        kinds=cluster,
        reader=cluster,
        requests=MemoryRequests(cluster, "kyverno"),
        clock=SystemClock(),
        below=lambda limit: limit - 1,
    )
    program = compile_policy(some_policy()).programs[0]
    trigger = await reader.read(spec, program)
    assert (trigger.presence is not Presence.STORED) is wanted["error"]
    if wanted["result"]:
        assert trigger.subject is not None
        meta = trigger.subject.obj["metadata"]
        assert {key: meta[key] for key in wanted["result"]} == wanted["result"]
    if "message_contains" in wanted:
        assert wanted["message_contains"] in trigger_gone(spec.resource).message


@pytest.mark.parametrize("case", load("background.json", {"policy-key"}))
def test_policy_key(case: dict[str, Any]) -> None:
    given = case["input"]
    policy = {"metadata": {"name": given["policyName"], "namespace": given["namespace"]}}
    assert policy_key(policy) == case["expected"]["expected"]


def some_policy() -> Object:
    target = {"apiVersion": "v1", "kind": "Secret", "namespace": "a", "name": "s"}
    rule = {
        "name": "r",
        "match": {"any": [{"resources": {"kinds": ["Namespace"]}}]},
        "mutate": {"targets": [target], "patchStrategicMerge": {"data": {"a": "b"}}},
    }
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "p"},
        "spec": {"rules": [rule]},
    }


def recorded(policy: Object, resource: Object, user: str, background_user: str) -> int:
    """Return how many requests an admission request leads to."""
    index = PolicyIndex()
    index.apply(policy)
    group, version = group_version(resource)
    meta = resource["metadata"]
    request = AdmissionRequest(
        uid="u",
        operation="CREATE",
        kind=TypeName(group=group, version=version, name=resource["kind"]),
        resource=TypeName(group=group, version=version, name=f"{resource['kind'].lower()}s"),
        name=meta["name"],
        namespace=meta.get("namespace", ""),
        user={"username": user},
        object=resource,
    )
    namespace = meta.get("namespace", "")
    intent = decide(
        request,
        index.rules(kind=resource["kind"], subresource="", namespace=namespace),
        failure_policy="Fail",
        parent=None,
        namespace_labels={},
        limits=Limits(
            background_user=background_user,
            max_recorded=10_000,
            filters=default_filters("kyverno"),
        ),
    )
    return len(intent.drafts)


@pytest.mark.parametrize("case", load("background.json", {"admission-creates-ur"}))
def test_admission_creates_a_request(case: dict[str, Any]) -> None:
    given = case["input"]
    number = recorded(
        given["policy"], given["resource"], given["username"], given["backgroundServiceAccount"]
    )
    assert bool(number) is case["expected"]["updateRequestCreated"]


@pytest.mark.parametrize("case", load("background.json", {"skip-background-requests"}))
def test_skip_background_requests(case: dict[str, Any]) -> None:
    """The rules that are left are those that fire for an object of their kind."""
    given, wanted = case["input"], case["expected"]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "a"}}
    number = recorded(given["policy"], pod, given["username"], given["backgroundServiceAccount"])
    assert number == wanted["rules_left"]
    assert (number == 0) is wanted["policy_dropped"]


@pytest.mark.parametrize("case", load("mutate.json", {"foreach-rule"}))
def test_foreach_rule(case: dict[str, Any]) -> None:
    """A patch that becomes nothing is an error and no crash."""
    given = case["input"]
    policy = some_policy()
    del policy["spec"]["rules"][0]["mutate"]["patchStrategicMerge"]
    block = {"list": "target.data.list", **given["foreach"]}
    policy["spec"]["rules"][0]["mutate"]["foreach"] = [block]
    (program,) = compile_policy(policy).programs
    target = {
        **given["resource"],
        "data": {"list": [{"nonexistent": given["variable_resolves_to"]}]},
    }
    trigger = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}
    try:
        status = change(program, 0, context_of(trigger, "CREATE"), target).status
    except EvaluationError:
        status = RuleStatus.ERROR
    assert status.value == case["expected"]["status"]


@pytest.mark.parametrize("case", load("match.json", {"foreach-list"}))
def test_elements_of_a_foreach(case: dict[str, Any]) -> None:
    block = {
        "list": case["input"]["list"],
        # The case is about the list; a strategic merge begins with its last element.
        "order": "Ascending",
        "patchStrategicMerge": {"metadata": {"labels": {"a": "{{ element }}"}}},
    }
    data = case["input"]["context"].items()
    rule = {
        "name": "each",
        "context": [{"name": name, "variable": {"value": value}} for name, value in data],
        "match": {"any": [{"resources": {"kinds": ["ConfigMap"]}}]},
        "mutate": {"foreach": [block]},
    }
    policy = {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "p"},
        "spec": {"rules": [rule]},
    }
    (program,) = compile_policy(policy, own=True).programs
    (edit,) = program.edits
    assert isinstance(edit, ForeachEdit)
    context = with_entries(Context(data={}), program.entries)
    found = [bound.data["element"] for _, bound in bound_elements(edit, context)]
    assert found == case["expected"]["elements"]
