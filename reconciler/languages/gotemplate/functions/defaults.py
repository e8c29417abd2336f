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


def _fail(message: str) -> str:
    raise Failure(message, quotes=True)


FUNCTIONS: Family = family(
    {
        "default": plain(_default, ANY, rest=ANY),
        "empty": plain(is_empty, ANY),
        "coalesce": plain(_coalesce, rest=ANY),
        "all": plain(lambda *values: not any(map(is_empty, values)), rest=ANY),
        "any": plain(lambda *values: not all(map(is_empty, values)), rest=ANY),
        "ternary": plain(lambda one, other, holds: one if holds else other, ANY, ANY, BOOL),
        "fail": plain(_fail, STRING),
    }
)
