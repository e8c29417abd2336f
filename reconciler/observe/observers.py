"""All observers of results: log, metrics, events, progress and reports."""

from dataclasses import dataclass

from reconciler.api.updaterequest import SUCCESSES, RequestSpec, RequestStatus, UpdateRequest
from reconciler.observe.attempt_log import AttemptLog
from reconciler.services.catchup.recovery import Loss, describe
from reconciler.services.catchup.search import PassResult
from reconciler.services.processing.attempt import Attempt
from reconciler.services.reporting.events import EventRecorder
from reconciler.services.reporting.policy_reports import Reports
from reconciler.services.reporting.policy_status import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Observers:
    """Notified of stored statuses; an observer decides nothing."""

    attempt_log: AttemptLog
    event_recorder: EventRecorder
    progress: Progress
    reports: Reports

    def observe(self, request: UpdateRequest, status: RequestStatus, attempt: Attempt) -> None:
        """Report an attempt whose status is stored."""
        self.attempt_log.observe(request, status, attempt)
        self.event_recorder.observe(request, status, attempt)
        self.progress.observe(request, status)
        self.reports.add(request.spec, attempt.news(request.status))

    def on_recovered(self, request: UpdateRequest) -> None:
        """Report a finished request that is stored when this process becomes the leader."""
        self.progress.on_recovered(request)
        self.reports.on_recovered(request)

    def swept(self, spec: RequestSpec, attempt: Attempt) -> None:
        """Report the result of a sweep for one trigger; a failed one becomes a request."""
        self.attempt_log.swept(spec, attempt)
        self.event_recorder.swept(spec, attempt)
        done = [item for item in attempt.targets if item.outcome in SUCCESSES]
        self.reports.add(spec, done)

    def caught_up(self, found: PassResult) -> None:
        """Report the triggers that a catch-up pass recorded."""
        log, metrics = self.attempt_log.log, self.attempt_log.metrics
        for (policy, uid, rule), number in found.recorded.items():
            metrics.requests_caught_up.labels(*metrics.labels.rule(policy.key, rule)).inc(number)
            log.warning("lost triggers found", policy=policy.key, rule=rule, triggers=number)
            self.event_recorder.caught_up(policy, uid, rule, number)

    def lost(self, loss: Loss) -> None:
        """Report triggers that can neither be found nor processed."""
        log, metrics = self.attempt_log.log, self.attempt_log.metrics
        for rule in loss.rules:
            labels = metrics.labels.rule(loss.policy.key, rule.name)
            metrics.loss_spans.labels(*labels).inc()
            metrics.triggers_lost.labels(*labels).inc(rule.objects or 0)
            description = describe(loss.outage, rule)
            log.error("triggers lost", policy=loss.policy.key, rule=rule.name, what=description)
            self.event_recorder.lost(loss.policy, loss.uid, rule.name, description)
