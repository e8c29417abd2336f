"""Reports each attempt to the operators of the programs: a log line and metrics."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from reconciler.api.updaterequest import (
    SUCCESSES,
    Reason,
    RequestSpec,
    RequestStatus,
    Source,
    State,
    TargetStatus,
    UpdateRequest,
)
from reconciler.observe.audit import AuditLog
from reconciler.observe.logs import Logger
from reconciler.observe.metrics import Metrics
from reconciler.requests.lifecycle import FINAL, Skip
from reconciler.services.processing.attempt import Attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptLog:
    """Notified of every stored status."""

    log: Logger
    metrics: Metrics
    now: Callable[[], Any]
    audit: AuditLog = field(default_factory=AuditLog)

    def observe(self, request: UpdateRequest, status: RequestStatus, attempt: Attempt) -> None:
        """Report one attempt; object names go to the log and never into labels."""
        spec, policy = request.spec, self.metrics.labels.policy(request.spec.policy.key)
        self.metrics.attempts.labels(policy, status.state.value).inc()
        # The other targets were reported with an earlier attempt.
        new = attempt.news(request.status)
        self._targets(spec, new)
        self.audit.worked(spec, new, request.name)
        if status.state in FINAL:
            self.metrics.requests_ended.labels(policy, status.state.value, status.reason).inc()
        if status.reason == Reason.SAME_AS_OTHER:
            self.metrics.requests_coalesced.labels(policy).inc()
        facts = {
            "request": request.name,
            "policy": spec.policy.key,
            "rule": spec.rule,
            "trigger": str(spec.resource),
            "state": status.state.value,
            "reason": status.reason,
            "patched": status.counts.patched,
            "targets": status.counts.matched,
        }
        match status.state:
            case State.COMPLETED:
                if spec.source is Source.ADMISSION and status.counts.patched:
                    age = (self.now() - request.created).total_seconds()
                    self.metrics.admission_to_patched.labels(policy).observe(max(0.0, age))
                self.log.info("request completed", **facts)
            case State.SKIP:
                self.log.info("request skipped", detail=status.message, **facts)
            case State.FAILED:
                self.log.warning("request failed", detail=status.message, **facts)
            case State.PENDING:
                self.log.info("request waiting", detail=status.message, **facts)

    def swept(self, spec: RequestSpec, attempt: Attempt) -> None:
        """Count one trigger of a sweep; a failed one becomes a request and is counted there."""
        if isinstance(attempt.disposition, Skip):
            return
        self.metrics.sweep_triggers.labels(
            *self.metrics.labels.rule(spec.policy.key, spec.rule)
        ).inc()
        done = [item for item in attempt.targets if item.outcome in SUCCESSES]
        self._targets(spec, done)
        self.audit.worked(spec, done)

    def _targets(self, spec: RequestSpec, targets: Iterable[TargetStatus]) -> None:
        policy = self.metrics.labels.policy(spec.policy.key)
        for target in targets:
            self.metrics.targets.labels(policy, target.outcome.value).inc()
