"""Values as Go's ``%v`` prints them, for the policy languages whose originals are Go programs.

All numbers of a JSON document are floating-point numbers there.
"""

import math
from collections.abc import Callable
from typing import Any

from reconciler.engine.values.gonumbers import format_float


def float_of(number: float) -> float:
    """Return a JSON number as the float64 that Go decodes; infinite where it is too large."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def go_text(value: Any) -> str:
    """Return a JSON value as Go's ``%v`` prints it, with sorted map keys.

    Eighty is ``80``, a million ``1e+06``, null ``<nil>``.
    """
    parts: list[str] = []
    _write(value, parts.append)
    return "".join(parts)


def _write(value: Any, put: Callable[[str], None]) -> None:
    """Write the parts of a text one by one; a text for each level would repeat those below."""
    match value:
        case str():
            put(str(value))
        case None:
            put("<nil>")
        case bool():
            put("true" if value else "false")
        case int() | float():
            put(format_float(float_of(value)))
        case dict():
            put("map[")
            for position, key in enumerate(sorted(value)):
                put(f"{' ' if position else ''}{key}:")
                _write(value[key], put)
            put("]")
        case list() | tuple():
            put("[")
            for position, item in enumerate(value):
                if position:
                    put(" ")
                _write(item, put)
            put("]")
        case _:
            put(str(value))
