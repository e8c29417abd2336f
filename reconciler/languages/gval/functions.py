"""The functions of the language."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from reconciler.engine.values.gotime.layout import RFC3339, format_time, parse_time
from reconciler.languages.gval.values import UNDEFINED, Count, Failure, Moment

Function = Callable[[Any], Any]

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


def _length(value: Any) -> Count:
    if value is None or value is UNDEFINED:
        return Count(0)
    if isinstance(value, str):
        return Count(len(value.encode("utf-8", "surrogatepass")))
    if isinstance(value, list | dict):
        return Count(len(value))
    raise Failure("length, isEmpty and isNotEmpty expect a list, an object or a string")


def _date(value: Any) -> Moment:
    """Return a point in time, in UTC without a zone, by the first layout that fits."""
    if not isinstance(value, str):
        raise Failure("date expects a string")
    for layout in _LAYOUTS if len(value) <= _LONGEST else ():
        try:
            moment = parse_time(layout, value)
        except ValueError:
            continue
        # Go distinguishes the zone UTC from a local zone that equals UTC.
        named = value.endswith("Z") or " UTC " in value
        return Moment(format_time(_SHOWN, moment), in_utc=named)
    raise Failure("date cannot parse its argument")


FUNCTIONS: Final[Mapping[str, Function]] = {
    "date": _date,
    "length": _length,
    "isDefined": lambda value: value is not UNDEFINED,
    "isUndefined": lambda value: value is UNDEFINED,
    "isEmpty": lambda value: _length(value) == 0,
    "isNotEmpty": lambda value: _length(value) != 0,
}
"""Each takes one argument."""
