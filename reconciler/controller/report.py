"""What an attempt leaves beside the status: a log line, metrics, an event on a failure."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from reconciler.api.meta import GROUP, POLICY_VERSION
from reconciler.api.updaterequest import SUCCESSES, RequestStatus, State, UpdateRequest
from reconciler.observe.logs import Logger
from reconciler.observe.metrics import Metrics
from reconciler.services.ports import Events
from reconciler.services.process import Attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class Reporter:
    """Told of every stored status."""

    log: Logger
    metrics: Metrics
    events: Events
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
                self._warn(request, status)
            case State.PENDING:
                self.log.info("request waits", detail=status.message, **facts)
                if status.missing_permission and request.status.reason != status.reason:
                    self._warn(request, status)

    def _warn(self, request: UpdateRequest, status: RequestStatus) -> None:
        spec = request.spec
        namespace, _, name = spec.policy.rpartition("/")
        policy = {
            "apiVersion": f"{GROUP}/{POLICY_VERSION}",
            "kind": "Policy" if namespace else "ClusterPolicy",
            "namespace": namespace,
            "name": name,
            "uid": spec.policy_uid,
        }
        failed = next((item for item in status.targets if item.outcome not in SUCCESSES), None)
        related = (
            None
            if failed is None
            else {
                "apiVersion": failed.ref.api_version,
                "kind": failed.ref.kind,
                "namespace": failed.ref.namespace,
                "name": failed.ref.name,
            }
        )
        self.events.emit(
            regarding=policy,
            related=related,
            severity="Warning",
            reason="PolicyError",
            action="None",
            note=f"rule {spec.rule}, request {request.name}: {status.message}",
        )
