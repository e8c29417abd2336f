"""Laws of crontabs: the next moment is the one that a search of every minute finds."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from reconciler.hooks.crontab import parse_crontab

START = datetime(2024, 2, 20, tzinfo=UTC)
DAYS = 45


def _field(least: int, most: int) -> st.SearchStrategy[tuple[str, frozenset[int], bool]]:
    """Return a strategy for a field: text, values, and whether it counts as unrestricted."""
    ends = st.tuples(st.integers(least, most), st.integers(least, most)).map(sorted)
    spans = ends.map(lambda pair: (f"{pair[0]}-{pair[1]}", range(pair[0], pair[1] + 1), False))
    stars = st.integers(1, most).map(
        lambda step: (f"*/{step}", range(least, most + 1, step), True)
    )
    single = st.integers(least, most).map(
        lambda value: (f"{value}", range(value, value + 1), False)
    )
    part = st.one_of(spans, stars, single, st.just(("*", range(least, most + 1), True)))
    return st.lists(part, min_size=1, max_size=3).map(
        lambda parts: (
            ",".join(text for text, _, _ in parts),
            frozenset(value for _, values, _ in parts for value in values),
            any(free for _, _, free in parts),
        )
    )


FIELDS = st.tuples(_field(0, 59), _field(0, 23), _field(1, 31), _field(1, 12), _field(0, 6))


@given(fields=FIELDS, offset=st.integers(0, 86_399))
def test_the_next_moment_is_the_first_that_fits(
    fields: tuple[tuple[str, frozenset[int], bool], ...], offset: int
) -> None:
    after = START + timedelta(seconds=offset)
    found = parse_crontab(" ".join(text for text, _, _ in fields), location="crontab").next(after)
    expected = next(_fitting(fields, after), None)
    if expected is None:
        assert found is None or found > after + timedelta(days=DAYS)
    else:
        assert found == expected


def _fitting(
    fields: tuple[tuple[str, frozenset[int], bool], ...], after: datetime
) -> Iterator[datetime]:
    minutes, hours, days, months, weekdays = fields
    both = days[2] or weekdays[2]
    for ahead in range(DAYS + 1):
        day = (after + timedelta(days=ahead)).replace(hour=0, minute=0, second=0)
        by_day, by_weekday = day.day in days[1], day.isoweekday() % 7 in weekdays[1]
        fits = (by_day and by_weekday) if both else (by_day or by_weekday)
        if not fits or day.month not in months[1]:
            continue
        for hour in sorted(hours[1]):
            for minute in sorted(minutes[1]):
                moment = day.replace(hour=hour, minute=minute)
                if moment > after:
                    yield moment
