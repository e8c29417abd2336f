"""Time windows of the week in which work may be done, in the local time of a zone."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from reconciler.errors import InvalidPolicy

_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_FORM: Final = re.compile(
    r"(?:(?P<days>[A-Za-z,-]+)\s+)?(?P<start>\d\d:\d\d)-(?P<end>\d\d:\d\d)(?:\s+(?P<zone>\S+))?"
)
_EXAMPLE: Final = "write it as `Mon-Fri 09:00-17:00 Europe/Berlin`"
_AHEAD: Final = 9
"""Days to look ahead: a week, and a day on each side for time zones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One time window; where it ends before it begins, it ends on the next day.

    Attributes:
        days: The weekdays on which it begins; Monday is 0.
    """

    days: frozenset[int]
    start: time
    end: time
    zone: ZoneInfo

    def is_open(self, now: datetime) -> bool:
        """Return whether a time is in the window, whose end is exclusive."""
        local = now.astimezone(self.zone)
        today, clock = local.weekday() in self.days, local.time()
        if self.start < self.end:
            return today and self.start <= clock < self.end
        yesterday = (local.weekday() - 1) % 7 in self.days
        return (today and clock >= self.start) or (yesterday and clock < self.end)

    def next_begin(self, now: datetime) -> datetime:
        """Return when the window opens next, after now."""
        day = now.astimezone(self.zone).date()
        begins = (
            datetime.combine(day + timedelta(days=ahead), self.start, self.zone)
            for ahead in range(_AHEAD)
            if (day + timedelta(days=ahead)).weekday() in self.days
        )
        return min(begin for begin in begins if begin.timestamp() > now.timestamp())


def opens(windows: Iterable[Window], now: datetime) -> datetime | None:
    """Return when the first of the windows opens, None where one is open now."""
    found = tuple(windows)
    if any(window.is_open(now) for window in found):
        return None
    return min((window.next_begin(now) for window in found), key=datetime.timestamp)


def parse_windows(text: str, location: str) -> tuple[Window, ...]:
    """Return the windows of a text: ``DAYS HH:MM-HH:MM ZONE``, several separated by ``;``.

    The days may be omitted (every day), and so may the zone (UTC).

    Raises:
        InvalidPolicy: The text has another form.
    """
    return tuple(_parse(part.strip(), location) for part in text.split(";"))


def _parse(text: str, location: str) -> Window:
    found = _FORM.fullmatch(text)
    if found is None:
        raise InvalidPolicy(location, f"{text!r} is not a time window; {_EXAMPLE}")
    start, end = (_time(found[name], location) for name in ("start", "end"))
    if start == end:
        reason = (
            f"the window {text!r} begins and ends at the same time; 00:00-23:59 is nearly a whole"
            " day"
        )
        raise InvalidPolicy(location, reason)
    days = _days(found["days"], location) if found["days"] else frozenset(range(7))
    return Window(days=days, start=start, end=end, zone=_zone(found["zone"] or "UTC", location))


def _time(text: str, location: str) -> time:
    try:
        return time.fromisoformat(text)
    except ValueError as error:
        reason = f"{text} is not a time of day; use 00:00 to 23:59"
        raise InvalidPolicy(location, reason) from error


def _zone(name: str, location: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (OSError, KeyError, ValueError) as error:
        reason = f"there is no time zone {name}; use a name such as Europe/Berlin or UTC"
        raise InvalidPolicy(location, reason) from error


def _days(text: str, location: str) -> frozenset[int]:
    days: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        begin = _day(first, location)
        end = _day(last, location) if dash else begin
        days.update((begin + ahead) % 7 for ahead in range((end - begin) % 7 + 1))
    return frozenset(days)


def _day(text: str, location: str) -> int:
    if text.capitalize() in _DAYS:
        return _DAYS.index(text.capitalize())
    raise InvalidPolicy(location, f"{text!r} is not a day; use {', '.join(_DAYS)}")
