"""Points in time as ``date`` reads them: the layouts of gval, with the rules of Go's ``time``."""

import re
from datetime import date
from typing import Final

from reconciler.languages.gval.values import Moment

_DAYS: Final = "Mon|Tue|Wed|Thu|Fri|Sat|Sun"
_MONTHS: Final = (
    "Jan",
    "Feb",
    "Mar",
    "Apr",
    "May",
    "Jun",
    "Jul",
    "Aug",
    "Sep",
    "Oct",
    "Nov",
    "Dec",
)
_MONTH: Final = f"(?P<name>{'|'.join(_MONTHS)})"
_LONG: Final = rf"(?:{_DAYS}) {_MONTH} +(?P<day>\d{{1,2}})"
_CLOCK: Final = r"(?P<hour>\d{2}):(?P<minute>\d{2}):(?P<second>\d{2})(?P<fraction>[.,]\d+)?"
_SHORT: Final = r"(?P<hour>\d{2}):(?P<minute>\d{2})"
_DATE: Final = r"(?P<year>\d{4})-(?P<month>\d{2})-(?P<day>\d{2})"
_COLON: Final = r"(?P<zone>Z|[+-]\d{2}:\d{2})"
_PLAIN: Final = r"(?P<zone>Z|[+-]\d{4})"

_LAYOUTS: Final = tuple(
    re.compile(pattern, re.ASCII)
    for pattern in (
        rf"{_LONG} {_CLOCK} (?P<year>\d{{4}})",
        rf"{_LONG} {_CLOCK} (?P<abbreviation>[A-Z]{{3,4}}) (?P<year>\d{{4}})",
        rf"(?:{_DAYS}) {_MONTH} (?P<day>\d{{2}}) {_CLOCK} (?P<zone>[+-]\d{{4}}) (?P<year>\d{{4}})",
        r"(?P<hour>\d{1,2}):(?P<minute>\d{2})(?P<half>AM|PM)",
        rf"{_DATE}T{_CLOCK}{_COLON}",
        _DATE,
        rf"{_DATE} {_SHORT}",
        rf"{_DATE} {_CLOCK}",
        rf"{_DATE} {_CLOCK}(?P<zone>[+-]\d{{2}}:\d{{2}})",
        rf"{_DATE}T(?P<hour>\d{{2}}){_PLAIN}",
        rf"{_DATE}T{_SHORT}{_PLAIN}",
        rf"{_DATE}T{_CLOCK}{_PLAIN}",
    )
)
_HALF_DAY: Final = 12
_HOURS: Final = 24
_MINUTES: Final = 60
_NANOSECONDS: Final = 9


def parse_date(text: str) -> Moment | None:
    """Read a point in time; without a zone it is in UTC. None where no layout fits."""
    for layout in _LAYOUTS:
        if found := layout.fullmatch(text):
            parts = {name: value for name, value in found.groupdict().items() if value}
            moment = _moment(parts)
            if moment is not None:
                return moment
    return None


def _moment(parts: dict[str, str]) -> Moment | None:
    year = int(parts.get("year", "0"))
    month = _MONTHS.index(parts["name"]) + 1 if "name" in parts else int(parts.get("month", "1"))
    day = int(parts.get("day", "1"))
    hour, minute, second = (int(parts.get(unit, "0")) for unit in ("hour", "minute", "second"))
    if "half" in parts:
        if not 0 <= hour <= _HALF_DAY:
            return None
        hour = hour % _HALF_DAY + (_HALF_DAY if parts["half"] == "PM" else 0)
    if hour >= _HOURS or minute >= _MINUTES or second >= _MINUTES or not _exists(year, month, day):
        return None
    fraction = parts.get("fraction", "")[1 : 1 + _NANOSECONDS].rstrip("0")
    clock = f"{hour:02d}:{minute:02d}:{second:02d}{'.' if fraction else ''}{fraction}"
    return Moment(f"{year:04d}-{month:02d}-{day:02d} {clock} {_zone(parts)}")


def _exists(year: int, month: int, day: int) -> bool:
    try:
        # The calendar of Go has a year 0, which is a leap year.
        date(year or 4, month, day)
    except ValueError:
        return False
    return True


def _zone(parts: dict[str, str]) -> str:
    offset = parts.get("zone", "Z").replace(":", "")
    if offset in ("Z", "+0000", "-0000"):
        return f"+0000 {parts.get('abbreviation', 'UTC')}"
    return f"{offset} {offset}"
