"""Parses and renders an `UpdateRequest`.

The parser also accepts what the reference stored: an unknown field is ignored, a missing one
takes its default, so that a cluster's older requests end with a message instead of an error.
"""

from collections.abc import Mapping
from dataclasses import asdict, fields
from datetime import UTC, datetime
from typing import Any, TypeVar

from reconciler.api.kinds import installation_of, policy_named
from reconciler.api.meta import (
    ANNOTATION_RETRIED,
    ANNOTATION_RETRY,
    ANNOTATION_RETRY_FAILED,
    FIELD_MANAGER,
    Object,
    ObjectRef,
    PolicyRef,
)
from reconciler.api.updaterequest import (
    Counts,
    Outcome,
    RequestSpec,
    RequestStatus,
    Source,
    State,
    SweepProgress,
    TargetStatus,
    TriggerRecord,
    UpdateRequest,
    parse_time,
    render_time,
)
from reconciler.installation import REPLACING, Installation

RULE_WORK = "mutate"
HOOK_WORK = "hook"
"""The two kinds of work of this project, as values of ``spec.requestType``."""
_MOST = 1 << 53

T = TypeVar("T", Counts, SweepProgress)


def parse_request(obj: Mapping[str, Any]) -> UpdateRequest:
    """Return the request that an object represents."""
    meta = obj.get("metadata") or {}
    marks = meta.get("annotations") or {}
    status = parse_status(obj.get("status") or {})
    return UpdateRequest(
        name=meta.get("name", ""),
        namespace=meta.get("namespace", ""),
        uid=meta.get("uid", ""),
        resource_version=meta.get("resourceVersion", ""),
        created=parse_time(meta.get("creationTimestamp")) or datetime.fromtimestamp(0, UTC),
        labels=meta.get("labels") or {},
        spec=parse_spec(obj.get("spec") or {}, installation_of(str(obj.get("apiVersion", "")))),
        status=status,
        nudge=marks.get(ANNOTATION_RETRY, ""),
        retry_requested=bool(marks.get(ANNOTATION_RETRY_FAILED)),
        retried=marks.get(ANNOTATION_RETRIED, ""),
        ended_by="" if status.state is State.PENDING else _ended_by(meta),
    )


def _ended_by(meta: Mapping[str, Any]) -> str:
    """Return the manager of a final state that the controller did not write, empty where it did.

    The controller writes the finish time together with the state, and remains the owner of that
    time when another manager sets the state afterwards. Without managedFields it is empty.
    """
    owners: dict[str, str] = {}
    for entry in meta.get("managedFields") or ():
        fields = (entry.get("fieldsV1") or {}).get("f:status") or {}
        manager = str(entry.get("manager", ""))
        if "f:finishTime" in fields and manager == FIELD_MANAGER:
            return ""
        owners |= dict.fromkeys(fields, manager)
    return owners.get("f:state", "")


def _parse_ref(raw: Mapping[str, Any]) -> ObjectRef:
    return ObjectRef(
        api_version=raw.get("apiVersion", ""),
        kind=raw.get("kind", ""),
        namespace=raw.get("namespace", ""),
        name=raw.get("name", ""),
        uid=raw.get("uid", ""),
    )


def _parse_policy(raw: Mapping[str, Any], installation: Installation) -> PolicyRef:
    ref = raw.get("policyRef")
    if not ref:
        # Written by hand, or by a version that supported these two kinds only.
        return policy_named(raw.get("policy", ""), installation)
    return PolicyRef(
        api_version=ref.get("apiVersion", ""),
        kind=ref.get("kind", ""),
        namespace=ref.get("namespace", ""),
        name=ref.get("name", ""),
    )


def _render_ref(ref: ObjectRef) -> Object:
    return {key: value for key, value in ref.reference.items() if value}


def parse_spec(raw: Mapping[str, Any], installation: Installation = REPLACING) -> RequestSpec:
    """Return a request's spec; a policy without a kind is one of the installation."""
    context = raw.get("context") or {}
    info = context.get("admissionRequestInfo") or {}
    trigger = raw.get("trigger") or {}
    source = raw.get("source", Source.ADMISSION)
    return RequestSpec(
        policy=_parse_policy(raw, installation),
        rule=raw.get("rule", ""),
        resource=_parse_ref(raw.get("resource") or {}),
        source=Source(source) if source in set(Source) else Source.ADMISSION,
        operation=info.get("operation", ""),
        user=context.get("userInfo") or {},
        request=info.get("admissionRequest") or {},
        trigger=TriggerRecord(
            resource_version=trigger.get("resourceVersion", ""),
            digest=trigger.get("digest", ""),
            unchanged=bool(trigger.get("unchanged", False)),
            terminating=bool(trigger.get("terminating", False)),
            subresource=trigger.get("subresource", ""),
        ),
        policy_uid=raw.get("policyUID", ""),
        policy_generation=int(raw.get("policyGeneration", 0)),
        recorded=raw.get("recorded"),
        recorded_secret=raw.get("recordedSecret", ""),
        sweep="sweep" in raw,
        unless=tuple(raw.get("unless") or ()),
        sequence=int(raw.get("sequence", 0)),
        queue=raw.get("queue", "") if raw.get("requestType") == HOOK_WORK else "",
        order=int(raw.get("order", 0)),
    )


def render_spec(spec: RequestSpec) -> Object:
    """Return the spec as it is stored, without empty parts."""
    trigger = {
        "resourceVersion": spec.trigger.resource_version,
        "digest": spec.trigger.digest,
        "unchanged": spec.trigger.unchanged,
        "terminating": spec.trigger.terminating,
        "subresource": spec.trigger.subresource,
    }
    info = {"operation": spec.operation, "admissionRequest": dict(spec.request)}
    context = {
        "userInfo": dict(spec.user),
        "admissionRequestInfo": {key: value for key, value in info.items() if value},
    }
    optional = {
        "context": {key: value for key, value in context.items() if value},
        "trigger": {key: value for key, value in trigger.items() if value},
        "policyUID": spec.policy_uid,
        "policyGeneration": spec.policy_generation,
        "recordedSecret": spec.recorded_secret,
        "unless": list(spec.unless),
        "sequence": spec.sequence,
        "queue": spec.queue,
        "order": spec.order,
    }
    rendered: Object = {
        "requestType": HOOK_WORK if spec.is_for_hook else RULE_WORK,
        "policy": spec.policy.key,
        "policyRef": _render_ref(spec.policy.as_object("")),
        "rule": spec.rule,
        "resource": _render_ref(spec.resource),
        "source": spec.source.value,
    }
    rendered |= {key: value for key, value in optional.items() if value}
    if spec.recorded is not None:
        rendered["recorded"] = dict(spec.recorded)
    if spec.sweep:
        rendered["sweep"] = {}
    return rendered


def parse_status(raw: Mapping[str, Any]) -> RequestStatus:
    """Return the status of a request."""
    state = raw.get("state") or State.PENDING
    sweep = raw.get("sweep")
    return RequestStatus(
        state=State(state) if state in set(State) else State.PENDING,
        reason=raw.get("reason", ""),
        message=raw.get("message", ""),
        attempts=_number(raw, "attempts"),
        next_attempt=parse_time(raw.get("nextAttemptTime")),
        finished=parse_time(raw.get("finishTime")),
        targets=tuple(_parse_target(item) for item in raw.get("targets") or ()),
        counts=_parse_fields(Counts, raw.get("counts") or {}),
        missing_permission=raw.get("missingPermission", ""),
        interruptions=int(raw.get("interruptions", 0)),
        sweep=None if sweep is None else _parse_fields(SweepProgress, sweep),
        remove_after=raw.get("removeAfter", ""),
        plan=raw.get("plan"),
        plan_secret=raw.get("planSecret", ""),
    )


def _number(raw: Mapping[str, Any], field: str, default: Any = 0) -> int:
    # A counter that goes on has to stay a number that the API server accepts.
    return min(max(int(raw.get(field, default)), -1), _MOST)


def _parse_target(raw: Mapping[str, Any]) -> TargetStatus:
    outcome = raw.get("outcome", "")
    return TargetStatus(
        ref=_parse_ref(raw),
        subresource=raw.get("subresource", ""),
        outcome=Outcome(outcome) if outcome in set(Outcome) else Outcome.FAILED,
        attempts=_number(raw, "attempts", 1),
        message=raw.get("message", ""),
        version_before=raw.get("resourceVersionBefore", ""),
        version_after=raw.get("resourceVersionAfter", ""),
    )


def _parse_fields(kind: type[T], raw: Mapping[str, Any]) -> T:
    """Return a part of the status whose fields are stored under their own names."""
    found: dict[str, Any] = {
        item.name: _number(raw, item.name, item.default)
        if item.type is int
        else raw.get(item.name, "")
        for item in fields(kind)
    }
    return kind(**found)


def _render_target(target: TargetStatus) -> Object:
    pairs = {
        **_render_ref(target.ref),
        "subresource": target.subresource,
        "outcome": target.outcome.value,
        "attempts": target.attempts,
        "message": target.message,
        "resourceVersionBefore": target.version_before,
        "resourceVersionAfter": target.version_after,
    }
    return {key: value for key, value in pairs.items() if value}


def summary(status: RequestStatus) -> str:
    """Return the column PATCHED: changed targets of all matched targets, as ``3/4``."""
    return f"{status.counts.patched}/{status.counts.matched}" if status.counts.matched else ""


def progress(status: RequestStatus) -> str:
    """Return the column PROGRESS: objects that a sweep examined, as ``120/500 (8s)``."""
    if status.sweep is None:
        return ""
    total = "?" if status.sweep.total < 0 else str(status.sweep.total)
    eta = f" ({status.sweep.eta})" if status.sweep.eta else ""
    return f"{status.sweep.done}/{total}{eta}"


def render_status(status: RequestStatus) -> Object:
    """Return the whole status for a merge patch, in which unset fields are null."""
    counts = status.counts
    return {
        "state": status.state.value,
        "reason": status.reason or None,
        "message": status.message or None,
        "attempts": status.attempts,
        "nextAttemptTime": None
        if status.next_attempt is None
        else render_time(status.next_attempt),
        "finishTime": None if status.finished is None else render_time(status.finished),
        "targets": [_render_target(item) for item in status.targets] or None,
        "counts": {"matched": counts.matched, **asdict(counts)} if counts.matched else None,
        "summary": summary(status) or None,
        "progress": progress(status) or None,
        "missingPermission": status.missing_permission or None,
        "interruptions": status.interruptions or None,
        "sweep": None if status.sweep is None else asdict(status.sweep),
        "removeAfter": status.remove_after or None,
        "plan": None if status.plan is None else dict(status.plan),
        "planSecret": status.plan_secret or None,
    }
