"""A monitor's handling of events that are replayed after a time without a watch."""

from typing import Any

import pytest

from reconciler.hooks.bindings import ADDED, DELETED, MODIFIED
from reconciler.hooks.config import load_config
from reconciler.hooks.monitor import Monitor, ObservedObject, observe

BINDING = load_config("configVersion: v1\nkubernetes:\n- {kind: Pod}\n").kubernetes[0]


def pod(name: str, **spec: Any) -> ObservedObject:
    obj = {"kind": "Pod", "metadata": {"name": name, "namespace": "a"}, "spec": spec}
    return observe(BINDING, obj, None)


def names(monitor: Monitor) -> list[str]:
    return [shown["object"]["metadata"]["name"] for shown in monitor.snapshot()]


@pytest.mark.parametrize("event", [ADDED, MODIFIED])
def test_a_replayed_event_keeps_its_type(event: str) -> None:
    monitor = Monitor(BINDING)
    monitor.resume(pod("a", x=2), given=False)
    change = monitor.take(event, pod("a", x=2), replayed=True)
    assert change is not None
    assert change.event == event


def test_a_replayed_deletion_is_reported_and_keeps_a_recreated_object() -> None:
    monitor = Monitor(BINDING)
    monitor.resume(pod("a", x=2), given=False)
    change = monitor.take(DELETED, pod("a", x=1), replayed=True)
    assert change is not None
    assert change.event == DELETED
    assert names(monitor) == ["a"]
    again = monitor.take(ADDED, pod("a", x=2), replayed=True)
    assert again is not None
    assert again.event == ADDED


def test_an_object_that_was_reported_before_is_not_reported_again() -> None:
    monitor = Monitor(BINDING)
    monitor.resume(pod("a", x=1), given=True)
    assert monitor.take(MODIFIED, pod("a", x=1), replayed=False) is None
    changed = monitor.take(MODIFIED, pod("a", x=2), replayed=False)
    assert changed is not None
    assert changed.event == MODIFIED


def test_each_change_of_a_replay_is_reported() -> None:
    monitor = Monitor(BINDING)
    monitor.resume(pod("a", x=3), given=False)
    seen = [monitor.take(ADDED, pod("a", x=1), replayed=True)]
    seen += [monitor.take(MODIFIED, pod("a", x=number), replayed=True) for number in (2, 3)]
    assert [change.event for change in seen if change] == [ADDED, MODIFIED, MODIFIED]


def test_the_size_of_a_monitor_follows_its_snapshot() -> None:
    monitor = Monitor(BINDING)
    monitor.resume(pod("a"), given=True)
    small = monitor.size
    monitor.take(MODIFIED, pod("a", text="x" * 1000))
    assert monitor.size > small + 1000
    monitor.take(DELETED, pod("a"))
    assert monitor.size == 0
