"""Points in time with an offset and nanoseconds, in the proleptic Gregorian calendar.

The standard library is limited to microseconds and to years from 1 on; texts of policies are not.
"""

from dataclasses import dataclass
from datetime import datetime

from reconciler.engine.values.scalars import SECOND

MINUTE = 60
HOUR = 3600
DAY = 86_400
DAYS_BEFORE = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365)
"""Days of a common year before each month, from January; the last item is the whole year."""

_EPOCH = 719_162  # days from 0001-01-01 to 1970-01-01
_ERA = 146_097  # days of 400 years
_CENTURY = 36_524
_QUADRENNIUM = 1_461
_YEAR = 365
_LAST_YEAR = 9999
_MONDAY = 1  # 0001-01-01 was a Monday; weeks begin with Sunday, 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Civil:
    """A local date and time; months and days count from 1."""

    year: int
    month: int
    day: int
    hour: int
    minute: int
    second: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Instant:
    """A point in time.

    Attributes:
        nanoseconds: Since 0001-01-01T00:00:00Z.
        offset: Seconds that clocks of its zone are ahead of UTC.
        zone: The abbreviation of its zone, where it has one.
    """

    nanoseconds: int
    offset: int
    zone: str = ""

    def civil(self) -> Civil:
        """Return the local date and time in its zone."""
        days, rest = divmod(self.nanoseconds // SECOND + self.offset, DAY)
        year, month, day = date_of(days)
        return Civil(
            year=year,
            month=month,
            day=day,
            hour=rest // HOUR,
            minute=rest % HOUR // MINUTE,
            second=rest % MINUTE,
        )

    def year_day(self) -> int:
        """Return the day of the year in its zone, from 1."""
        at = self.civil()
        return days_before(at.year, at.month, at.day) - days_before(at.year, 1, 1) + 1

    def weekday(self) -> int:
        """Return the day of the week in its zone; Sunday is 0."""
        return ((self.nanoseconds // SECOND + self.offset) // DAY + _MONDAY) % 7

    def rfc3339(self) -> str:
        """Return the time in RFC 3339, to the second.

        Raises:
            ValueError: The year does not have four digits.
        """
        at = self.civil()
        if not 0 <= at.year <= _LAST_YEAR:
            raise ValueError("the year does not have four digits")
        return (
            f"{at.year:04}-{at.month:02}-{at.day:02}"
            f"T{at.hour:02}:{at.minute:02}:{at.second:02}{_zone(self.offset)}"
        )


def instant(civil: Civil, *, nanosecond: int = 0, offset: int = 0, zone: str = "") -> Instant:
    """Return the point in time with the local date and time `civil` in a zone."""
    seconds = days_before(civil.year, civil.month, civil.day) * DAY
    seconds += civil.hour * HOUR + civil.minute * MINUTE + civil.second - offset
    return Instant(nanoseconds=seconds * SECOND + nanosecond, offset=offset, zone=zone)


def from_epoch(seconds: int) -> Instant:
    """Return the point in time `seconds` after 1970-01-01T00:00:00Z, in UTC."""
    return Instant(nanoseconds=(seconds + _EPOCH * DAY) * SECOND, offset=0)


def from_datetime(moment: datetime) -> Instant:
    """Return the point in time of an aware datetime."""
    offset = moment.utcoffset()
    ahead = 0 if offset is None else offset.days * DAY + offset.seconds
    civil = Civil(
        year=moment.year,
        month=moment.month,
        day=moment.day,
        hour=moment.hour,
        minute=moment.minute,
        second=moment.second,
    )
    return instant(civil, nanosecond=moment.microsecond * 1000, offset=ahead)


def is_leap(year: int) -> bool:
    """Return whether a year has a 29th of February."""
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def days_in(month: int, year: int) -> int:
    """Return the number of days of a month."""
    leap = month == 2 and is_leap(year)  # noqa: PLR2004 - February
    return DAYS_BEFORE[month] - DAYS_BEFORE[month - 1] + leap


def days_before(year: int, month: int, day: int) -> int:
    """Return the number of days from 0001-01-01 to a date."""
    past = year - 1
    leaps = past // 4 - past // 100 + past // 400
    later = month > 2 and is_leap(year)  # noqa: PLR2004 - behind February
    return past * _YEAR + leaps + DAYS_BEFORE[month - 1] + later + day - 1


def date_of(days: int) -> tuple[int, int, int]:
    """Return year, month and day of the date `days` after 0001-01-01."""
    eras, rest = divmod(days, _ERA)
    centuries = min(rest // _CENTURY, 3)
    rest -= centuries * _CENTURY
    fours, rest = divmod(rest, _QUADRENNIUM)
    years = min(rest // _YEAR, 3)
    year = 1 + eras * 400 + centuries * 100 + fours * 4 + years
    rest -= years * _YEAR
    month = 1
    while rest >= days_in(month, year):
        rest -= days_in(month, year)
        month += 1
    return year, month, rest + 1


def _zone(offset: int) -> str:
    if not offset:
        return "Z"
    sign, ahead = ("-" if offset < 0 else "+"), abs(offset) // MINUTE
    return f"{sign}{ahead // MINUTE:02}:{ahead % MINUTE:02}"
