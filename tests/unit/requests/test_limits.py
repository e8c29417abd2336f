from datetime import UTC, datetime, timedelta

import pytest

from reconciler.errors import InvalidPolicy
from reconciler.requests.limits import (
    BATCH,
    CANARY,
    FAILURES,
    NO_LIMITS,
    PAUSED,
    PROMOTE,
    RATE,
    WINDOW,
    compile_labels,
    limits_of,
    parse_limits,
    unread,
)
from reconciler.requests.windows import opens, parse_windows


def annotated(**values):
    names = {"batch_size": BATCH, "max_failures": FAILURES}
    prefix = "kube-retrofit.dev/"
    marks = {names.get(name, prefix + name): value for name, value in values.items()}
    return {"metadata": {"name": "p", "annotations": marks}}


def moment(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def test_without_annotations_nothing_is_limited():
    assert parse_limits({"metadata": {"name": "p"}}) is NO_LIMITS
    assert parse_limits(annotated(run="x")) is NO_LIMITS
    assert NO_LIMITS.hold(moment("2026-06-01T00:00")) is None


def test_every_limit_is_read():
    policy = annotated(
        paused="false",
        rate="30/m",
        batch_size="5",
        max_failures="2",
        canary="env=test,!prod",
        promote="auto",
        window="Mon-Fri 09:00-17:00 Europe/Berlin",
    )
    found = parse_limits(policy)
    assert (found.paused, found.rate, found.batch, found.failures) == (False, 0.5, 5, 2)
    assert (found.canary, found.promote, len(found.windows)) == ("env=test,!prod", "auto", 1)
    policy["metadata"]["annotations"]["note"] = "x"
    assert set(limits_of(policy)) == {PAUSED, RATE, BATCH, FAILURES, CANARY, PROMOTE, WINDOW}


@pytest.mark.parametrize(
    ("name", "value", "part"),
    [
        ("paused", "yes", "neither true nor false"),
        ("rate", "10", "10/s"),
        ("rate", "0/s", "10/s"),
        ("batch_size", "0", "whole number"),
        ("max_failures", "-1", "whole number"),
        ("canary", "a==b=c", "label selector"),
        ("canary", "", "label selector"),
        ("canary", "!a=b", "label selector"),
        ("promote", "yes", "generation"),
        ("window", "often", "Mon-Fri 09:00-17:00 Europe/Berlin"),
        ("window", "Mon-Fri 09:00-25:00", "is not a time of day"),
        ("window", "Mon-Fun 09:00-17:00", "is not a day"),
        ("window", "09:00-17:00 Europe/Nowhere", "no time zone"),
        ("window", "09:00-17:00 ../../etc/passwd", "no time zone"),
        ("window", "09:00-09:00", "at the same time"),
    ],
)
def test_invalid_limits_are_refused_with_location_and_remedy(name, value, part):
    with pytest.raises(InvalidPolicy, match="annotations") as caught:
        parse_limits(annotated(**{name: value}))
    assert part in str(caught.value)
    assert name.replace("_", "-") in caught.value.location


def test_an_unknown_annotation_is_reported_as_unread():
    assert unread(annotated(pause="true", run="x", rate="1/s")) == ("kube-retrofit.dev/pause",)


@pytest.mark.parametrize(
    ("text", "labels", "expected"),
    [
        ("env=test", {"env": "test"}, True),
        ("env==test", {"env": "prod"}, False),
        ("env!=prod", {}, True),
        ("canary", {"canary": ""}, True),
        ("!canary", {"canary": ""}, False),
        ("a=1, b", {"a": "1"}, False),
    ],
)
def test_canaries_are_chosen_by_labels(text, labels, expected):
    assert compile_labels(text).accepts(labels) is expected


WEEK = "Mon-Fri 09:00-17:00 Europe/Berlin"


@pytest.mark.parametrize(
    ("text", "now", "begin"),
    [
        (WEEK, "2026-06-01T07:00", None),  # a Monday, 09:00 in Berlin
        (WEEK, "2026-06-01T06:59", "2026-06-01T07:00"),
        (WEEK, "2026-06-01T15:00", "2026-06-02T07:00"),
        (WEEK, "2026-06-05T15:00", "2026-06-08T07:00"),
        ("22:00-04:00", "2026-06-01T03:59", None),
        ("22:00-04:00", "2026-06-01T04:00", "2026-06-01T22:00"),
        ("Sun 22:00-04:00", "2026-06-01T03:00", None),
        ("Sat-Mon 10:00-11:00", "2026-06-01T10:30", None),
        ("Sat-Mon 10:00-11:00", "2026-06-02T10:30", "2026-06-06T10:00"),
        ("Mon 09:00-10:00; Tue 12:00-13:00", "2026-06-01T11:00", "2026-06-02T12:00"),
        # The clocks go back: 2:30 occurs twice, and both times are within the window.
        ("02:00-03:00 Europe/Berlin", "2026-10-25T00:30", None),
        ("02:00-03:00 Europe/Berlin", "2026-10-25T01:30", None),
        # The clocks go forward: 2:30 does not exist, so the window opens at 3:30.
        ("02:30-04:00 Europe/Berlin", "2026-03-29T00:59", "2026-03-29T01:30"),
    ],
)
def test_a_window_opens_by_the_clock_of_its_time_zone(text, now, begin):
    found = opens(parse_windows(text, "x"), moment(now))
    assert (None if found is None else found.astimezone(UTC)) == (begin and moment(begin))


def test_the_next_begin_of_a_window_is_in_the_future_and_within_it():
    (window,) = parse_windows(WEEK, "x")
    now = moment("2026-01-01T00:00")
    for hours in range(0, 24 * 366, 7):
        at = now + timedelta(hours=hours)
        begin = window.next_begin(at)
        assert begin.timestamp() > at.timestamp()
        assert window.is_open(begin)


def test_a_hold_has_a_reason_and_an_end():
    paused = parse_limits(annotated(paused="true", window=WEEK)).hold(moment("2026-06-01T00:00"))
    assert (paused.reason, paused.until) == ("Paused", None)
    closed = parse_limits(annotated(window=WEEK)).hold(moment("2026-06-06T00:00"))
    assert closed.reason == "OutsideWindow"
    assert "Mon 2026-06-08 09:00 CEST" in closed.message
    assert closed.until == moment("2026-06-08T07:00")


@pytest.mark.parametrize(
    ("now", "is_open"),
    [
        ("2026-06-01T05:00", False),  # A Monday; the window of Sunday was none.
        ("2026-06-01T21:59", False),
        ("2026-06-01T22:00", True),
        ("2026-06-02T05:59", True),
        ("2026-06-02T06:00", False),
        ("2026-06-02T23:00", False),
    ],
)
def test_a_window_across_midnight_belongs_to_the_day_on_which_it_begins(now, is_open):
    (window,) = parse_windows("Mon 22:00-06:00", "x")
    assert window.is_open(moment(now)) is is_open


def test_one_of_several_windows_is_enough():
    windows = parse_windows("Mon 22:00-23:00; Tue 09:00-10:00", "x")
    assert opens(windows, moment("2026-06-02T09:30")) is None
    assert opens(windows, moment("2026-06-02T10:30")) == moment("2026-06-08T22:00")


@pytest.mark.parametrize("zone", ["Europe", "../etc", "Nowhere/Land", "x" * 300])
def test_a_time_zone_that_does_not_exist_is_named(zone):
    with pytest.raises(InvalidPolicy, match="there is no time zone"):
        parse_windows(f"09:00-10:00 {zone}", "x")
