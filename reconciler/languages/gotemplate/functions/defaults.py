"""Defaults and choices between values, and ``fail``."""

from typing import Any

from reconciler.languages.gotemplate.signature import (
    ANY,
    BOOL,
    STRING,
    Failure,
    Family,
    family,
    plain,
)
from reconciler.languages.gotemplate.values import truth


def is_empty(value: Any) -> bool:
    """Return whether a value is the zero value of its type; a struct or a time never is."""
    return not truth(value)


def _default(instead: Any, *given: Any) -> Any:
    return instead if not given or is_empty(given[0]) else given[0]


def _coalesce(*values: Any) -> Any:
    return next((value for value in values if not is_empty(value)), None)


def _all(*values: Any) -> bool:
    return not any(map(is_empty, values))


def _any(*values: Any) -> bool:
    return not all(map(is_empty, values))


def _ternary(one: Any, other: Any, holds: bool) -> Any:  # noqa: FBT001
    return one if holds else other


def _fail(message: str) -> str:
    raise Failure(message, quotes=True)


FUNCTIONS: Family = family(
    {
        "default": plain(_default, ANY, rest=ANY),
        "empty": plain(is_empty, ANY),
        "coalesce": plain(_coalesce, rest=ANY),
        "all": plain(_all, rest=ANY),
        "any": plain(_any, rest=ANY),
        "ternary": plain(_ternary, ANY, ANY, BOOL),
        "fail": plain(_fail, STRING),
    }
)
