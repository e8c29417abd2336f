"""Counts calls of the API server in a metric."""

from collections.abc import Callable

from reconciler.observe.labels import ResourceLabels
from reconciler.observe.metrics import Metrics


def call_counter(metrics: Metrics) -> Callable[[str, str, int, float], None]:
    """Return a callback for verb, resource, status (0: no answer) and seconds of a call."""
    labels = ResourceLabels()

    def count(verb: str, resource: str, status: int, _seconds: float) -> None:
        metrics.api_calls.labels(verb, labels.label(resource, status), str(status)).inc()

    return count
