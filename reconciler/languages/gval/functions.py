"""The functions of the language."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from reconciler.languages.gval.dates import parse_date
from reconciler.languages.gval.values import UNDEFINED, Count, Failure

Function = Callable[[Any], Any]


def _length(value: Any) -> Count:
    if value is None or value is UNDEFINED:
        return Count(0)
    if isinstance(value, str):
        return Count(len(value.encode("utf-8", "surrogatepass")))
    if isinstance(value, list | dict):
        return Count(len(value))
    raise Failure("length, isEmpty and isNotEmpty expect a list, an object or a string")


def _date(value: Any) -> Any:
    if not isinstance(value, str):
        raise Failure("date expects a string")
    moment = parse_date(value)
    if moment is None:
        raise Failure("date cannot parse its argument")
    return moment


FUNCTIONS: Final[Mapping[str, Function]] = MappingProxyType(
    {
        "date": _date,
        "length": _length,
        "isDefined": lambda value: value is not UNDEFINED,
        "isUndefined": lambda value: value is UNDEFINED,
        "isEmpty": lambda value: _length(value) == 0,
        "isNotEmpty": lambda value: _length(value) != 0,
    }
)
"""Each takes one argument."""
