"""Calls of the API server as a metric."""

from collections.abc import Callable

from reconciler.observe.labels import ResourceLabels
from reconciler.observe.metrics import Metrics


def call_counter(metrics: Metrics) -> Callable[[str, str, int, float], None]:
    """Return what counts calls, given verb, resource, status (0: no answer) and seconds."""
    labels = ResourceLabels()

    def count(verb: str, resource: str, status: int, _seconds: float) -> None:
        metrics.api_calls.labels(verb, labels.label(resource, status), str(status)).inc()

    return count
