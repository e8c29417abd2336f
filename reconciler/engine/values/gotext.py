"""Values as Go's ``%v`` prints them, for the policy languages whose originals are Go programs.

All numbers of a JSON document are floating-point numbers there.
"""

import math
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
    match value:
        case str():
            return str(value)
        case None:
            return "<nil>"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return format_float(float_of(value))
        case dict():
            pairs = (f"{key}:{go_text(value[key])}" for key in sorted(value))
            return f"map[{' '.join(pairs)}]"
        case list() | tuple():
            return f"[{' '.join(map(go_text, value))}]"
        case _:
            return str(value)
