"""Kubernetes events on policies, triggers and targets: one per outcome, aggregated and limited.

On the policy, repeated outcomes of a rule are one event with a count. On triggers and targets,
each policy has a burst and a rate limit, because every event is a write.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from reconciler.api.meta import ObjectRef, PolicyRef
from reconciler.api.updaterequest import (
    SUCCESSES,
    Outcome,
    Reason,
    RequestSpec,
    RequestStatus,
    State,
    TargetStatus,
    UpdateRequest,
)
from reconciler.clock import Clock
from reconciler.engine.program import CompiledPolicy
from reconciler.recent import Recent
from reconciler.requests.figures import FIRED_NOTHING
from reconciler.requests.lifecycle import FINAL
from reconciler.requests.pace import Bucket, Pace
from reconciler.services.catalog.caveats import Caveat
from reconciler.services.catalog.settings.reading import MUTATED
from reconciler.services.ports.reporting import Event, Events
from reconciler.services.processing.attempt import Attempt

DIVERTED, RESUMED = "RecordingDiverted", "RecordingResumed"
ERROR, APPLIED, SKIPPED = "PolicyError", "PolicyApplied", "PolicySkipped"
CAUGHT_UP = "CaughtUp"
LOST = "TriggersLost"
PARKED = frozenset(
    {
        Reason.FORBIDDEN,
        Reason.DENIED,
        Reason.NOT_FOUND,
        Reason.INTERNAL_ERROR,
        Reason.ENTRY_NOT_READY,
        Reason.PATCH_WAR,
        Reason.RULE_CHANGED,
        Reason.TAKEN_BACK,
    }
)
"""Reasons for waiting that users need to know about; the others resolve by themselves."""
_NO_ACTION = "None"
_PACE = Pace(interval=0.5, burst=50)
_TARGETS = 10
"""The number of targets of one attempt that get an event."""


@dataclass(slots=True, kw_only=True)
class EventRecorder:
    """Emits the events of the leader.

    Attributes:
        wants_success: Returns whether successes of an action are to be reported.
        held_back: The number of events on triggers and targets that exceeded the limit.
    """

    events: Events
    clock: Clock
    wants_success: Callable[[str], bool] = lambda _: False
    held_back: int = 0
    _buckets: Recent[PolicyRef, Bucket] = field(default_factory=Recent)

    def observe(self, request: UpdateRequest, status: RequestStatus, attempt: Attempt) -> None:
        """Report an attempt whose status is stored; nothing is reported twice."""
        spec = request.spec
        new = attempt.news(request.status)
        if self.wants_success(MUTATED):
            self._applied(spec, new)
        if spec.sequence:
            self._diverted(request, status)
        match status.state:
            case State.FAILED:
                self._failed(spec, status, new)
            case State.PENDING if status.reason in PARKED:
                if status.reason != request.status.reason:
                    self._failed(spec, status, new)
            case State.SKIP if self.wants_success(_NO_ACTION) and status.reason in FIRED_NOTHING:
                note = f"policy {spec.policy}, rule {spec.rule}: {status.message}"
                event = Event(
                    regarding=_policy(spec), severity="Normal", reason=SKIPPED, note=note
                )
                self._on_object(spec, spec.resource, event, note, related=spec.resource)

    def swept(self, spec: RequestSpec, attempt: Attempt) -> None:
        """Report one trigger of a sweep; a failure is reported by the request that retries it."""
        if self.wants_success(MUTATED):
            self._applied(spec, attempt.targets)

    def caught_up(self, policy: PolicyRef, uid: str, rule: str, number: int) -> None:
        """Report that catch-up found triggers of a rule that had not been recorded."""
        what = "1 trigger" if number == 1 else f"{number} triggers"
        event = Event(
            regarding=policy.as_object(uid).reference,
            severity="Normal",
            reason=CAUGHT_UP,
            action="Record",
            note=f"rule {rule}: caught up on {what} not recorded before",
        )
        self.events.emit(event)

    def caution(self, policy: CompiledPolicy, caveat: Caveat) -> None:
        """Report a caveat of a policy that is in force."""
        self.events.emit(
            Event(
                regarding=policy.ref.as_object(policy.uid).reference,
                severity="Warning",
                reason=caveat.reason,
                note=str(caveat),
                group=caveat.location,
            )
        )

    def lost(self, policy: PolicyRef, uid: str, rule: str, note: str) -> None:
        """Report that triggers of a rule were lost permanently."""
        self.events.emit(
            Event(
                regarding=policy.as_object(uid).reference,
                severity="Warning",
                reason=LOST,
                note=f"rule {rule}: {note}",
            )
        )

    def _applied(self, spec: RequestSpec, targets: Iterable[TargetStatus]) -> None:
        patched = [item.ref for item in targets if item.outcome is Outcome.PATCHED]
        if not patched:
            return
        event = Event(
            regarding=_policy(spec),
            related=patched[0].reference,
            severity="Normal",
            reason=APPLIED,
            action=MUTATED,
            note=f"rule {spec.rule}: {patched[0]} mutated",
            group=spec.rule,
        )
        self.events.emit(event)
        for ref in patched[:_TARGETS]:
            note = f"mutated by policy {spec.policy}, rule {spec.rule}"
            self._on_object(spec, ref, event, note, related=spec.resource)
        if not any(_same(ref, spec.resource) for ref in patched):
            count = "1 target" if len(patched) == 1 else f"{len(patched)} targets"
            note = f"policy {spec.policy}, rule {spec.rule}: {count} mutated"
            self._on_object(spec, spec.resource, event, note, related=patched[0])

    def _diverted(self, request: UpdateRequest, status: RequestStatus) -> None:
        """Report when an aggregate request begins to stand for a rule's triggers, and its end."""
        spec = request.spec
        begun, ended = request.status.sweep is None, status.state in FINAL
        if not begun and not ended:
            return
        note = (
            f"rule {spec.rule}: too many requests wait, so {request.name} stands for all triggers"
        )
        if ended:
            note = f"rule {spec.rule}: {request.name} no longer stands for its triggers"
            note += f": {status.message}" if status.message else ", they are done"
        self.events.emit(
            Event(
                regarding=_policy(spec),
                severity="Normal" if ended else "Warning",
                reason=RESUMED if ended else DIVERTED,
                note=note,
                group=spec.rule,
            )
        )

    def _failed(
        self, spec: RequestSpec, status: RequestStatus, targets: Iterable[TargetStatus]
    ) -> None:
        failed = [item for item in targets if item.outcome not in SUCCESSES]
        first = failed[0].ref if failed else spec.resource
        event = Event(
            regarding=_policy(spec),
            related=first.reference,
            severity="Warning",
            reason=ERROR,
            note=f"rule {spec.rule}: {status.message}",
            group=f"{spec.rule} {status.reason}",
        )
        self.events.emit(event)
        if spec.sweep:
            return
        where = f"policy {spec.policy}, rule {spec.rule}"
        for item in failed[:_TARGETS]:
            if item.outcome is not Outcome.NOT_FOUND:
                note = f"{where}: {item.message}"
                self._on_object(spec, item.ref, event, note, related=spec.resource)
        if not any(_same(item.ref, spec.resource) for item in failed):
            note = f"{where}: {status.message}"
            self._on_object(spec, spec.resource, event, note, related=first)

    def _on_object(
        self, spec: RequestSpec, ref: ObjectRef, event: Event, note: str, *, related: ObjectRef
    ) -> None:
        """Emit the event of a policy on an object as well, unless there were too many."""
        if not self._allowed(spec.policy):
            self.held_back += 1
            return
        other = None if _same(related, ref) else related.reference
        self.events.emit(
            replace(event, regarding=ref.reference, related=other, note=note, group="")
        )

    def _allowed(self, policy: PolicyRef) -> bool:
        now = self.clock.monotonic()
        bucket = self._buckets.get(policy) or Bucket.full(_PACE, now)
        if bucket.ready_at(_PACE, now) > now:
            return False
        self._buckets.keep(policy, bucket.take(_PACE, now))
        return True


def _policy(spec: RequestSpec) -> Mapping[str, Any]:
    return spec.policy.as_object(spec.policy_uid).reference


def _same(one: ObjectRef, other: ObjectRef) -> bool:
    names = (one.kind, one.namespace, one.name)
    return names == (other.kind, other.namespace, other.name)
