"""The number of metric label values that users' names can create is limited."""

import pytest

from reconciler.observe.labels import OTHER, BoundedLabels, ResourceLabels
from reconciler.observe.metrics import Metrics


def test_a_limited_number_of_policies_have_their_own_label():
    labels = BoundedLabels(policies=2)
    shown = [labels.policy(key) for key in ("a", "b", "c", "a", "d")]
    assert shown == ["a", "b", OTHER, "a", OTHER]


def test_a_limited_number_of_rules_have_their_own_label():
    labels = BoundedLabels(policies=2, rules=2)
    assert labels.rule("a", "one") == ("a", "one")
    assert labels.rule("a", "two") == ("a", "two")
    assert labels.rule("b", "one") == ("b", OTHER)
    assert labels.rule("c", "one") == (OTHER, OTHER)
    assert labels.rule("a", "one") == ("a", "one")


def test_a_thousand_policies_do_not_make_a_thousand_series():
    metrics = Metrics()
    for number in range(1000):
        metrics.targets.labels(metrics.labels.policy(f"p-{number}"), "Patched").inc()
    (family,) = (item for item in metrics.registry.collect() if item.name == "retrofit_targets")
    totals = [sample for sample in family.samples if sample.name.endswith("_total")]
    assert len(totals) == 101
    assert max(sample.value for sample in totals) == 900


def test_a_resource_has_its_own_label_once_the_api_server_served_it() -> None:
    labels = ResourceLabels()
    assert labels.label("pods", 403) == "other"
    assert labels.label("pods", 200) == "pods"
    assert labels.label("pods", 403) == "pods"


@pytest.mark.parametrize(("resource", "status"), [("x-1", 403), ("x-2", 404), ("/version", 200)])
def test_paths_and_resources_that_were_not_served_have_no_own_label(
    resource: str, status: int
) -> None:
    assert ResourceLabels().label(resource, status) == "other"
