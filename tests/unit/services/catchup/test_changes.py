from datetime import UTC, datetime, timedelta

import pytest

from reconciler.api.meta import EXISTING_MANAGER, FIELD_MANAGER
from reconciler.services.catchup.changes import Window, changed

NOON = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)


def text(seconds):
    return (NOON + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def at(created=None, *entries):
    """Return an object with this creation time and entries (manager, seconds, subresource)."""
    fields = [
        {"manager": manager, "time": text(seconds)} | ({"subresource": rest[0]} if rest else {})
        for manager, seconds, *rest in entries
    ]
    meta = {} if created is None else {"creationTimestamp": text(created)}
    return {"metadata": meta | ({"managedFields": fields} if fields else {})}


@pytest.mark.parametrize(
    ("obj", "seconds"),
    [
        (at(), None),
        (at(5), 5),
        (at(5, ("kubectl", 5)), 5),
        (at(5, ("kubectl", 9)), 9),
        (at(5, ("kubectl", 9), ("flux", 7)), 9),
        # Webhooks for the object are not called for these subresources.
        (at(5, ("kubelet", 60, "status"), ("scheduler", 8, "binding")), 5),
        (at(5, ("kubectl", 60, "ephemeralcontainers")), 60),
        # A change by kube-retrofit, and another manager's before or after it.
        (at(5, ("kubectl", 9), ("ours", 60)), 9),
        (at(5, ("kubectl", 70), ("ours", 60)), 70),
        # The creator has lost all its fields to kube-retrofit.
        (at(5, ("ours", 60)), 5),
        # Created by kube-retrofit.
        (at(5, ("ours", 5)), None),
        (at(5, ("ours", 5), ("kubectl", 5)), 5),
    ],
)
def test_the_last_change_excludes_changes_that_fire_nothing(obj, seconds):
    expected = None if seconds is None else NOON + timedelta(seconds=seconds)
    assert changed(obj, but_by=frozenset({"ours"})) == expected


def test_writes_of_rules_on_existing_objects_are_own_work():
    written = at(5, (EXISTING_MANAGER, 60))
    assert changed(written, but_by=frozenset({FIELD_MANAGER})) == NOON + timedelta(seconds=5)


def test_own_work_counts_as_a_change_if_a_rule_wants_it():
    assert changed(at(5, ("ours", 60))) == NOON + timedelta(seconds=60)


@pytest.mark.parametrize("broken", [None, "yesterday", 7])
def test_a_malformed_time_is_not_a_change(broken):
    obj = at(5)
    obj["metadata"]["managedFields"] = [{"manager": "kubectl", "time": broken}]
    assert changed(obj) == NOON + timedelta(seconds=5)


@pytest.mark.parametrize(
    ("seconds", "version", "inside"),
    [
        (-1, "100", False),
        (0, "9", False),
        (0, "10", True),
        (0, "11", True),
        (0, "not a number", True),
        (1, "9", True),
        (60, "100", True),
        (61, "100", False),
    ],
)
def test_a_window_holds_only_later_versions_of_its_first_second(seconds, version, inside):
    window = Window(since=NOON, until=NOON + timedelta(seconds=60), version=10)
    assert window.holds(NOON + timedelta(seconds=seconds), version) is inside
