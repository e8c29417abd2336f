"""JSON as Go's encoding/json writes it, where Python's output differs."""

from decimal import Decimal
from typing import Final

from reconciler.engine.values.gonumbers import format_float

_ESCAPES: Final = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}
"""Go escapes these for HTML and JavaScript."""
_SMALLEST_PLAIN: Final = 1e-6
_EXPONENT: Final = 1e21
"""From here on, and below `_SMALLEST_PLAIN`, a number has an exponent."""


def escape(text: str) -> str:
    """Return JSON with Go's escapes; the characters that need them only occur in strings."""
    return text.translate(_ESCAPES)


def number_of(value: float) -> float:
    """Return a finite number as an integer where Go writes it as one.

    It has the digits of the JSON text: large floats have more in Python, and are not more exact.
    """
    is_whole = abs(value) < _EXPONENT and value.is_integer()
    return int(Decimal(repr(value))) if is_whole else value


def write_float(value: float) -> str:
    """Return the JSON of a finite number."""
    if value and not _SMALLEST_PLAIN <= abs(value) < _EXPONENT:
        return format_float(value, "e").replace("e-0", "e-")
    return format_float(value, "f")
