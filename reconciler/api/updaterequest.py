"""`UpdateRequest`: an immutable order with a status (architecture part 5).

The reader accepts what the reference stored too: an unknown field is ignored, a missing one
takes its default, so that a cluster's older requests end with a message instead of an error.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from reconciler.api.meta import (
    ANNOTATION_RETRIED,
    ANNOTATION_RETRY,
    ANNOTATION_RETRY_FAILED,
    FIELD_MANAGER,
    GROUP,
    REQUEST_VERSION,
    Object,
    ObjectRef,
)

API_VERSION = f"{GROUP}/{REQUEST_VERSION}"
KIND = "UpdateRequest"
_MOST = 1 << 53


class Source(StrEnum):
    """What made the request."""

    ADMISSION = "admission"
    POLICY_CHANGE = "policyChange"
    CATCH_UP = "catchUp"
    MANUAL = "manual"


class State(StrEnum):
    """Where a request stands; an empty state on the wire means Pending."""

    PENDING = "Pending"
    COMPLETED = "Completed"
    FAILED = "Failed"
    SKIP = "Skip"


class Outcome(StrEnum):
    """What happened to one target."""

    PATCHED = "Patched"
    UNCHANGED = "Unchanged"
    SKIPPED = "Skipped"
    NOT_FOUND = "NotFound"
    CONFLICT = "Conflict"
    FORBIDDEN = "Forbidden"
    INVALID = "Invalid"
    DENIED = "Denied"
    FAILED = "Failed"


SUCCESSES = frozenset({Outcome.PATCHED, Outcome.UNCHANGED, Outcome.SKIPPED})


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerRecord:
    """What admission saw of the trigger, without its content.

    Attributes:
        resource_version: What the admission request carried; empty on CREATE.
        digest: Of the object without managedFields, resourceVersion and generation.
        unchanged: The request changed nothing, so the stored version does not move.
        terminating: The object had a deletionTimestamp before the request.
    """

    resource_version: str = ""
    digest: str = ""
    unchanged: bool = False
    terminating: bool = False
    subresource: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSpec:
    """The order.

    Attributes:
        policy: ``name`` of a ClusterPolicy or ``namespace/name`` of a Policy.
        resource: The trigger; of a sweep, the policy itself.
        operation: Empty where no admission request caused it.
        user: ``{userInfo, roles, clusterRoles}`` of the requesting user, or empty.
        request: Further fields of the admission request that expressions may read (kind,
            resource, subResource, name, namespace, uid, ...), never object or oldObject.
        recorded: The parts of ``object`` and ``oldObject`` that the rule reads and that are
            gone later, as partial trees under those two keys.
        recorded_secret: Name of the Secret that holds ``recorded`` where it must not stand here.
        sweep: A request for all triggers of the rule.
        unless: Rules that come first in a policy of which only one is applied; where one of
            them fires for the trigger, this one does not.
        sequence: Of an order that stands for the triggers of a rule which are not recorded one
            by one: each of them raises it. 0 in every other request.
    """

    policy: str
    rule: str
    resource: ObjectRef
    source: Source = Source.ADMISSION
    operation: str = ""
    user: Mapping[str, Any] = field(default_factory=dict)
    request: Mapping[str, Any] = field(default_factory=dict)
    trigger: TriggerRecord = field(default_factory=TriggerRecord)
    policy_uid: str = ""
    policy_generation: int = 0
    recorded: Mapping[str, Any] | None = None
    recorded_secret: str = ""
    sweep: bool = False
    unless: tuple[str, ...] = ()
    sequence: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetStatus:
    """The last result at one target; resource versions are those before and after the write."""

    ref: ObjectRef
    subresource: str = ""
    outcome: Outcome
    attempts: int = 1
    message: str = ""
    before: str = ""
    after: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How many targets ended how; ``failed`` holds all that is not a success."""

    patched: int = 0
    unchanged: int = 0
    skipped: int = 0
    failed: int = 0

    @property
    def matched(self) -> int:
        """Return how many targets there were."""
        return self.patched + self.unchanged + self.skipped + self.failed


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepProgress:
    """How far a sweep is.

    Attributes:
        cursor: The last trigger that is done, ``<listing>:<namespace>/<name>``.
        done: Triggers that were looked at.
        total: Triggers as counted at the start; -1 before.
        matched: Of those, the triggers that fired the rule.
        failed: Triggers that went to a child request.
        eta: Time that the rest will take, as ``1m20s``; empty where unknown.
        generation: Of the policy as it was worked with; 0 before.
        phase: ``all``; with canaries ``canary``, ``promotion``, ``rest``; empty before.
        canary: Labels of the triggers that come first, as the policy said at the start.
        sequence: Of an order with a sequence, the one that this round through the triggers sees
            to; 0 between rounds.
    """

    cursor: str = ""
    done: int = 0
    total: int = -1
    matched: int = 0
    failed: int = 0
    eta: str = ""
    generation: int = 0
    phase: str = ""
    canary: str = ""
    sequence: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestStatus:
    """The status subresource.

    Attributes:
        attempts: Finished attempts.
        next_attempt: Not before this time; None means now.
        targets: All non-successes up to the size limit, and a sample of the rest.
        missing_permission: What to grant, where a right is missing.
        interruptions: Attempts in a row that were ended from outside, or began and have not ended.
        remove_after: The minute after which the finished request is collected, as
            ``2026-01-31T10:05Z``: a selectable field, so that one call removes a minute's.
    """

    state: State = State.PENDING
    reason: str = ""
    message: str = ""
    attempts: int = 0
    next_attempt: datetime | None = None
    finished: datetime | None = None
    targets: tuple[TargetStatus, ...] = ()
    counts: Counts = field(default_factory=Counts)
    missing_permission: str = ""
    interruptions: int = 0
    sweep: SweepProgress | None = None
    remove_after: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateRequest:
    """A stored request.

    Attributes:
        nudge: Another value than before: somebody wants the next attempt now.
        retry_requested: Somebody wants another request to do the work of this one, which failed.
        retried: The name of the request that does its work again, empty where none does.
        ended_by: Who made it final in place of the controller, as a field manager; else empty.
    """

    name: str
    namespace: str
    uid: str
    resource_version: str
    created: datetime
    labels: Mapping[str, str]
    spec: RequestSpec
    status: RequestStatus
    nudge: str = ""
    retry_requested: bool = False
    retried: str = ""
    ended_by: str = ""


def parse_time(text: Any) -> datetime | None:
    """Return the time of an RFC 3339 text, None where it is not one."""
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo else None
    except (ValueError, OverflowError):  # in UTC it may be before the year 1
        return None


def render_time(moment: datetime) -> str:
    """Return RFC 3339 with microseconds, in UTC."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def parse_request(obj: Mapping[str, Any]) -> UpdateRequest:
    """Return the request that an object holds."""
    meta = obj.get("metadata") or {}
    marks = meta.get("annotations") or {}
    return UpdateRequest(
        name=meta.get("name", ""),
        namespace=meta.get("namespace", ""),
        uid=meta.get("uid", ""),
        resource_version=meta.get("resourceVersion", ""),
        created=parse_time(meta.get("creationTimestamp")) or datetime.fromtimestamp(0, UTC),
        labels=meta.get("labels") or {},
        spec=parse_spec(obj.get("spec") or {}),
        status=parse_status(obj.get("status") or {}),
        nudge=marks.get(ANNOTATION_RETRY, ""),
        retry_requested=bool(marks.get(ANNOTATION_RETRY_FAILED)),
        retried=marks.get(ANNOTATION_RETRIED, ""),
        ended_by=_ended_by(obj),
    )


def _ended_by(obj: Mapping[str, Any]) -> str:
    """Return who set a final state that the controller did not write, empty where it did.

    The controller writes the time together with the state, and whoever sets a state afterwards
    leaves that time to it. Where nobody's fields are known nothing is said of anybody.
    """
    if parse_status(obj.get("status") or {}).state is State.PENDING:
        return ""
    owners: dict[str, str] = {}
    for entry in (obj.get("metadata") or {}).get("managedFields") or ():
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


def _render_ref(ref: ObjectRef) -> Object:
    pairs = {
        "apiVersion": ref.api_version,
        "kind": ref.kind,
        "namespace": ref.namespace,
        "name": ref.name,
        "uid": ref.uid,
    }
    return {key: value for key, value in pairs.items() if value}


def parse_spec(raw: Mapping[str, Any]) -> RequestSpec:
    """Return the order of a request's spec."""
    context = raw.get("context") or {}
    info = context.get("admissionRequestInfo") or {}
    trigger = raw.get("trigger") or {}
    source = raw.get("source", Source.ADMISSION)
    return RequestSpec(
        policy=raw.get("policy", ""),
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
    )


def render_spec(spec: RequestSpec) -> Object:
    """Return the spec as it is stored; empty parts are left out."""
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
    }
    rendered: Object = {
        "requestType": "mutate",
        "policy": spec.policy,
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
    counts = raw.get("counts") or {}
    sweep = raw.get("sweep")
    return RequestStatus(
        state=State(state) if state in set(State) else State.PENDING,
        reason=raw.get("reason", ""),
        message=raw.get("message", ""),
        attempts=_number(raw, "attempts"),
        next_attempt=parse_time(raw.get("nextAttemptTime")),
        finished=parse_time(raw.get("finishTime")),
        targets=tuple(_parse_target(item) for item in raw.get("targets") or ()),
        counts=Counts(
            patched=_number(counts, "patched"),
            unchanged=_number(counts, "unchanged"),
            skipped=_number(counts, "skipped"),
            failed=_number(counts, "failed"),
        ),
        missing_permission=raw.get("missingPermission", ""),
        interruptions=int(raw.get("interruptions", 0)),
        sweep=None if sweep is None else _parse_sweep(sweep),
        remove_after=raw.get("removeAfter", ""),
    )


def _number(raw: Mapping[str, Any], field: str, default: int = 0) -> int:
    # What counts further has to stay a number that the API server takes.
    return min(max(int(raw.get(field, default)), -1), _MOST)


def _parse_target(raw: Mapping[str, Any]) -> TargetStatus:
    outcome = raw.get("outcome", "")
    return TargetStatus(
        ref=_parse_ref(raw),
        subresource=raw.get("subresource", ""),
        outcome=Outcome(outcome) if outcome in set(Outcome) else Outcome.FAILED,
        attempts=_number(raw, "attempts", 1),
        message=raw.get("message", ""),
        before=raw.get("resourceVersionBefore", ""),
        after=raw.get("resourceVersionAfter", ""),
    )


def _parse_sweep(raw: Mapping[str, Any]) -> SweepProgress:
    return SweepProgress(
        cursor=raw.get("cursor", ""),
        done=_number(raw, "done"),
        total=_number(raw, "total", -1),
        matched=_number(raw, "matched"),
        failed=_number(raw, "failed"),
        eta=raw.get("eta", ""),
        generation=_number(raw, "generation"),
        phase=raw.get("phase", ""),
        canary=raw.get("canary", ""),
        sequence=_number(raw, "sequence"),
    )


def _render_target(target: TargetStatus) -> Object:
    pairs = {
        **_render_ref(target.ref),
        "subresource": target.subresource,
        "outcome": target.outcome.value,
        "attempts": target.attempts,
        "message": target.message,
        "resourceVersionBefore": target.before,
        "resourceVersionAfter": target.after,
    }
    return {key: value for key, value in pairs.items() if value}


def summary(status: RequestStatus) -> str:
    """Return the column PATCHED: targets changed of targets matched, as ``3/4``."""
    return f"{status.counts.patched}/{status.counts.matched}" if status.counts.matched else ""


def progress(status: RequestStatus) -> str:
    """Return the column PROGRESS: objects that a sweep looked at, as ``120/500 (8s)``."""
    if status.sweep is None:
        return ""
    total = "?" if status.sweep.total < 0 else str(status.sweep.total)
    eta = f" ({status.sweep.eta})" if status.sweep.eta else ""
    return f"{status.sweep.done}/{total}{eta}"


def render_status(status: RequestStatus) -> Object:
    """Return the whole status as a merge patch wants it: what is not set is null."""
    sweep = status.sweep
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
        "counts": None
        if not status.counts.matched
        else {
            "matched": status.counts.matched,
            "patched": status.counts.patched,
            "unchanged": status.counts.unchanged,
            "skipped": status.counts.skipped,
            "failed": status.counts.failed,
        },
        "summary": summary(status) or None,
        "progress": progress(status) or None,
        "missingPermission": status.missing_permission or None,
        "interruptions": status.interruptions or None,
        "sweep": None
        if sweep is None
        else {
            "cursor": sweep.cursor,
            "done": sweep.done,
            "total": sweep.total,
            "matched": sweep.matched,
            "failed": sweep.failed,
            "eta": sweep.eta,
            "generation": sweep.generation,
            "phase": sweep.phase,
            "canary": sweep.canary,
            "sequence": sweep.sequence,
        },
        "removeAfter": status.remove_after or None,
    }
