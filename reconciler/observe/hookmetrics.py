"""Metrics of the program that runs executables, under the names of the original."""

from dataclasses import dataclass
from typing import Final, Self

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_RUN: Final = ("hook", "binding", "queue")
_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
_CALLS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


@dataclass(frozen=True, slots=True, kw_only=True)
class HookProgramMetrics:
    """The metrics of the program; docs/reference/metrics.md lists them."""

    registry: CollectorRegistry
    run_seconds: Histogram
    run_user_cpu: Histogram
    run_system_cpu: Histogram
    run_memory: Gauge
    run_errors: Counter
    run_allowed_errors: Counter
    run_successes: Counter
    queue_length: Gauge
    live_ticks: Gauge
    calls: Counter
    call_seconds: Histogram
    connections: Gauge
    connections_closed: Counter
    callers_refused: Counter

    @classmethod
    def of(cls, prefix: str) -> Self:
        """Return the metrics of a process, all at zero, with a prefix in their names."""
        registry = CollectorRegistry()

        def counter(name: str, text: str, labels: tuple[str, ...] = _RUN) -> Counter:
            return Counter(f"{prefix}{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, labels: tuple[str, ...] = _RUN) -> Histogram:
            buckets = _SECONDS if labels is _RUN else _CALLS
            return Histogram(f"{prefix}{name}", text, labels, registry=registry, buckets=buckets)

        def gauge(name: str, text: str, labels: tuple[str, ...] = _RUN) -> Gauge:
            return Gauge(f"{prefix}{name}", text, labels, registry=registry)

        return cls(
            registry=registry,
            run_seconds=histogram("hook_run_seconds", "Time of runs."),
            run_user_cpu=histogram("hook_run_user_cpu_seconds", "User CPU time of runs."),
            run_system_cpu=histogram("hook_run_sys_cpu_seconds", "System CPU time of runs."),
            run_memory=gauge("hook_run_max_rss_bytes", "Most resident memory of the last run."),
            run_errors=counter("hook_run_errors", "Runs that failed and are tried again."),
            run_allowed_errors=counter(
                "hook_run_allowed_errors", "Runs that failed, which their binding allows."
            ),
            run_successes=counter("hook_run_success", "Runs that went well."),
            queue_length=gauge("tasks_queue_length", "Requests that wait in a queue.", ("queue",)),
            # The name of the original's counter does not end in _total.
            live_ticks=gauge("live_ticks", "Rises every ten seconds.", ()),
            calls=counter(
                "kubernetes_client_request_result",
                "Calls of the API server.",
                ("code", "method"),
            ),
            call_seconds=histogram(
                "kubernetes_client_request_latency_seconds",
                "Latency of calls of the API server.",
                ("verb",),
            ),
            connections=gauge("webhook_connections", "Connections to the webhooks.", ()),
            connections_closed=counter(
                "webhook_connections_closed",
                "Connections closed because of their cost.",
                ("reason",),
            ),
            callers_refused=counter(
                "webhook_callers_refused",
                "Calls without an accepted client certificate.",
                ("code",),
            ),
        )

    def on_call(self, verb: str, _resource: str, status: int, seconds: float) -> None:
        """Count a call of the API server; without an answer, its status is 0."""
        self.calls.labels(str(status), verb).inc()
        self.call_seconds.labels(verb).observe(seconds)
