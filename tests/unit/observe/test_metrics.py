"""The names of the metrics, and separate counts per process."""

import re

from prometheus_client.exposition import generate_latest

from reconciler.observe.metrics import Metrics

UNITS = (
    "_total",
    "_seconds",
    "_bytes",
    "_ratio",
    "retrofit_policies",
    "retrofit_policies_out_of_force",
    "retrofit_entries",
    "retrofit_connections",
    "retrofit_requests_waiting",
    "retrofit_waiting_seen",
    "retrofit_waiting_limit",
    "retrofit_diverting",
    "retrofit_paused_targets",
    "retrofit_leader",
    "retrofit_kyverno_live",
    "retrofit_setting_refused",
    "retrofit_hook_queues_blocked",
    "retrofit_hook_requests_waiting",
    "_depth",
)


def test_metric_names_follow_the_conventions_of_prometheus():
    text = generate_latest(Metrics().registry).decode()
    names = set(re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE))
    names = {name for name in names if not name.endswith("_created")}
    assert names
    for name in names:
        assert name.startswith("retrofit_")
        assert name.endswith(UNITS)


def test_two_processes_in_one_test_do_not_share_counts():
    first, second = Metrics(), Metrics()
    first.requests_lost.labels(reason="timeout").inc()
    assert first.registry.get_sample_value(
        "retrofit_requests_lost_total", {"reason": "timeout"}
    ) == (1)
    assert (
        second.registry.get_sample_value("retrofit_requests_lost_total", {"reason": "timeout"})
        is None
    )
