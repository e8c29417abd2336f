"""Times and durations.

Local time is UTC, regardless of the machine's time zone. The current time comes from the
evaluation environment.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

from typing_extensions import override

from reconciler.engine.values.gonumbers import INT64_MAX, INT64_MIN
from reconciler.engine.values.gotime.layout import format_time, parse_time
from reconciler.engine.values.gotime.timestamp import (
    Civil,
    Instant,
    days_in,
    from_datetime,
    from_epoch,
    instant,
)
from reconciler.engine.values.scalars import SECOND, format_duration, parse_duration
from reconciler.languages.gotemplate.functions.numbers import clamped
from reconciler.languages.gotemplate.limits import Run
from reconciler.languages.gotemplate.signature import (
    ANY,
    DURATION,
    INT,
    STRING,
    Failure,
    Family,
    Function,
    family,
    function,
    plain,
)
from reconciler.languages.gotemplate.values import Int, Int64, Opaque, wrapped

_TIME: Final = "time.Time"
_STRING_LAYOUT: Final = "2006-01-02 15:04:05.999999999 -0700 MST"
_JSON_LAYOUT: Final = "2006-01-02T15:04:05.999999999Z07:00"
_DATE: Final = "2006-01-02"
_LAST_YEAR: Final = 9999
_LONGEST: Final = 1024
_COMPILING: Final = 64
"""The steps that a layout costs for each of its characters."""
_DAY: Final = 24 * 3600
_UNITS: Final = (
    ("y", 365 * _DAY), ("mo", 30 * _DAY), ("d", _DAY), ("h", 3600), ("m", 60), ("s", 1),
)  # fmt: skip
_ZONE_NAME: Final = re.compile(r"[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+)*")
_EPOCH: Final = from_epoch(0).nanoseconds
_MONTHS: Final = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip
_DAYS: Final = (
    "Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday",
)  # fmt: skip


class Duration(Int64):
    """A duration, in nanoseconds."""

    __slots__ = ()
    type_name = DURATION

    def text(self) -> str:
        """Return the result of the method String."""
        return format_duration(int(self))

    @classmethod
    def methods(cls) -> Mapping[str, Function]:
        """Return the methods by name."""
        return _DURATION_METHODS


class Month(Int):
    """A month, from 1."""

    __slots__ = ()
    type_name = "time.Month"

    def text(self) -> str:
        """Return the result of the method String."""
        return _MONTHS[int(self) - 1]

    @classmethod
    def methods(cls) -> Mapping[str, Function]:
        """Return the methods by name."""
        return _STRING_METHOD


class Weekday(Int):
    """A day of the week; Sunday is 0."""

    __slots__ = ()
    type_name = "time.Weekday"

    def text(self) -> str:
        """Return the result of the method String."""
        return _DAYS[int(self)]

    @classmethod
    def methods(cls) -> Mapping[str, Function]:
        """Return the methods by name."""
        return _STRING_METHOD


@dataclass(frozen=True, slots=True)
class Time(Opaque):
    """A point in time."""

    at: Instant

    @property
    @override
    def type_name(self) -> str:
        return _TIME

    @property
    @override
    def kind(self) -> str:
        return "struct"

    @override
    def text(self) -> str:
        return format_time(_STRING_LAYOUT, self.at)

    @override
    def json(self) -> str:
        if not 0 <= self.at.civil().year <= _LAST_YEAR:
            raise Failure("JSON has no time of such a year")
        return format_time(_JSON_LAYOUT, self.at)

    @classmethod
    @override
    def methods(cls) -> Mapping[str, Function]:
        return _TIME_METHODS


def _utc(at: Instant) -> Instant:
    return Instant(nanoseconds=at.nanoseconds, offset=0, zone="UTC")


ZERO: Final = Time(Instant(nanoseconds=0, offset=0, zone="UTC"))


def _moved(time: Time, nanoseconds: int) -> Time:
    return Time(replace(time.at, nanoseconds=time.at.nanoseconds + nanoseconds))


def _clamped(nanoseconds: int) -> Duration:
    return Duration(max(INT64_MIN, min(INT64_MAX, nanoseconds)))


def _now(run: Run) -> Time:
    now = run.environment.now
    if now is None:
        raise Failure("the current time is not available here; use a time from an object")
    return Time(_utc(from_datetime(now)))


def _in_zone(at: Instant, zone: str) -> Instant:
    """Return a time shown in a zone, or in UTC if the zone is unknown."""
    if zone in {"", "UTC", "Local"} or not _ZONE_NAME.fullmatch(zone):
        return _utc(at)
    try:
        known = ZoneInfo(zone)
    except (KeyError, OSError, ValueError):  # an unknown zone
        return _utc(at)
    civil = _utc(at).civil()
    year = min(max(civil.year, 2), 9998)
    day = min(civil.day, days_in(civil.month, year))
    there = datetime(
        year, civil.month, day, civil.hour, civil.minute, civil.second, tzinfo=UTC
    ).astimezone(known)
    shown = from_datetime(there)
    return Instant(nanoseconds=at.nanoseconds, offset=shown.offset, zone=there.tzname() or "")


def _layout(run: Run, layout: str) -> str:
    if len(layout) > _LONGEST:
        raise Failure(f"a layout or time is longer than {_LONGEST} characters")
    run.spend(len(layout) * _COMPILING)
    return layout


def _dated(run: Run, value: Any) -> Time:
    if isinstance(value, Time):
        return value
    if type(value) in {Int, Int64}:
        return Time(_utc(from_epoch(int(value))))
    return _now(run)


def _date_in_zone(run: Run, layout: str, value: Any, zone: str) -> str:
    at = _in_zone(_dated(run, value).at, zone)
    return format_time(_layout(run, layout), at)


def _date(run: Run, layout: str, value: Any) -> str:
    return _date_in_zone(run, layout, value, "")


def _html_date(run: Run, value: Any) -> str:
    return _date_in_zone(run, _DATE, value, "")


def _html_date_in_zone(run: Run, value: Any, zone: str) -> str:
    return _date_in_zone(run, _DATE, value, zone)


def _must_date_modify(span: str, time: Time) -> Time:
    nanoseconds = parse_duration(span) if len(span) <= _LONGEST else None
    if nanoseconds is None:
        raise Failure("a duration cannot be read; it has the form 1h30m")
    return _moved(time, nanoseconds)


def _date_modify(span: str, time: Time) -> Time:
    try:
        return _must_date_modify(span, time)
    except Failure:
        return time


def _must_to_date(run: Run, layout: str, text: str) -> Time:
    _layout(run, text)
    try:
        return Time(parse_time(_layout(run, layout), text))
    except ValueError as error:
        raise Failure("a time does not match the layout") from error


def _to_date(run: Run, layout: str, text: str) -> Time:
    try:
        return _must_to_date(run, layout, text)
    except Failure:
        return ZERO


def _ago(run: Run, value: Any) -> str:
    span = _now(run).at.nanoseconds - _dated(run, value).at.nanoseconds
    return format_duration(_rounded(int(_clamped(span)), SECOND))


def _rounded(nanoseconds: int, unit: int) -> int:
    """Round halves away from zero."""
    size = (abs(nanoseconds) * 2 + unit) // (2 * unit) * unit
    return -size if nanoseconds < 0 else size


def _seconds(value: Any) -> str:
    """Write a number of seconds as a duration; all types but text and int64 count as 0."""
    count = 0
    if isinstance(value, str):
        count = clamped(value)
    elif type(value) is Int64:
        count = int(value)
    return format_duration(wrapped(count * SECOND))


def _duration_round(run: Run, value: Any) -> str:
    """Write a duration in its largest unit."""
    size = 0
    if isinstance(value, str):
        size = abs(parse_duration(value) or 0)
    elif type(value) is Int64:
        size = abs(int(value))
    elif isinstance(value, Time):
        size = abs(_clamped(_now(run).at.nanoseconds - value.at.nanoseconds))
    for unit, seconds in _UNITS:
        if size > seconds * SECOND:
            return f"{size // (seconds * SECOND)}{unit}"
    return "0s"


def _add_date(time: Time, years: int, months: int, days: int) -> Time:
    civil = time.at.civil()
    year, month = divmod((civil.year + years) * 12 + civil.month - 1 + months, 12)
    first = Civil(
        year=year, month=month + 1, day=1,
        hour=civil.hour, minute=civil.minute, second=civil.second,
    )  # fmt: skip
    moved = instant(
        first,
        nanosecond=time.at.nanoseconds % SECOND,
        offset=time.at.offset,
        zone=time.at.zone,
    )
    return _moved(Time(moved), (civil.day - 1 + days) * _DAY * SECOND)


def _compared(holds: Callable[[int, int], bool]) -> Function:
    return plain(lambda one, other: holds(one.at.nanoseconds, other.at.nanoseconds), _TIME)


def _formatted(run: Run, time: Time, layout: str) -> str:
    return format_time(_layout(run, layout), time.at)


def _clock(part: Callable[[Civil], int]) -> Function:
    return plain(lambda time: Int(part(time.at.civil())))


def _since_1970(unit: int) -> Function:
    return plain(lambda time: Int64((time.at.nanoseconds - _EPOCH) // unit))


def _truncated(time: Time, unit: Duration) -> Time:
    return time if unit <= 0 else _moved(time, -(time.at.nanoseconds % int(unit)))


def _time_rounded(time: Time, unit: Duration) -> Time:
    rest = time.at.nanoseconds % int(unit) if unit > 0 else 0
    return _moved(time, int(unit) - rest if rest * 2 >= unit > 0 else -rest)


def _whole(span: int, unit: int) -> int:
    """Return the number of whole units in a span."""
    count = abs(span) // unit
    return -count if span < 0 else count


def _span_truncated(span: Duration, unit: int) -> Duration:
    return Duration(_whole(span, unit) * unit) if unit > 0 else span


def _span_rounded(span: Duration, unit: int) -> Duration:
    return _clamped(_rounded(span, unit)) if unit > 0 else span


_STRING_METHOD: Final[Mapping[str, Function]] = {"String": plain(lambda value: value.text())}
_TIME_METHODS: Final[Mapping[str, Function]] = {
    **_STRING_METHOD,
    "Year": _clock(lambda civil: civil.year),
    "Month": plain(lambda time: Month(time.at.civil().month)),
    "Day": _clock(lambda civil: civil.day),
    "Hour": _clock(lambda civil: civil.hour),
    "Minute": _clock(lambda civil: civil.minute),
    "Second": _clock(lambda civil: civil.second),
    "Nanosecond": plain(lambda time: Int(time.at.nanoseconds % SECOND)),
    "YearDay": plain(lambda time: Int(time.at.year_day())),
    "Weekday": plain(lambda time: Weekday(time.at.weekday())),
    "Unix": _since_1970(SECOND),
    "UnixMilli": _since_1970(SECOND // 1000),
    "UnixMicro": _since_1970(1000),
    "UnixNano": _since_1970(1),
    "IsDST": plain(lambda _time: False),  # no time is in a zone other than UTC or an offset
    "IsZero": plain(lambda time: time.at.nanoseconds == 0),
    "Before": _compared(lambda one, other: one < other),
    "After": _compared(lambda one, other: one > other),
    "Equal": _compared(lambda one, other: one == other),
    "Sub": plain(lambda one, other: _clamped(one.at.nanoseconds - other.at.nanoseconds), _TIME),
    "Add": plain(_moved, DURATION),
    "AddDate": plain(_add_date, INT, INT, INT),
    "Truncate": plain(_truncated, DURATION),
    "Round": plain(_time_rounded, DURATION),
    "UTC": plain(lambda time: Time(_utc(time.at))),
    "Local": plain(lambda time: Time(_utc(time.at))),
    "Format": function(_formatted, STRING),
}
_DURATION_METHODS: Final[Mapping[str, Function]] = {
    **_STRING_METHOD,
    "Hours": plain(lambda span: int(span) / (3600 * SECOND)),
    "Minutes": plain(lambda span: int(span) / (60 * SECOND)),
    "Seconds": plain(lambda span: int(span) / SECOND),
    "Milliseconds": plain(lambda span: Int64(_whole(span, 1_000_000))),
    "Microseconds": plain(lambda span: Int64(_whole(span, 1_000))),
    "Nanoseconds": plain(Int64),
    "Truncate": plain(_span_truncated, DURATION),
    "Round": plain(_span_rounded, DURATION),
    "Abs": plain(lambda span: _clamped(abs(span))),
}

FUNCTIONS: Family = family(
    {
        "now": function(_now, pure=False),
        "ago": function(_ago, ANY, pure=False),
        "date": function(_date, STRING, ANY, pure=False),
        "dateInZone": function(_date_in_zone, STRING, ANY, STRING, pure=False),
        "htmlDate": function(_html_date, ANY, pure=False),
        "htmlDateInZone": function(_html_date_in_zone, ANY, STRING, pure=False),
        "dateModify": plain(_date_modify, STRING, _TIME),
        "mustDateModify": plain(_must_date_modify, STRING, _TIME),
        "duration": plain(_seconds, ANY),
        "durationRound": function(_duration_round, ANY, pure=False),
        "toDate": function(_to_date, STRING, STRING),
        "mustToDate": function(_must_to_date, STRING, STRING),
        "unixEpoch": plain(lambda time: str((time.at.nanoseconds - _EPOCH) // SECOND), _TIME),
    },
    date_in_zone="dateInZone",
    date_modify="dateModify",
    must_date_modify="mustDateModify",
)
