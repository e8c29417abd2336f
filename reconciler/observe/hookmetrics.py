"""Metrics of the program that runs executables, under the names of the original."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_RUN: Final = ("hook", "binding", "queue")
_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
_CALLS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class HookProgramMetrics:
    """The metrics of the program; docs/reference/metrics.md lists them."""

    def __init__(self, prefix: str) -> None:
        self.registry = registry = CollectorRegistry()

        def counter(name: str, text: str, labels: tuple[str, ...] = _RUN) -> Counter:
            return Counter(f"{prefix}{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, labels: tuple[str, ...] = _RUN) -> Histogram:
            buckets = _SECONDS if labels is _RUN else _CALLS
            return Histogram(f"{prefix}{name}", text, labels, registry=registry, buckets=buckets)

        def gauge(name: str, text: str, labels: tuple[str, ...] = _RUN) -> Gauge:
            return Gauge(f"{prefix}{name}", text, labels, registry=registry)

        self.run_seconds = histogram("hook_run_seconds", "Time of runs.")
        self.run_user_cpu = histogram("hook_run_user_cpu_seconds", "User CPU time of runs.")
        self.run_system_cpu = histogram("hook_run_sys_cpu_seconds", "System CPU time of runs.")
        self.run_memory = gauge("hook_run_max_rss_bytes", "Most resident memory of the last run.")
        self.run_errors = counter("hook_run_errors", "Runs that failed and are tried again.")
        self.run_allowed_errors = counter(
            "hook_run_allowed_errors", "Runs that failed, which their binding allows."
        )
        self.run_successes = counter("hook_run_success", "Runs that went well.")
        self.queue_length = gauge(
            "tasks_queue_length", "Requests that wait in a queue.", ("queue",)
        )
        # The name of the original's counter does not end in _total.
        self.live_ticks = gauge("live_ticks", "Rises every ten seconds.", ())
        self.calls = counter(
            "kubernetes_client_request_result",
            "Calls of the API server.",
            ("code", "method"),
        )
        self.call_seconds = histogram(
            "kubernetes_client_request_latency_seconds",
            "Latency of calls of the API server.",
            ("verb",),
        )
        self.connections = gauge("webhook_connections", "Connections to the webhooks.", ())
        self.connections_closed = counter(
            "webhook_connections_closed",
            "Connections closed because of their cost.",
            ("reason",),
        )
        self.callers_refused = counter(
            "webhook_callers_refused",
            "Calls without an accepted client certificate.",
            ("code",),
        )

    def on_call(self, verb: str, _resource: str, status: int, seconds: float) -> None:
        """Count a call of the API server; without an answer, its status is 0."""
        self.calls.labels(str(status), verb).inc()
        self.call_seconds.labels(verb).observe(seconds)
