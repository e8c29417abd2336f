"""The metrics of both servers; one holder and one registry per process.

Labels are bounded by what the cluster's administrators write (policies, rules) or by constants;
names of triggers and targets, users and namespaces never become labels.
"""

from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_FAST = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_SLOW = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """What is counted; the help texts say the meaning."""

    registry: CollectorRegistry
    requests_recorded: Counter
    requests_lost: Counter
    admission_reviews: Counter
    admission_duration: Histogram
    recording_duration: Histogram
    api_calls: Counter
    attempts: Counter
    targets: Counter
    conflicts: Counter
    queue_depth: Gauge
    oldest_waiting: Gauge
    admission_to_patched: Histogram
    sweep_triggers: Counter
    policies: Gauge
    leader: Gauge
    certificate_expiry: Gauge


def create_metrics() -> Metrics:
    """Return the metrics of a process, all at zero, in a registry of their own."""
    registry = CollectorRegistry()

    def counter(name: str, meaning: str, *labels: str) -> Counter:
        return Counter(f"retrofit_{name}", meaning, labels, registry=registry)

    def gauge(name: str, meaning: str, *labels: str) -> Gauge:
        return Gauge(f"retrofit_{name}", meaning, labels, registry=registry)

    def histogram(name: str, meaning: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        full = f"retrofit_{name}_seconds"
        return Histogram(full, meaning, labels, buckets=buckets, registry=registry)

    return Metrics(
        registry=registry,
        requests_recorded=counter(
            "requests_recorded_total", "UpdateRequests stored.", "policy", "rule", "source"
        ),
        requests_lost=counter(
            "requests_lost_total", "Triggers admitted without a stored request.", "reason"
        ),
        admission_reviews=counter(
            "admission_reviews_total", "Admission requests answered.", "path", "answer"
        ),
        admission_duration=histogram(
            "admission_duration", "Admission request received to answered.", _FAST, "path"
        ),
        recording_duration=histogram(
            "recording_duration", "Storing the requests of one admission request.", _FAST
        ),
        api_calls=counter(
            "api_calls_total", "Calls of the API server.", "verb", "resource", "code"
        ),
        attempts=counter("attempts_total", "Finished attempts of requests.", "state"),
        targets=counter("targets_total", "Targets worked on.", "outcome"),
        conflicts=counter("conflicts_total", "Writes that met a newer version of the target."),
        queue_depth=gauge("queue_depth", "Requests that wait."),
        oldest_waiting=gauge("oldest_waiting_seconds", "Age of the oldest request that waits."),
        admission_to_patched=histogram(
            "admission_to_patched", "Request stored to its last target patched.", _SLOW
        ),
        sweep_triggers=counter(
            "sweep_triggers_total", "Triggers that sweeps looked at.", "policy", "rule"
        ),
        policies=gauge("policies", "Policies known.", "state"),
        leader=gauge("leader", "1 while this process holds the Lease."),
        certificate_expiry=gauge(
            "certificate_expiry_timestamp_seconds", "When the serving certificate ends."
        ),
    )
