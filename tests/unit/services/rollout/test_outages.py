"""Outages: the spans of time in which policies were not in force."""

from datetime import UTC, datetime, timedelta

import pytest

from reconciler.services.rollout.outages import Cause, Outage, Outages

NOON = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)


def at(seconds):
    return NOON + timedelta(seconds=seconds)


@pytest.fixture
def outages() -> Outages:
    return Outages()


def test_an_outage_lasts_from_its_first_cause_to_its_end(outages):
    outages.begin(Cause.MISSING, at(0))
    outages.begin(Cause.CHANGED, at(5))
    assert outages.is_open()
    assert outages.due(at(10)) == ()
    outages.end(at(10))
    assert not outages.is_open()
    assert outages.due(at(9)) == ()
    (outage,) = outages.due(at(10))
    assert outage == Outage(cause=Cause.MISSING, since=at(0), until=at(10))


def test_an_end_without_a_begin_is_ignored(outages):
    outages.end(at(10))
    assert outages.due(at(20)) == ()
    assert outages.revision == 0


def test_a_searched_outage_is_not_due_again(outages):
    outages.begin(Cause.MISSING, at(0))
    outages.end(at(1))
    due = outages.due(at(10))
    outages.begin(Cause.CHANGED, at(8))
    outages.end(at(9))
    outages.done(due, at(10))
    (left,) = outages.due(at(20))
    assert left.since == at(8)
    assert outages.earliest() == at(8)
    outages.done((left,), at(20))
    assert outages.earliest() is None


def test_an_open_outage_is_due_every_minute_from_the_end_of_its_last_search(outages):
    outages.begin(Cause.MISSING, at(0))
    assert outages.due(at(59)) == ()
    (going_on,) = outages.due(at(60))
    assert (going_on.since, going_on.searched, going_on.until) == (at(0), None, None)
    outages.done((going_on,), at(60))
    assert outages.due(at(119)) == ()
    (going_on,) = outages.due(at(120))
    assert (going_on.since, going_on.searched) == (at(0), at(60))
    outages.end(at(121))
    (ended,) = outages.due(at(121))
    assert (ended.since, ended.searched, ended.until) == (at(0), at(60), at(121))


def test_an_outage_that_ends_during_its_search_is_due_once_more(outages):
    outages.begin(Cause.MISSING, at(0))
    due = outages.due(at(60))
    outages.end(at(61))
    outages.done(due, at(60))
    assert [item.until for item in outages.due(at(70))] == [at(61)]


def test_a_policy_has_outages_of_its_own(outages):
    outages.begin(Cause.KIND, at(0), policy="a")
    outages.begin(Cause.MISSING, at(5))
    assert outages.is_open("a")
    outages.end(at(6))
    assert outages.is_open("a")
    # Triggers of a kind that is not served can only be found once it is served.
    assert [item.policy for item in outages.due(at(100))] == [""]
    outages.forget(["b"])
    assert not outages.is_open("a")
    assert [item.policy for item in outages.due(at(100))] == [""]


def test_rules_without_targets_have_outages_of_their_own(outages):
    outages.begin(Cause.MISSING, at(0), changing=True)
    assert not outages.is_open()
    outages.begin(Cause.CHANGED, at(5))
    outages.end(at(9))
    found = {(item.since, item.until, item.changing) for item in outages.due(at(10))}
    assert found == {(at(0), at(9), True), (at(5), at(9), False)}
    successor = Outages()
    successor.load(outages.dump())
    assert successor.due(at(10)) == outages.due(at(10))


def test_unfinished_requests_move_the_begin_of_an_open_outage_back(outages):
    outages.widen(at(-30))
    outages.begin(Cause.UNINSTALLING, at(0))
    outages.widen(at(-20))
    outages.widen(at(-10))
    assert outages.earliest() == at(-20)


def test_another_process_continues_from_the_stored_outages(outages):
    outages.begin(Cause.KIND, at(0), policy="a")
    outages.begin(Cause.MISSING, at(1))
    outages.end(at(2))
    outages.begin(Cause.CHANGED, at(3))
    outages.done(outages.due(at(63))[-1:], at(63))
    successor = Outages()
    successor.load(outages.dump())
    assert successor.dump() == outages.dump()
    assert successor.due(at(200)) == outages.due(at(200))
    assert successor.is_open("a")
    assert Outages().dump() == ""


@pytest.mark.parametrize("text", ["", "{", "{}", "[1]", '[{"cause": "Odd", "since": "x"}]'])
def test_an_invalid_annotation_is_ignored(outages, text):
    outages.load(text)
    assert outages.earliest() is None


def test_too_many_outages_become_one_that_covers_them(outages):
    for number in range(501):
        outages.begin(Cause.KIND, at(number), policy=str(number))
    successor = Outages()
    successor.load(outages.dump())
    assert successor.is_open()
    assert successor.earliest() == at(0)
