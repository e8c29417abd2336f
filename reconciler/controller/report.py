"""What an attempt leaves for those who run the programs: a log line and metrics."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from reconciler.api.updaterequest import RequestStatus, State, UpdateRequest
from reconciler.observe.logs import Logger
from reconciler.observe.metrics import Metrics
from reconciler.services.process import Attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class Reporter:
    """Told of every stored status."""

    log: Logger
    metrics: Metrics
    now: Callable[[], Any]

    def observe(self, request: UpdateRequest, status: RequestStatus, attempt: Attempt) -> None:
        """Report one attempt; names of objects go to the log and never into labels."""
        self.metrics.attempts.labels(status.state.value).inc()
        for target in attempt.targets:
            if target in request.status.targets:
                continue  # told after an earlier attempt
            self.metrics.targets.labels(target.outcome.value).inc()
        facts = {
            "request": request.name,
            "policy": request.spec.policy,
            "rule": request.spec.rule,
            "trigger": str(request.spec.resource),
            "state": status.state.value,
            "reason": status.reason,
            "patched": status.counts.patched,
            "targets": status.counts.matched,
        }
        match status.state:
            case State.COMPLETED:
                age = (self.now() - request.created).total_seconds()
                self.metrics.admission_to_patched.observe(max(0.0, age))
                self.log.info("request completed", **facts)
            case State.SKIP:
                self.log.info("request skipped", detail=status.message, **facts)
            case State.FAILED:
                self.log.warning("request failed", detail=status.message, **facts)
            case State.PENDING:
                self.log.info("request waits", detail=status.message, **facts)
