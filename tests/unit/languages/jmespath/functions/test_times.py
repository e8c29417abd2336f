from datetime import UTC, datetime, timedelta, timezone

import pytest

from reconciler.engine.values.gotime.layout import RFC3339

NOW = datetime(2026, 11, 21, 12, 30, 15, 250_000, tzinfo=timezone(timedelta(hours=1)))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("time_add('2024-02-28T23:30:00Z', '45m')", "2024-02-29T00:15:00Z"),
        ("time_add('2026-01-01T00:00:00+02:00', '-1h')", "2025-12-31T23:00:00+02:00"),
        ("time_utc('2026-01-01T00:30:00+02:00')", "2025-12-31T22:30:00Z"),
        ("time_diff('2026-01-01T00:00:00Z', '2026-01-02T01:02:03.5Z')", "25h2m3.5s"),
        ("time_diff('0001-01-01T00:00:00Z', '9999-01-01T00:00:00Z')", "2562047h47m16.854775807s"),
        ("time_before('2026-01-01T00:00:00Z', '2026-01-01T00:00:00+01:00')", False),
        ("time_after('2026-01-01T00:00:00Z', '2026-01-01T00:00:00+01:00')", True),
        ("time_truncate('2026-11-21T12:34:56.7Z', '1h')", "2026-11-21T12:00:00Z"),
        ("time_truncate('2026-11-21T12:34:56+05:30', '1h')", "2026-11-21T12:30:00+05:30"),
        ("time_truncate('2026-11-21T12:34:56Z', '168h')", "2026-11-16T00:00:00Z"),
        ("time_truncate('2026-11-21T12:34:56Z', '0s')", "2026-11-21T12:34:56Z"),
        ("time_to_cron('2026-11-22T05:07:00+01:00')", "7 5 22 11 0"),
        ("time_since('', '2026-01-01T00:00:00Z', '2026-01-01T00:01:00Z')", "1m0s"),
        ("time_since('2006-01-02', '2026-03-01', '2026-02-01')", "-672h0m0s"),
        ("time_parse('0', '86400')", "1970-01-02T00:00:00Z"),
        ("time_parse('02.01.2006', '21.11.2026')", "2026-11-21T00:00:00Z"),
        ("time_parse('Jan _2 06, 3:04pm', 'nov  1 69, 12:05am')", "1969-11-01T00:05:00Z"),
        ("time_parse('Monday, 2-January 15h', 'monday, 3-May 4h')", "0000-05-03T04:00:00Z"),
        ("time_parse('2006-002', '2024-366')", "2024-12-31T00:00:00Z"),
        ("time_parse('2006__2', '2026 60')", "2026-03-01T00:00:00Z"),
        ("time_parse('15:04:05 MST', '10:00:00.75 CET')", "0000-01-01T10:00:00Z"),
        ("time_parse('2006 MST', '2026 GMT+3')", "2026-01-01T03:00:00+03:00"),
        ("time_parse('2006 -0700', '2026 +0530')", "2026-01-01T00:00:00+05:30"),
        ("time_parse('2006 Z07', '2026 Z')", "2026-01-01T00:00:00Z"),
    ],
)
def test_time_functions_return_the_expected_values(run, source, expected):
    assert run(source) == expected


def test_time_between_excludes_its_bounds(run):
    times = ["2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z", "2026-01-04T00:00:00Z"]
    assert run("time_between(t[1], t[0], t[2])", t=times) is True
    assert run("time_between(t[0], t[0], t[2])", t=times) is False
    assert run("time_between(t[2], t[0], t[2])", t=times) is False


@pytest.mark.parametrize(
    ("source", "layout", "reason"),
    [
        ("time_utc('2026-02-30T00:00:00Z')", RFC3339, "day out of range"),
        ("time_utc('soon')", RFC3339, "does not fit the layout"),
        ("time_parse('15:04', '24:00')", "15:04", "hour out of range"),
        ("time_parse('15.000', '12.5')", "15.000", "does not fit the layout"),
        ("time_parse('Z07:00', '+25:00')", "Z07:00", "offset of the zone out of range"),
        ("time_parse('2006 002', '2026 366')", "2006 002", "day of the year out of range"),
        ("time_parse('01 002', '02 001')", "01 002", "day of the year is another date"),
    ],
)
def test_an_invalid_time_is_an_error(fails, source, layout, reason):
    assert fails(source).endswith(f"is not a time in the layout {layout}: {reason}")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("time_parse('7', 'x')", "argument #2 is not a number of seconds since 1970"),
        ("time_add('2026-01-01T00:00:00Z', '1d')", "argument #2 is not a duration, as 1h30m"),
        ("time_add('9999-12-31T23:59:59Z', '1s')", "the year does not have four digits"),
        ("time_parse('0', '999999999999999')", "the year does not have four digits"),
    ],
)
def test_invalid_operations_on_times_are_errors(fails, source, reason):
    assert fails(source).endswith(reason)


def test_a_layout_that_is_too_long_is_an_error(fails):
    message = fails("time_parse(layout, 'x')", layout="2006 " * 100)
    assert "longer than 256 characters" in message


def test_the_current_time_comes_from_the_environment(run):
    environment = {"now": NOW}
    assert run("time_now()", environment=environment) == "2026-11-21T12:30:15+01:00"
    assert run("time_now_utc()", environment=environment) == "2026-11-21T11:30:15Z"
    source = "time_since('', '2026-11-21T11:30:15Z', '')"
    assert run(source, environment=environment) == "250ms"


def test_a_current_time_in_utc_is_written_with_z(run):
    assert run("time_now()", environment={"now": NOW.astimezone(UTC)}) == "2026-11-21T11:30:15Z"


@pytest.mark.parametrize(
    "source", ["time_now()", "time_now_utc()", "time_since('', '2026-01-01T00:00:00Z', '')"]
)
def test_the_current_time_is_an_error_if_the_environment_has_none(fails, source):
    assert "the current time is not available here" in fails(source)
