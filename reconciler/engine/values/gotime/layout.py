"""Times in Go layouts: a layout shows how Mon Jan 2 15:04:05 2006 would be written.

A layout becomes a regular expression with atomic groups, because Go parses from left to right
without backtracking. Zone abbreviations other than UTC and those like ``GMT+3`` have no offset,
as on a machine that runs in UTC.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from reconciler.engine.values.gotime.timestamp import (
    HOUR,
    MINUTE,
    Civil,
    Instant,
    date_of,
    days_before,
    days_in,
    instant,
    is_leap,
)
from reconciler.engine.values.scalars import SECOND

RFC3339 = "2006-01-02T15:04:05Z07:00"

_TOKEN = re.compile(
    r"January|Jan(?![a-z])|Monday|Mon(?![a-z])|MST|002|0[1-6]|15|1|2006|2|__2|_2(?!006)|[345]"
    r"|PM|pm|[-Z]07(?:0000|:00:00|00|:00)?|[.,](?:0+|9+)(?![0-9])"
)
_SPACES = re.compile(r"( +)")
_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september",
    "october", "november", "december",
)  # fmt: skip
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_NAMES = {"January": None, "Jan": 3, "Monday": None, "Mon": 3}
_ONE_OR_TWO = "[0-9]{1,2}"
_TWO = "[0-9]{2}"
_SIGNED_HOURS = "[+-]0*(?:1?[0-9]|2[0-3])(?![0-9])"
_NUMERIC_ZONE = re.compile(r"([+-])([0-9]{2}):?([0-9]{2})?:?([0-9]{2})?")
_CENTURY_TURN = 69
_NOON = 12

_Fields = dict[str, int]
_Convert = Callable[[str], _Fields]


def parse_time(layout: str, value: str) -> Instant:
    """Parse a time.

    Raises:
        ValueError: The value does not fit the layout, or there is no such time.
    """
    tokens = [token[0] for token in _TOKEN.finditer(layout)]
    found = re.fullmatch("".join(_pieces(layout)), value, re.ASCII)
    if found is None:
        raise ValueError("does not fit the layout")
    fields: _Fields = {}
    name = ""
    for token, text in zip(tokens, found.groups(), strict=True):
        fields |= _CONVERT[_kind(token)](text)
        if _kind(token) == "MST":
            name = text
    return _instant(fields, name)


def _instant(fields: _Fields, name: str) -> Instant:
    year = fields.get("year", 0)
    month, day = _date(fields, year)
    hour = fields.get("hour", 0)
    if "PM" in fields and hour < _NOON:
        hour += _NOON
    elif "AM" in fields and hour == _NOON:
        hour = 0
    civil = Civil(
        year=year,
        month=month,
        day=day,
        hour=hour,
        minute=fields.get("minute", 0),
        second=fields.get("second", 0),
    )
    # UTC precedes a numeric offset, which precedes the abbreviation of a zone.
    given = next((each for each in ("UTC", "offset", "abbreviation") if each in fields), "UTC")
    offset = fields.get(given, 0)
    zone = "UTC" if given == "UTC" or not (name or offset) else name
    nanosecond = fields.get("nanosecond", 0)
    if given == "abbreviation":
        # Go reads the clock time as UTC, and shows the result in the zone.
        written = instant(civil, nanosecond=nanosecond, offset=0, zone="")
        return replace(written, offset=offset, zone=zone)
    return instant(civil, nanosecond=nanosecond, offset=offset, zone=zone)


def format_time(layout: str, at: Instant) -> str:
    """Format a time."""
    pieces: list[str] = []
    position = 0
    for token in _TOKEN.finditer(layout):
        pieces += [layout[position : token.start()], _written(token[0], at, at.civil())]
        position = token.end()
    return "".join([*pieces, layout[position:]])


def _written(token: str, at: Instant, civil: Civil) -> str:
    kind = _kind(token)
    if kind == "fraction":
        return _written_fraction(token, at)
    if kind == "zone":
        return _written_zone(token, at.offset)
    if kind in _NAMES:
        return _name(kind, at, civil)
    if kind == "MST":
        return at.zone or _written_zone("-0700", at.offset)
    return _WRITE[token](at, civil)


def _name(token: str, at: Instant, civil: Civil) -> str:
    name = _MONTHS[civil.month - 1] if token.startswith("J") else _DAYS[at.weekday() - 1]
    return name.capitalize()[: _NAMES[token]]


def _written_fraction(token: str, at: Instant) -> str:
    digits = f"{at.nanoseconds % SECOND:09}"[: len(token) - 1]
    if token[1] == "9":
        digits = digits.rstrip("0")
    return token[0] + digits if digits else ""


def _written_zone(token: str, offset: int) -> str:
    if token[0] == "Z" and not offset:
        return "Z"
    size = abs(offset)
    parts = (size // HOUR, size % HOUR // MINUTE, size % MINUTE)
    digits = token[1:]
    count = len(digits.replace(":", "")) // 2
    between = ":" if ":" in digits else ""
    return ("-" if offset < 0 else "+") + between.join(f"{part:02}" for part in parts[:count])


def _date(fields: _Fields, year: int) -> tuple[int, int]:
    month, day = fields.get("month", 1), fields.get("day", 1)
    if "year_day" in fields:
        count = fields["year_day"]
        if not 1 <= count <= 365 + is_leap(year):
            raise ValueError("day of the year out of range")
        _, month, day = date_of(days_before(year, 1, 1) + count - 1)
        if (month, day) != (fields.get("month", month), fields.get("day", day)):
            raise ValueError("day of the year is another date")
    if not 1 <= day <= days_in(month, year):
        raise ValueError("day out of range")
    return month, day


def _pieces(layout: str) -> Iterator[str]:
    tokens = list(_TOKEN.finditer(layout))
    position = 0
    for index, token in enumerate(tokens):
        yield _literal(layout[position : token.start()])
        following = tokens[index + 1][0] if index + 1 < len(tokens) else ""
        yield f"((?>{_pattern(token[0], following)}))"
        position = token.end()
    yield _literal(layout[position:])


def _literal(text: str) -> str:
    return "".join(
        r"(?>\ +|\Z)" if part.startswith(" ") else re.escape(part) for part in _SPACES.split(text)
    )


def _pattern(token: str, following: str) -> str:
    kind = _kind(token)
    if kind == "fraction":
        digits = len(token) - 1
        return f"[.,][0-9]{{{digits}}}" if token[1] == "0" else "(?:[.,][0-9]+)?"
    if kind == "zone":
        numeric = f"[+-]{_PATTERNS['-' + token[1:]]}"
        return f"Z|{numeric}" if token.startswith("Z") else numeric
    pattern = _PATTERNS[token]
    # The value may have a fraction of seconds that the layout does not have.
    if token in {"5", "05"} and _kind(following) != "fraction":
        return rf"{pattern}(?:[.,][0-9]+)?"
    return pattern


def _kind(token: str) -> str:
    if token[:1] in {".", ","}:
        return "fraction"
    return "zone" if token[:1] in {"-", "Z"} else token


def _within(field: str, low: int, high: int) -> _Convert:
    def convert(text: str) -> _Fields:
        number = int(text)
        if not low <= number <= high:
            raise ValueError(f"{field} out of range")
        return {field: number}

    return convert


def _short_year(text: str) -> _Fields:
    year = int(text)
    return {"year": year + (1900 if year >= _CENTURY_TURN else 2000)}


def _month_name(text: str) -> _Fields:
    start = text.lower()[:3]
    return {"month": next(i for i, name in enumerate(_MONTHS, 1) if name.startswith(start))}


def _second(text: str) -> _Fields:
    whole, fraction = re.fullmatch(r"([0-9]+)(.*)", text).groups()  # type: ignore[union-attr]
    return _within("second", 0, 59)(whole) | _fraction(fraction)


def _fraction(text: str) -> _Fields:
    return {"nanosecond": int(text[1:10].ljust(9, "0"))} if text else {}


def _zone(text: str) -> _Fields:
    found = _NUMERIC_ZONE.fullmatch(text)
    if found is None:
        return {"UTC": 0}
    sign, hours, minutes, seconds = found[1], *(int(part or 0) for part in found.groups()[1:])
    # Go also accepts twenty-four hours and sixty minutes.
    if hours > 24 or max(minutes, seconds) > 60:  # noqa: PLR2004
        raise ValueError("offset of the zone out of range")
    offset = hours * HOUR + minutes * MINUTE + seconds
    return {"offset": -offset if sign == "-" else offset}


def _zone_name(text: str) -> _Fields:
    if text == "UTC":
        return {"UTC": 0}
    hours = text.removeprefix("GMT") if text.startswith("GMT") else ""
    return {"abbreviation": int(hours or 0) * HOUR}


def _names(names: tuple[str, ...], length: int | None = None) -> str:
    return f"(?i:{'|'.join(name[:length] for name in names)})"


_PATTERNS: Mapping[str, str] = {
    "2006": "[0-9]{4}",
    "06": _TWO,
    "January": _names(_MONTHS),
    "Jan": _names(_MONTHS, 3),
    "1": _ONE_OR_TWO,
    "01": _TWO,
    "Monday": _names(_DAYS),
    "Mon": _names(_DAYS, 3),
    "2": _ONE_OR_TWO,
    "_2": f" ?{_ONE_OR_TWO}",
    "02": _TWO,
    "__2": " {0,2}[0-9]{1,3}",
    "002": "[0-9]{3}",
    "15": _ONE_OR_TWO,
    "3": _ONE_OR_TWO,
    "03": _TWO,
    "4": _ONE_OR_TWO,
    "04": _TWO,
    "5": _ONE_OR_TWO,
    "05": _TWO,
    "PM": "AM|PM",
    "pm": "am|pm",
    "MST": (
        f"UTC|ChST|MeST|GMT(?:{_SIGNED_HOURS})?|{_SIGNED_HOURS}"
        "|[A-Z]{4}T(?![A-Z])|(?:[A-Z]{3}T|WITA)(?![A-Z])|[A-Z]{3}(?![A-Z])"
    ),
    "-07": _TWO,
    "-0700": f"{_TWO}{_TWO}",
    "-07:00": f"{_TWO}:{_TWO}",
    "-070000": f"{_TWO}{_TWO}{_TWO}",
    "-07:00:00": f"{_TWO}:{_TWO}:{_TWO}",
}

_CONVERT: Mapping[str, _Convert] = {
    "2006": _within("year", 0, 9999),
    "06": _short_year,
    **dict.fromkeys(("January", "Jan"), _month_name),
    **dict.fromkeys(("1", "01"), _within("month", 1, 12)),
    **dict.fromkeys(("Monday", "Mon"), lambda _: {}),
    **dict.fromkeys(("2", "_2", "02"), _within("day", 0, 99)),
    **dict.fromkeys(("__2", "002"), _within("year_day", 0, 999)),
    "15": _within("hour", 0, 23),
    **dict.fromkeys(("3", "03"), _within("hour", 0, 12)),
    **dict.fromkeys(("4", "04"), _within("minute", 0, 59)),
    **dict.fromkeys(("5", "05"), _second),
    "fraction": _fraction,
    **dict.fromkeys(("PM", "pm"), lambda text: {text.upper(): 1}),
    "MST": _zone_name,
    "zone": _zone,
}


def _clock(civil: Civil) -> int:
    return civil.hour % _NOON or _NOON


_WRITE: Mapping[str, Callable[[Instant, Civil], str]] = {
    "2006": lambda _, on: f"{'-' if on.year < 0 else ''}{abs(on.year):04}",
    "06": lambda _, on: f"{abs(on.year) % 100:02}",
    "1": lambda _, on: f"{on.month}",
    "01": lambda _, on: f"{on.month:02}",
    "2": lambda _, on: f"{on.day}",
    "_2": lambda _, on: f"{on.day:2}",
    "02": lambda _, on: f"{on.day:02}",
    "__2": lambda at, _: f"{at.year_day():3}",
    "002": lambda at, _: f"{at.year_day():03}",
    "15": lambda _, on: f"{on.hour:02}",
    "3": lambda _, on: f"{_clock(on)}",
    "03": lambda _, on: f"{_clock(on):02}",
    "4": lambda _, on: f"{on.minute}",
    "04": lambda _, on: f"{on.minute:02}",
    "5": lambda _, on: f"{on.second}",
    "05": lambda _, on: f"{on.second:02}",
    "PM": lambda _, on: "PM" if on.hour >= _NOON else "AM",
    "pm": lambda _, on: "pm" if on.hour >= _NOON else "am",
}
