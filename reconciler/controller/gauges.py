"""Metrics that are polled once per second from the parts of the controller."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from prometheus_client import Counter as Total

from reconciler.kube.events import KubeEvents
from reconciler.observe.metrics import Metrics
from reconciler.observe.observers import Observers
from reconciler.services.catchup.passes import CatchUpPasses
from reconciler.services.jobs import repeat
from reconciler.wiring.controller import Services

_PAUSE = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauges:
    """Sets the metrics of one controller.

    Attributes:
        leading: Returns whether this process holds the Lease.
    """

    metrics: Metrics
    services: Services
    observers: Observers
    events: KubeEvents
    passes: CatchUpPasses
    leading: Callable[[], bool]
    _seen: dict[str, int] = field(default_factory=dict)

    async def run(self) -> None:
        """Update the metrics until cancelled."""
        await repeat(self._look, every=_PAUSE)

    async def _look(self) -> None:
        self.look()

    def look(self) -> None:
        """Update all polled metrics."""
        metrics, services, observers = self.metrics, self.services, self.observers
        lanes = services.dispatcher.processor.lanes
        metrics.leader.set(1 if self.leading() else 0)
        metrics.policies.labels("ready").set(len(services.base.index.policies()))
        metrics.policies.labels("invalid").set(len(services.base.index.invalid()))
        self._out_of_force()
        metrics.queue_depth.set(services.dispatcher.waiting)
        metrics.oldest_waiting.set(services.dispatcher.known.oldest_age(services.base.clock.now()))
        for state, number in zip(("ready", "not_ready"), services.entries.readable(), strict=True):
            metrics.entries.labels(state).set(number)
        self._waiting()
        self._grown("passes", metrics.catch_up_passes, self.passes.passes)
        if self.passes.done is not None:
            metrics.catch_up_done.set(self.passes.done.timestamp())
        self._grown("conflicts", metrics.conflicts, lanes.conflicts)
        self._grown("shared", metrics.shared_writes, lanes.shared)
        self._grown("wars", metrics.patch_wars, lanes.wars.begun)
        metrics.paused_targets.set(lanes.wars.paused())
        metrics.in_flight.set(lanes.flight.used)
        self._grown("queue", metrics.events_dropped.labels("queue"), self.events.dropped)
        self._grown(
            "limit", metrics.events_dropped.labels("limit"), observers.event_recorder.held_back
        )
        self._grown("reports", metrics.reports_written, observers.reports.written)
        self._grown("results", metrics.report_results_dropped, observers.reports.dropped)

    def _out_of_force(self) -> None:
        in_force, gauge = self.services.rollout.webhook_writer.in_force, self.metrics.out_of_force
        gauge.clear()
        obstacles = map(in_force.obstacle_of, self.services.base.index.policies())
        for cause, number in Counter(item.cause for item in obstacles if item).items():
            gauge.labels(cause).set(number)

    def _waiting(self) -> None:
        labels = self.metrics.labels
        requests = self.services.dispatcher.known.unended()
        waiting = Counter(labels.policy(request.spec.policy.key) for request in requests)
        self.metrics.requests_waiting.clear()
        for policy, number in waiting.items():
            self.metrics.requests_waiting.labels(policy).set(number)

    def _grown(self, name: str, total: Total, count: int) -> None:
        total.inc(count - self._seen.get(name, 0))
        self._seen[name] = count
