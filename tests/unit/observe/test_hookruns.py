"""The metrics and events for runs of declared hooks."""

from dataclasses import replace

import pytest

from reconciler.api.meta import PolicyRef
from reconciler.observe.hookruns import HookRunCounter
from reconciler.observe.metrics import Metrics
from reconciler.services.hooks.dispatch import RunReport
from reconciler.services.hooks.telling import tell_failure
from tests.stored import MemoryEvents


def report(*, failure: str = "", allowed: bool = False, binding: str = "pods") -> RunReport:
    return RunReport(
        hook=PolicyRef(
            api_version="kube-retrofit.dev/v1alpha1", kind="Hook", namespace="shop", name="h"
        ),
        uid="u",
        binding=binding,
        queue="slow",
        seconds=0.2,
        failure=failure,
        allowed=allowed,
    )


def test_runs_are_counted_by_result() -> None:
    metrics = Metrics()
    counter = HookRunCounter(metrics=metrics)
    for item in (report(), report(failure="no"), report(failure="no", allowed=True)):
        counter.ran(item)
    labels = {"hook": "shop/h", "binding": "pods", "queue": "slow"}
    names = ("run_success_total", "run_errors_total", "run_allowed_errors_total")
    for name in (*names, "run_seconds_count"):
        expected = 3 if name == "run_seconds_count" else 1
        assert metrics.registry.get_sample_value(f"retrofit_hook_{name}", labels) == expected


@pytest.mark.parametrize("label", ["binding", "queue"])
def test_names_given_by_users_create_a_bounded_number_of_series(label: str) -> None:
    metrics = Metrics()
    for number in range(1000):
        named = replace(report(), **{label: f"b-{number}"})  # type: ignore[arg-type]
        HookRunCounter(metrics=metrics).ran(named)
    family = next(
        item for item in metrics.registry.collect() if item.name == "retrofit_hook_run_success"
    )
    counts = [sample for sample in family.samples if sample.name.endswith("_total")]
    assert len(counts) == metrics.labels.rules + 1


def test_a_failed_run_causes_an_event_of_its_hook() -> None:
    events = MemoryEvents()
    for item in (report(), report(failure="no such pod"), report(failure="no", allowed=True)):
        tell_failure(events, item)
    first, second = events.emitted
    assert first.regarding["kind"] == "Hook"
    assert (first.severity, first.reason) == ("Warning", "HookFailed")
    assert first.note == "pods: no such pod; queue slow waits"
    assert second.note == "pods: no; its binding allows failures"
