"""Whole rules: how they change their trigger or targets, and which requests they create."""

import asyncio
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from typing_extensions import override

from admission.decide import Limits, decide
from reconciler.api.kinds import policy_named
from reconciler.api.meta import Object, ObjectRef, policy_ref, ref_of, split_api_version
from reconciler.api.updaterequest import RequestSpec, RequestStatus, State, UpdateRequest
from reconciler.clock import SystemClock
from reconciler.dialects.registry import compile_policy
from reconciler.engine.context import Context, request_context
from reconciler.engine.evaluate import change
from reconciler.engine.evaluate import decide as decide_trigger
from reconciler.engine.outcome import RuleStatus, TargetChange
from reconciler.engine.patch import equal, json_diff
from reconciler.engine.program import Program
from reconciler.errors import Unavailable
from reconciler.memory.cluster import MemoryCluster
from reconciler.requests.confirmation import Presence
from reconciler.requests.draft import AdmissionRequest, TypeName
from reconciler.requests.lifecycle import FINAL
from reconciler.services.catalog.policy_store import PolicyStore
from reconciler.services.catalog.rule_index import Known
from reconciler.services.catalog.settings import default_filters
from reconciler.services.processing.trigger import Trigger, TriggerReader, trigger_gone
from tests.conformance.units.cases import Case, Fields, attempt, runs, texts
from tests.conformance.units.patches import containers
from tests.conformance.units.subjects import (
    ENVIRONMENT,
    operation_of,
    policy_of,
    programs_of,
    subject_of,
    user_of,
)
from tests.conformance.units.variables import at
from tests.stored import MemoryRequests

CONFIG_MAPS = {"any": [{"resources": {"kinds": ["ConfigMap"]}}]}
SECRET = {"apiVersion": "v1", "kind": "Secret", "namespace": "a", "name": "s"}


def context_of(given: Fields, obj: Object | None, operation: str) -> Context:
    """Return the context that expressions see for a request, with a fixed environment."""
    subject = subject_of(obj)
    user = given.part("requestInfo")
    old = given.get("oldResource") or {}
    context = request_context(
        operation=operation,
        obj=None if operation == "DELETE" else obj,
        old_object=(old or obj) if operation == "DELETE" else old,
        name=subject.name,
        namespace=subject.namespace,
        kind=(subject.group, subject.version, subject.kind),
        user_info=user.get("userInfo"),
        roles=user.get("roles") or (),
        cluster_roles=user.get("clusterRoles") or (),
    )
    return context.bind(**ENVIRONMENT)


def own_results(given: Fields, policy: Object, obj: Object) -> Iterator[TargetChange]:
    """Apply the rules to their trigger one after another, each to the result of the last one."""
    changed: set[str] = set()
    for program in programs_of(given, policy):
        if any(item.rule in changed for item in program.before):
            continue
        result = own_result(given, program, obj)
        if result is None:
            continue
        obj = dict(result.after)
        if result.status is RuleStatus.PASS:
            changed.add(program.rule)
        yield result


def own_result(given: Fields, program: Program, obj: Object) -> TargetChange | None:
    """Return the change of a rule to its trigger, or None if the rule does not match."""
    operation = operation_of(given)
    context = program.binding.bind(context_of(given, obj, operation))
    subject = subject_of(
        obj,
        operation=operation,
        user=user_of(given.part("requestInfo")),
        namespace_labels=given.get("namespaceLabels"),
    )
    decision, error = attempt(
        lambda: decide_trigger(program, program.match.evaluate(subject), context)
    )
    if error is not None:
        return TargetChange(status=RuleStatus.ERROR, message=error, after=obj)
    if not decision.matched:
        return None
    if not decision.fires:
        return TargetChange(status=RuleStatus.SKIP, message=decision.message, after=obj)
    return change(program, None, context, obj)


def check_results(case: Case, results: Sequence[TargetChange]) -> None:
    """Compare the results of rules with the expectations of the case about all of them."""
    wanted = case.wanted
    statuses = [result.status.value for result in results]
    if "rules" in wanted:
        assert statuses == wanted["rules"]
    if "rules_all" in wanted:
        assert set(statuses) == {wanted["rules_all"]}
    for text in texts(wanted.get("message_contains")):
        assert any(text in result.message for result in results)


@runs("rule")
def rule(case: Case) -> None:
    """The reference's function gets only the mutate block; an empty one is refused here."""
    resource = case.given["resource"]
    raw = {"name": "r", "mutate": {}, **case.given["rule"]}
    kind = resource["kind"] if resource else "Pod"
    raw["match"] = {"any": [{"resources": {"kinds": [kind]}}]}
    results, error = attempt(
        lambda: list(own_results(case.given, policy_of([raw]), resource or {}))
    )
    wanted = case.wanted["status"]
    if resource and error is not None:
        assert wanted == "error", error
        assert case.wanted.get("resource") in (None, resource)
        return
    if not resource:
        # There is no request without an object, so no rule is evaluated.
        assert wanted == "error"
        assert error is not None or not results
        case.wanted.get("resource")
        return
    (result,) = results
    assert result.status.value == wanted
    if "resource" in case.wanted:
        assert equal(result.after, case.wanted["resource"])
    case.check_message(result.message)


def elements(resource: Object, check: Fields) -> list[Any]:
    listed = at(resource, check["path"])
    if "index" in check:
        return [listed[check["index"]]]
    wanted = check["where"]
    return [item for item in listed if all(item.get(key) == wanted[key] for key in wanted)]


def assert_elements(resource: Object, check: Fields) -> None:
    wanted = check["equals"]
    for element in elements(resource, check):
        for path, value in wanted.items():
            assert at(element, path) == value


@runs("policy")
def policy(case: Case) -> None:
    given, wanted = case.given, case.wanted
    before = given["resource"]
    operation_of(given)  # read even if the policy is refused and no rule is evaluated
    results, error = attempt(lambda: list(own_results(given, given["policy"], before)))
    if case.expects_error() or error is not None:
        case.check_error(error)
        return
    check_results(case, results)
    after = dict(results[-1].after) if results else before
    if "rule_count" in wanted:
        assert len(results) == wanted["rule_count"]
    if "resource" in wanted:
        assert equal(after, wanted["resource"])
    if "containers_len" in wanted:
        assert len(containers(after)) == wanted["containers_len"]
    if "diff_ops" in wanted:
        assert json_diff(before, after) == wanted["diff_ops"]
    for check in wanted.parts("checks"):
        assert_elements(after, check)


@runs("policy-existing")
def policy_existing(case: Case) -> None:
    """The case contains the targets, and each is matched against the queries of the rules."""
    given, wanted = case.given, case.wanted
    trigger, operation = given["trigger"], operation_of(given)
    targets = given["targets"] or ()
    user = user_of(given.part("requestInfo"))
    changed: list[TargetChange] = []
    fired = []
    for program in programs_of(given, given["policy"]):
        context = program.binding.bind(context_of(given, trigger, operation))
        subject = subject_of(trigger, operation=operation, user=user)
        fired.append(decide_trigger(program, program.match.evaluate(subject), context).fires)
        if not fired[-1]:
            continue
        assert program.targets is not None
        found, errors = program.targets.queries(context)
        assert not errors
        changed += [
            change(program, query.index, context, target)
            for query in found
            for target in targets
            if query.accepts(target)
        ]
    check_results(case, changed)
    if "rule_count" in wanted:
        assert sum(fired) == wanted["rule_count"]
    if "patchedTargets" in wanted:
        assert [item.after for item in changed] == (wanted["patchedTargets"] or [])


@runs("foreach-rule")
def foreach_rule(case: Case) -> None:
    """A patch that resolves to nothing is an error and does not crash."""
    given = case.given
    word = given.get("variable_resolves_to")
    block = {"list": "target.data.list", **given["foreach"]}
    raw = {"name": "r", "match": CONFIG_MAPS, "mutate": {"targets": [SECRET], "foreach": [block]}}
    (program,) = programs_of(given, policy_of([raw]))
    target = {**given["resource"], "data": {"list": [{"nonexistent": word}]}}
    context = context_of(given, {"apiVersion": "v1", "kind": "Namespace"}, "CREATE")
    result, error = attempt(lambda: change(program, 0, context, target))
    status = RuleStatus.ERROR if error is not None else result.status
    assert status.value == case.wanted["status"]
    case.check_message(error if error is not None else result.message)


class BrokenReads(MemoryCluster):
    """A cluster in which every read of an object fails with a transient error."""

    def __init__(self, reason: str) -> None:
        super().__init__()
        self.reason = reason

    @override
    async def get(self, *_args: Any, **_options: Any) -> Object:
        raise Unavailable(self.reason)


@runs("trigger-resolution")
def trigger_resolution(case: Case) -> None:
    """A request has one reference to its trigger, the first one that the case contains."""
    given, wanted = case.given, case.wanted
    case.fields.get("applies_to")
    if given["operation"] not in {"resolve-by-spec", "resolve-trigger"}:
        given.refuse("operation", given["operation"])
    cluster = BrokenReads(given["lookup_error"]) if "lookup_error" in given else MemoryCluster()
    for obj in given["live"] or ():
        cluster.add(obj)
    spec = request_of(given)
    trigger, error = read_trigger(cluster, spec)
    if error is None and not isinstance(trigger, Trigger):
        error = trigger_gone(spec.resource).message
    case.check_error(error)
    result = wanted.get("result")
    if result:
        assert isinstance(trigger, Trigger)
        meta = trigger.subject.obj["metadata"]
        assert {key: meta[key] for key in result} == result


def request_of(given: Fields) -> RequestSpec:
    request = given.part("updateRequestSpec")
    info = request.part("context").part("admissionRequestInfo")
    admission = info.part("admissionRequest")
    # Recorded objects are not used, because the trigger is read from the cluster.
    operations = [info.get("operation"), admission.get("operation")]
    for name in ("object", "oldObject"):
        admission.get(name)
    contexts = request.parts("ruleContext")
    listed = [context["trigger"] for context in contexts]
    ref = given.get("spec") or request.get("resource") or listed[0]
    return RequestSpec(
        policy=policy_named("p"),
        rule="r",
        resource=ObjectRef(
            api_version=ref["apiVersion"],
            kind=ref["kind"],
            namespace=ref.get("namespace", ""),
            name=ref["name"],
            uid=ref.get("uid", ""),
        ),
        operation=next(filter(None, operations), ""),
    )


def read_trigger(
    cluster: MemoryCluster, spec: RequestSpec
) -> tuple[Trigger | Presence, str | None]:
    reader = TriggerReader(
        kinds=cluster,
        reader=cluster,
        requests=MemoryRequests(cluster, "kyverno"),
        clock=SystemClock(),
        randbelow=lambda limit: limit - 1,
    )
    patch = {"patchStrategicMerge": {"data": {"a": "b"}}}
    raw = {"name": "r", "match": CONFIG_MAPS, "mutate": {"targets": [SECRET], **patch}}
    program = compile_policy(policy_of([raw])).programs[0]
    request = UpdateRequest(
        name="ur-1",
        namespace="kyverno",
        uid="u-ur-1",
        resource_version="1",
        created=datetime.fromtimestamp(0, UTC),
        labels={},
        spec=spec,
        status=RequestStatus(),
    )
    try:
        return asyncio.run(reader.read(request, program)), None
    except Unavailable as error:
        return Presence.GONE, str(error)


@runs("policy-key")
def key_of_a_policy(case: Case) -> None:
    given = case.given
    policy = {"metadata": {"name": given["policyName"], "namespace": given["namespace"]}}
    assert policy_ref(policy).key == case.wanted["expected"]


@runs("resource-spec")
def reference_to_an_object(case: Case) -> None:
    ref = ref_of(case.given["obj"]["Object"])
    found = {"Kind": ref.kind, "Name": ref.name, "NS": ref.namespace, "API": ref.api_version}
    found["UID"] = ref.uid
    for name in case.wanted:
        assert found[name.removeprefix("want")] == case.wanted[name]


@runs("ur-state")
def state_of_a_request(case: Case) -> None:
    """A request may leave every state that is not final; here a retried one stays Pending."""
    given, wanted = case.given, case.wanted
    if "terminal" in wanted:
        assert (State(given["state"]) in FINAL) is wanted["terminal"]
    if "valid" in wanted:
        assert State(given["to"]) in State
        assert (State(given["from"]) not in FINAL) is wanted["valid"]


@runs("ur-queue")
def request_that_is_queued(case: Case) -> None:
    """After any event, a request is queued unless its state is final."""
    given = case.given
    if given["event"] not in {"add", "update"}:
        given.refuse("event", given["event"])
    state = State(given["state"] or State.PENDING)
    assert (state not in FINAL) is case.wanted["enqueued"]


def recorded(
    policy: Object, resource: Object, *, operation: str, user: str, background_user: str
) -> int:
    """Return the number of requests that an admission request creates."""
    index = PolicyStore()
    index.apply(policy)
    group, version = split_api_version(resource.get("apiVersion", "v1"))
    meta = resource["metadata"]
    namespace = meta.get("namespace", "")
    request = AdmissionRequest(
        uid="u",
        operation=operation,
        kind=TypeName(group=group, version=version, name=resource["kind"]),
        resource=TypeName(group=group, version=version, name=f"{resource['kind'].lower()}s"),
        name=meta["name"],
        namespace=namespace,
        user={"username": user},
        object=None if operation == "DELETE" else resource,
        old_object=resource if operation in {"UPDATE", "DELETE"} else None,
    )
    intent = decide(
        request,
        index.rules(Known(kind=resource["kind"], subresource="", namespace=namespace)),
        parent=None,
        namespace_labels={},
        limits=Limits(
            controller_users=(background_user,),
            max_recorded=10_000,
            filters=default_filters("kyverno"),
        ),
    )
    return len(intent.drafts)


@runs("admission-creates-ur")
def admission_creates_a_request(case: Case) -> None:
    given = case.given
    number = recorded(
        given["policy"],
        given["resource"],
        operation=operation_of(given),
        user=given["username"],
        background_user=given["backgroundServiceAccount"],
    )
    assert bool(number) is case.wanted["updateRequestCreated"]


@runs("skip-background-requests")
def skip_background_requests(case: Case) -> None:
    """The remaining rules are those that create a request for an object of their kind."""
    given, wanted = case.given, case.wanted
    number = recorded(
        given["policy"],
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "a"}},
        operation=operation_of(given),
        user=given["username"],
        background_user=given["backgroundServiceAccount"],
    )
    assert number == wanted["rules_left"]
    assert (number == 0) is wanted["policy_dropped"]
