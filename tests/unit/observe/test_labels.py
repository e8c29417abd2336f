"""Labels out of names that users give have a limit."""

from reconciler.observe.labels import OTHER, BoundedLabels, resource_label
from reconciler.observe.metrics import create_metrics


def test_so_many_policies_have_a_label_of_their_own():
    labels = BoundedLabels(policies=2)
    shown = [labels.policy(key) for key in ("a", "b", "c", "a", "d")]
    assert shown == ["a", "b", OTHER, "a", OTHER]


def test_so_many_rules_have():
    labels = BoundedLabels(policies=2, rules=2)
    assert labels.rule("a", "one") == ("a", "one")
    assert labels.rule("a", "two") == ("a", "two")
    assert labels.rule("b", "one") == ("b", OTHER)
    assert labels.rule("c", "one") == (OTHER, OTHER)
    assert labels.rule("a", "one") == ("a", "one")


def test_a_thousand_policies_do_not_make_a_thousand_series():
    metrics = create_metrics()
    for number in range(1000):
        metrics.targets.labels(metrics.labels.policy(f"p-{number}"), "Patched").inc()
    (family,) = (item for item in metrics.registry.collect() if item.name == "retrofit_targets")
    totals = [sample for sample in family.samples if sample.name.endswith("_total")]
    assert len(totals) == 101
    assert max(sample.value for sample in totals) == 900


def test_addresses_that_are_no_resource_share_a_label():
    assert resource_label("deployments.apps/scale") == "deployments.apps/scale"
    assert resource_label("/openapi/v3/apis/x") == "other"
