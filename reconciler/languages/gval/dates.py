"""Parses points in time as ``date`` does, with the layouts of gval in its order."""

from typing import Final

from reconciler.engine.values.gotime.layout import RFC3339, format_time, parse_time
from reconciler.languages.gval.values import Moment

_LAYOUTS: Final = (
    "Mon Jan _2 15:04:05 2006",
    "Mon Jan _2 15:04:05 MST 2006",
    "Mon Jan 02 15:04:05 -0700 2006",
    "3:04PM",
    RFC3339,
    "2006-01-02",
    "2006-01-02 15:04",
    "2006-01-02 15:04:05",
    "2006-01-02 15:04:05-07:00",
    "2006-01-02T15Z0700",
    "2006-01-02T15:04Z0700",
    "2006-01-02T15:04:05Z0700",
)
"""A fraction may follow any second, so layouts with fractions are not needed."""
_SHOWN: Final = "2006-01-02 15:04:05.999999999 -0700 MST"
_LONGEST: Final = 128


def parse_date(text: str) -> Moment | None:
    """Return the point in time of a text, in UTC without a zone, None if no layout fits."""
    for layout in _LAYOUTS if len(text) <= _LONGEST else ():
        try:
            moment = parse_time(layout, text)
        except ValueError:
            continue
        # Go distinguishes the zone UTC from a local zone that equals UTC.
        named = text.endswith("Z") or " UTC " in text
        return Moment(format_time(_SHOWN, moment), in_utc=named)
    return None
