"""Crontabs by the rules of robfig/cron, version 2.

Supported are five fields, or six with seconds first, `@hourly` and similar names, `@every 1h30m`,
and a time zone in front, as in `TZ=Europe/Berlin 0 6 * * *`. Extensions of other crontabs are
refused: 7 for Sunday, `L`, `W`, `#`, `CRON_TZ=`. If day of month and day of week are both limited,
either may match; a field that begins with `*` or `?`, even with a step, counts as not limited.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

from reconciler.engine.values.scalars import parse_duration
from reconciler.errors import InvalidPolicy

_YEARS: Final = 5
"""Limit of the search for the next date, because the 30th of February never comes."""
_ZONE: Final = "TZ="
_EVERY: Final = "@every "
_NAMED: Final = {
    "@yearly": "0 0 0 1 1 *",
    "@annually": "0 0 0 1 1 *",
    "@monthly": "0 0 0 1 * *",
    "@weekly": "0 0 0 * * 0",
    "@daily": "0 0 0 * * *",
    "@midnight": "0 0 0 * * *",
    "@hourly": "0 0 * * * *",
}
_MONTHS: Final = (
    *("jan", "feb", "mar", "apr", "may", "jun"),
    *("jul", "aug", "sep", "oct", "nov", "dec"),
)
_DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_WITH_SECONDS: Final = 6
_SECOND: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class _Bounds:
    name: str
    least: int
    most: int
    names: dict[str, int]


_FIELDS: Final = (
    _Bounds("second", 0, 59, {}),
    _Bounds("minute", 0, 59, {}),
    _Bounds("hour", 0, 23, {}),
    _Bounds("day of month", 1, 31, {}),
    _Bounds("month", 1, 12, {name: index for index, name in enumerate(_MONTHS, 1)}),
    _Bounds("day of week", 0, 6, {name: index for index, name in enumerate(_DAYS)}),
)


@dataclass(frozen=True, slots=True)
class _Field:
    """The matching values of a field; ``free`` if it was written with a wildcard."""

    values: frozenset[int]
    free: bool

    def following(self, value: int) -> int | None:
        """Return the first matching value that is not lower than a value."""
        return min((item for item in self.values if item >= value), default=None)


@dataclass(frozen=True, slots=True)
class Calendar:
    """A schedule of crontab fields, in the order of `_FIELDS`, in the local time of a zone."""

    second: _Field
    minute: _Field
    hour: _Field
    day: _Field
    month: _Field
    weekday: _Field
    zone: tzinfo = field(kw_only=True)

    def next(self, after: datetime) -> datetime | None:
        """Return the next due time after a moment, in UTC and whole seconds.

        None if there is none in five years.

        Times in an hour that a clock change skips never come; those in a repeated hour come twice.
        """
        moment = after.astimezone(UTC).replace(microsecond=0) + timedelta(seconds=1)
        last = moment.astimezone(self.zone).year + _YEARS
        while (local := moment.astimezone(self.zone)).year <= last:
            later = self._later(local)
            if later is None:
                return moment
            moment = later
        return None

    def _later(self, local: datetime) -> datetime | None:
        """Return a later moment before which nothing is due; None if the given time is due."""
        if local.month not in self.month.values:
            ahead = local.replace(day=1, hour=0, minute=0, second=0, fold=0) + timedelta(days=32)
            return ahead.replace(day=1).astimezone(UTC)
        if not self._fits_day(local):
            midnight = local.replace(hour=0, minute=0, second=0, fold=0)
            return (midnight + timedelta(days=1)).astimezone(UTC)
        moment = local.astimezone(UTC)
        hour = moment - timedelta(minutes=local.minute, seconds=local.second)
        if local.hour not in self.hour.values:
            return hour + timedelta(hours=1)
        minute = self.minute.following(local.minute)
        if minute is None:
            return hour + timedelta(hours=1)
        if minute != local.minute:
            return hour + timedelta(minutes=minute)
        second = self.second.following(local.second)
        if second is None:
            return moment + timedelta(seconds=60 - local.second)
        return moment + timedelta(seconds=second - local.second) if second > local.second else None

    def _fits_day(self, local: datetime) -> bool:
        by_day = local.day in self.day.values
        by_weekday = local.isoweekday() % 7 in self.weekday.values
        if self.day.free or self.weekday.free:
            return by_day and by_weekday
        return by_day or by_weekday


@dataclass(frozen=True, slots=True)
class Interval:
    """A schedule that is due a fixed number of seconds, at least one, after a given moment."""

    seconds: int

    def next(self, after: datetime) -> datetime:
        """Return the moment one interval later."""
        moment = after.astimezone(UTC).replace(microsecond=0)
        return moment + timedelta(seconds=self.seconds)


def parse_crontab(text: str, *, location: str) -> Calendar | Interval:
    """Parse a crontab.

    Raises:
        InvalidPolicy: It is not a valid crontab.
    """
    zone: tzinfo = UTC
    if text.startswith(_ZONE):
        name, space, text = text.removeprefix(_ZONE).partition(" ")
        if not space:
            reason = f"nothing follows the time zone {name!r}: write fields after it"
            raise InvalidPolicy(location, reason)
        zone, text = _zone(name, location), text.strip()
    if text.startswith(_EVERY):
        return _interval(text.removeprefix(_EVERY), location)
    if text.startswith("@"):
        if text not in _NAMED:
            reason = f"{text!r} is not known, use {', '.join(_NAMED)} or @every DURATION"
            raise InvalidPolicy(location, reason)
        text = _NAMED[text]
    return _calendar(text, location, zone)


def _zone(name: str, location: str) -> tzinfo:
    if name in {"", "UTC", "Local"}:
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError) as error:
        reason = f"{name!r} is not a time zone; write it like TZ=Europe/Berlin"
        raise InvalidPolicy(location, reason) from error


def _interval(text: str, location: str) -> Interval:
    nanoseconds = parse_duration(text)
    if nanoseconds is None:
        raise InvalidPolicy(location, f"{text!r} is not a duration; write it like @every 1h30m")
    return Interval(max(nanoseconds // _SECOND, 1))


def _calendar(text: str, location: str, zone: tzinfo) -> Calendar:
    parts = text.split()
    if len(parts) == _WITH_SECONDS - 1:
        parts = ["0", *parts]
    if len(parts) != _WITH_SECONDS:
        reason = f"expected 5 fields, or 6 with seconds first, got {len(parts)}"
        raise InvalidPolicy(location, reason)
    fields = [_field(part, bounds, location) for part, bounds in zip(parts, _FIELDS, strict=True)]
    return Calendar(*fields, zone=zone)


def _field(text: str, bounds: _Bounds, location: str) -> _Field:
    ranges = [item for item in text.split(",") if item]
    values: set[int] = set()
    for item in ranges:
        values.update(_range(item, bounds, location))
    return _Field(frozenset(values), any(item[0] in "*?" for item in ranges))


def _range(text: str, bounds: _Bounds, location: str) -> range:
    span, *steps = text.split("/")
    ends = span.split("-")
    # After a wildcard the end of the range is ignored.
    if len(steps) > 1 or (len(ends) > 2 and ends[0] not in {"*", "?"}):  # noqa: PLR2004
        raise InvalidPolicy(
            location, f"{bounds.name}: {text!r} is not a range; write 1-5 or 1-5/2"
        )
    if ends[0] in {"*", "?"}:
        first, last = bounds.least, bounds.most
    else:
        first = _number(ends[0], bounds, location)
        # A single value with a step extends to the upper bound.
        last = bounds.most if len(ends) == 1 and steps else _number(ends[-1], bounds, location)
    if not bounds.least <= first <= last <= bounds.most:
        reason = f"{bounds.name}: {span!r} is not within {bounds.least} to {bounds.most}"
        if bounds.least <= last < first <= bounds.most:
            reason = f"{bounds.name}: {span!r} ends before it begins"
        raise InvalidPolicy(location, reason)
    step = _number(steps[0], bounds, location, step=True) if steps else 1
    return range(first, last + 1, step)


def _number(text: str, bounds: _Bounds, location: str, *, step: bool = False) -> int:
    if not step and text.lower() in bounds.names:
        return bounds.names[text.lower()]
    digits = text.removeprefix("+")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 9:  # noqa: PLR2004 - an int
        raise InvalidPolicy(location, f"{bounds.name}: {text!r} is not a number")
    if step and not int(digits):
        raise InvalidPolicy(location, f"{bounds.name}: the step must be 1 or more, got 0")
    return int(digits)
