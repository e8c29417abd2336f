"""The metrics that the end of an attempt changes."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from reconciler.api.kinds import policy_named
from reconciler.api.meta import ObjectRef
from reconciler.api.updaterequest import Counts, RequestSpec, RequestStatus, State, UpdateRequest
from reconciler.observe.attempt_log import AttemptLog
from reconciler.observe.logs import logger
from reconciler.observe.metrics import Metrics
from reconciler.requests.lifecycle import Done, Skip
from reconciler.services.processing.attempt import Attempt

STORED = datetime(2026, 1, 31, 10, 0, tzinfo=UTC)


@pytest.fixture
def report() -> Callable[..., Callable[..., float]]:
    """Return a function that reports the end of a request and returns a reader of the metrics."""

    def run(status, disposition):
        metrics = Metrics()
        reporter = AttemptLog(
            log=logger("test"), metrics=metrics, now=lambda: STORED + timedelta(seconds=3)
        )
        ref = ObjectRef(api_version="v1", kind="ConfigMap", namespace="a", name="c")
        spec = RequestSpec(policy=policy_named("p"), rule="r", resource=ref)
        request = UpdateRequest(
            name="ur-1",
            namespace="kyverno",
            uid="u",
            resource_version="1",
            labels={},
            created=STORED,
            spec=spec,
            status=RequestStatus(),
        )
        reporter.observe(request, status, Attempt(disposition=disposition))

        def value(name, **labels):
            return metrics.registry.get_sample_value(f"retrofit_{name}", labels) or 0

        return value

    return run


def test_a_request_that_is_the_same_as_another_is_counted_as_coalesced(report):
    message = "same as ur-0"
    value = report(
        RequestStatus(state=State.SKIP, reason="SameAsOther", message=message),
        Skip(reason="SameAsOther", message=message),
    )
    assert value("requests_coalesced_total", policy="p") == 1
    assert value("requests_ended_total", policy="p", state="Skip", reason="SameAsOther") == 1
    assert value("admission_to_patched_seconds_count", policy="p") == 0


def test_the_time_from_the_stored_request_to_the_patch_is_measured(report):
    value = report(RequestStatus(state=State.COMPLETED, counts=Counts(patched=1)), Done())
    assert value("admission_to_patched_seconds_sum", policy="p") == 3
    assert value("requests_coalesced_total", policy="p") == 0
