"""The status of a GlobalContextEntry."""

from datetime import UTC, datetime, timedelta

from reconciler.api.globalcontext import EntryStatus, render_status

NOW = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)
GOOD = EntryStatus(problem="", refreshed=NOW, generation=3)
BAD = EntryStatus(problem="no answer", refreshed=None, generation=3)


def test_an_entry_that_rules_can_read_is_ready():
    assert render_status(GOOD, {}, NOW) == {
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "reason": "Succeeded",
                "message": "the data can be read",
                "observedGeneration": 3,
                "lastTransitionTime": "2026-06-01T12:00:00.000000Z",
            }
        ],
        "lastRefreshTime": "2026-06-01T12:00:00.000000Z",
    }


def test_a_problem_is_reported_without_changing_the_last_refresh():
    found = render_status(BAD, {}, NOW)
    (condition,) = found.pop("conditions")
    assert (condition["status"], condition["message"]) == ("False", "no answer")
    assert found == {}


def test_the_same_condition_is_not_written_again():
    assert render_status(GOOD, render_status(GOOD, {}, NOW), NOW + timedelta(hours=1)) is None


def test_the_transition_time_changes_only_with_the_condition_status():
    before = render_status(BAD, {}, NOW)
    other = EntryStatus(problem="a 500", refreshed=None, generation=3)
    again = render_status(other, before, NOW + timedelta(hours=1))
    assert again["conditions"][0]["lastTransitionTime"] == "2026-06-01T12:00:00.000000Z"
    turned = render_status(GOOD, before, NOW + timedelta(hours=1))
    assert turned["conditions"][0]["lastTransitionTime"] == "2026-06-01T13:00:00.000000Z"
