from datetime import UTC, datetime, timedelta

import pytest

from reconciler.errors import InvalidPolicy
from reconciler.hooks.crontab import parse_crontab

START = datetime(2024, 2, 27, 10, 15, 30, tzinfo=UTC)


def following(crontab: str, count: int, start: datetime = START) -> list[str]:
    schedule = parse_crontab(crontab, location="crontab")
    found: list[str] = []
    moment: datetime | None = start
    while len(found) < count and moment is not None:
        moment = schedule.next(moment)
        if moment is not None:
            found.append(moment.strftime("%m-%d %H:%M:%S"))
    return found


@pytest.mark.parametrize(
    ("crontab", "first"),
    [
        ("0 0 29 2 *", ["02-29 00:00:00", "02-29 00:00:00"]),
        ("*/20,59 8 * * *", ["02-28 08:00:00", "02-28 08:20:00", "02-28 08:40:00"]),
        ("15 10 27 feb *", ["02-27 10:15:00"]),
        ("31 15 10 27 FEB *", ["02-27 10:15:31"]),
        # Where a day field begins with a star, even with a step, day and weekday must both match.
        ("0 0 */2 * 1", ["03-11 00:00:00", "03-25 00:00:00"]),
        ("0 0 1,15 * 1", ["03-01 00:00:00", "03-04 00:00:00"]),
        ("+5 0 * * *", ["02-28 00:05:00"]),
        ("@weekly", ["03-03 00:00:00"]),
        ("@every 1m1.9s", ["02-27 10:16:31"]),
        ("@every -5m", ["02-27 10:15:31"]),
        ("TZ= 0 0 * * *", ["02-28 00:00:00"]),
        ("*-5-x/30 * * * *", ["02-27 10:30:00", "02-27 11:00:00"]),
    ],
)
def test_the_next_times_of_a_crontab_are_calculated(crontab: str, first: list[str]) -> None:
    assert following(crontab, len(first)) == first


@pytest.mark.parametrize(
    "crontab",
    [
        "",
        "*/0 * * * *",
        "5-1 * * * *",
        "1-2-3 * * * *",
        "1/2/3 * * * *",
        "-5 * * * *",
        "0 0 0 * *",
        "0 0 * * 1-7",
        "0 0 * foo *",
        "* * * * jan",
        "\u0663 * * * *",
        "99999999999999999999 * * * *",
        "TZ=Nowhere/Never * * * * *",
        "TZ=../../etc/passwd * * * * *",
        "TZ=UTC",
        "@Hourly",
        "@every",
        "@every 1d",
    ],
)
def test_an_invalid_crontab_is_refused(crontab: str) -> None:
    with pytest.raises(InvalidPolicy, match=r"^here: "):
        parse_crontab(crontab, location="here")


def test_a_date_that_does_not_exist_is_never_due() -> None:
    assert following("0 0 31 4,6 *", 1) == []


def test_an_hour_skipped_by_dst_is_not_due_and_a_repeated_one_is_due_twice() -> None:
    schedule = parse_crontab("TZ=Europe/Berlin 30 2 * * *", location="crontab")
    spring = datetime(2024, 3, 30, 12, tzinfo=UTC)
    first = schedule.next(spring)
    assert first == datetime(2024, 4, 1, 0, 30, tzinfo=UTC)
    autumn = datetime(2024, 10, 26, 12, tzinfo=UTC)
    first = schedule.next(autumn)
    assert first == datetime(2024, 10, 27, 0, 30, tzinfo=UTC)
    assert schedule.next(first) == first + timedelta(hours=1)


def test_a_midnight_skipped_by_dst_does_not_skip_the_day() -> None:
    # In Asuncion the clocks went from 0:00 to 1:00 on that day.
    schedule = parse_crontab("TZ=America/Asuncion 0 5 6 10 *", location="crontab")
    before = datetime(2024, 10, 5, 12, tzinfo=UTC)
    assert schedule.next(before) == datetime(2024, 10, 6, 8, tzinfo=UTC)
