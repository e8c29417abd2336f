"""`UpdateRequest`: an immutable spec with a status (architecture part 5)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from reconciler.api.meta import ObjectRef, PolicyRef
from reconciler.values import value_class


class Source(StrEnum):
    """What caused the request."""

    ADMISSION = "admission"
    POLICY_CHANGE = "policyChange"
    CATCH_UP = "catchUp"
    MANUAL = "manual"
    WATCH = "watch"
    SCHEDULE = "schedule"
    STARTUP = "startup"


class State(StrEnum):
    """The state of a request; an empty state on the wire means Pending."""

    PENDING = "Pending"
    COMPLETED = "Completed"
    FAILED = "Failed"
    SKIP = "Skip"


class Reason(StrEnum):
    """Why a request is in its state, in one word for programs."""

    APPLIED = "Applied"
    UNCONFIRMED = "Unconfirmed"
    FORBIDDEN = "Forbidden"
    CONFLICT = "Conflict"
    PATCH_WAR = "PatchWar"
    DENIED = "Denied"
    NOT_FOUND = "NotFound"
    ENTRY_NOT_READY = "EntryNotReady"
    INVALID = "Invalid"
    FAILED = "Failed"
    PAUSED = "Paused"
    OUTSIDE_WINDOW = "OutsideWindow"
    RATE_LIMITED = "RateLimited"
    SETTLING = "Settling"
    RULE_CHANGED = "RuleChanged"
    CANARY = "Canary"
    IMMUTABLE = "Immutable"
    TOO_MANY_FAILURES = "TooManyFailures"
    STANDING_BY = "StandingBy"
    INVALID_ACCOUNT = "InvalidAccount"
    INVALID_LIMIT = "InvalidLimit"
    TAKEN_BACK = "TakenBack"
    INTERRUPTED = "Interrupted"
    INTERNAL_ERROR = "InternalError"
    INVALID_POLICY = "InvalidPolicy"
    TOO_DEEP = "TooDeep"
    RECORD_GONE = "RecordGone"
    MALFORMED_REQUEST = "MalformedRequest"
    TRIGGER_REFUSED = "TriggerRefused"
    EVALUATION_FAILED = "EvaluationFailed"
    HOOK_FAILED = "HookFailed"
    TARGET_UNRESOLVED = "TargetUnresolved"
    TARGET_NOT_FOUND = "TargetNotFound"
    TARGET_INVALID = "TargetInvalid"
    TARGET_DENIED = "TargetDenied"
    TARGET_FAILED = "TargetFailed"
    NO_MATCH = "NoMatch"
    EXCEPTED = "Excepted"
    OTHER_RULE = "OtherRule"
    NOT_STORED = "NotStored"
    TRIGGER_GONE = "TriggerGone"
    POLICY_GONE = "PolicyGone"
    RULE_GONE = "RuleGone"
    SAME_AS_OTHER = "SameAsOther"
    SUPERSEDED = "Superseded"


class Outcome(StrEnum):
    """What happened to one target."""

    PATCHED = "Patched"
    CREATED = "Created"
    DELETED = "Deleted"
    UNCHANGED = "Unchanged"
    SKIPPED = "Skipped"
    NOT_FOUND = "NotFound"
    CONFLICT = "Conflict"
    FORBIDDEN = "Forbidden"
    INVALID = "Invalid"
    DENIED = "Denied"
    FAILED = "Failed"


CHANGES = frozenset({Outcome.PATCHED, Outcome.CREATED, Outcome.DELETED})
SUCCESSES = CHANGES | {Outcome.UNCHANGED, Outcome.SKIPPED}


@value_class(frozen=True, slots=True, kw_only=True)
class TriggerRecord:
    """What the admission request showed about the trigger, without its content.

    Attributes:
        resource_version: The one that the admission request carried; empty on CREATE.
        digest: Digest of the object without managedFields, resourceVersion and generation.
        unchanged: The request changed nothing, so the stored resourceVersion stays the same.
        terminating: The object had a deletionTimestamp before the request.
    """

    resource_version: str = ""
    digest: str = ""
    unchanged: bool = False
    terminating: bool = False
    subresource: str = ""


@value_class(frozen=True, slots=True, kw_only=True)
class RequestSpec:
    """The work that is requested.

    Attributes:
        resource: The trigger; in a sweep, the policy itself.
        operation: Empty where no admission request caused this request.
        user: ``{userInfo, roles, clusterRoles}`` of the requesting user, or empty.
        request: Further fields of the admission request that expressions may read (kind,
            resource, subResource, name, namespace, uid, ...), never object or oldObject.
        recorded: The parts of ``object`` and ``oldObject`` that the rule reads and that cannot
            be read later, as partial trees under those two keys.
        recorded_secret: Name of the Secret that holds ``recorded`` where the spec must not.
        sweep: The request is for all triggers of the rule.
        unless: Earlier rules of a policy that applies only one of its rules; where one of them
            fires for the trigger, this rule does not.
        sequence: In an aggregate request, a counter that each trigger raises which is not
            recorded one by one. 0 in every other request.
        queue: The queue of a request for a hook; empty in every other request.
        order: The position in that queue; requests that were recorded later have higher ones.
    """

    policy: PolicyRef
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
    queue: str = ""
    order: int = 0

    @property
    def is_for_hook(self) -> bool:
        """Return whether the request is for a hook instead of a rule."""
        return bool(self.queue)


@value_class(frozen=True, slots=True, kw_only=True)
class TargetStatus:
    """The last result at one target, with its resourceVersions before and after the write."""

    ref: ObjectRef
    subresource: str = ""
    outcome: Outcome
    attempts: int = 1
    message: str = ""
    version_before: str = ""
    version_after: str = ""


@value_class(frozen=True, slots=True, kw_only=True)
class Counts:
    """How many targets had which outcome.

    Attributes:
        patched: Targets that were changed, created or deleted.
        failed: Targets without success.
    """

    patched: int = 0
    unchanged: int = 0
    skipped: int = 0
    failed: int = 0

    @property
    def matched(self) -> int:
        """Return the number of all targets."""
        return self.patched + self.unchanged + self.skipped + self.failed


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepProgress:
    """The progress of a sweep.

    Attributes:
        cursor: The last trigger that is done, ``<listing>:<namespace>/<name>``.
        done: Number of triggers that were examined.
        total: Number of triggers, counted at the start; -1 before.
        matched: Number of examined triggers that fired the rule.
        failed: Number of triggers that were left to a child request.
        eta: Estimated time for the rest, as ``1m20s``; empty where unknown.
        generation: Generation of the policy that the sweep works with; 0 before the start.
        phase: ``all``; with canaries ``canary``, ``promotion``, ``rest``; empty before the start.
        canary: Label selector of the triggers that come first, as the policy had it at the start.
        sequence: In an aggregate request, the sequence that this pass over the triggers covers;
            0 between passes.
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


@value_class(frozen=True, slots=True, kw_only=True)
class RequestStatus:
    """The status subresource.

    Attributes:
        reason: A `Reason`, or a reason that another version stored.
        attempts: Number of finished attempts.
        next_attempt: The earliest time of the next attempt; None means now.
        targets: All targets without success up to the size limit, and a sample of the others.
        missing_permission: The right to grant, where one is missing.
        interruptions: Attempts in a row that were ended from outside, or began and have not ended.
        remove_after: The time after which the finished request is removed, as
            ``2026-01-31T10:05:00Z``: a selectable field, so that one call removes all of them.
        plan: In a request for a hook, the operations of its run and which of them are done; None
            where nothing was planned.
        plan_secret: Name of the Secret that holds the plan where the status must not.
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
    plan: Mapping[str, Any] | None = None
    plan_secret: str = ""


@value_class(frozen=True, slots=True, kw_only=True)
class UpdateRequest:
    """A stored request.

    Attributes:
        nudge: Value of the retry annotation; a new value asks for the next attempt now.
        retry_requested: An annotation asks for another request to redo this one, which failed.
        retried: Name of the request that does its work again, empty where none does.
        ended_by: The field manager that ended it in place of the controller; else empty.
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
    """Return a time as RFC 3339 text in UTC, with microseconds."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
