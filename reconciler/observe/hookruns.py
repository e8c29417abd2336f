"""Metrics of the runs of declared hooks."""

from dataclasses import dataclass

from reconciler.observe.labels import OTHER
from reconciler.observe.metrics import Metrics
from reconciler.services.hooks.accounts import HookAccounts
from reconciler.services.hooks.dispatch import RunReport


@dataclass(frozen=True, slots=True, kw_only=True)
class HookRunCounter:
    """Counts runs and shows the waiting requests."""

    metrics: Metrics

    def watch(self, accounts: HookAccounts) -> None:
        """Set the gauges of waiting requests, which are read at each scrape."""
        self.metrics.hook_requests_waiting.set_function(lambda: accounts.waiting)
        self.metrics.hook_queues_blocked.set_function(lambda: accounts.blocked)

    def ran(self, report: RunReport) -> None:
        """Count a run that has ended."""
        metrics = self.metrics
        # The owner of a hook may rename both again and again.
        hook, both = metrics.labels.rule(report.hook.key, f"{report.binding}/{report.queue}")
        labels = (hook, OTHER, OTHER) if both == OTHER else (hook, report.binding, report.queue)
        metrics.hook_runs.labels(*labels).observe(report.seconds)
        if not report.failure:
            metrics.hook_run_successes.labels(*labels).inc()
            return
        errors = metrics.hook_run_allowed_errors if report.allowed else metrics.hook_run_errors
        errors.labels(*labels).inc()
