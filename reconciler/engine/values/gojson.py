"""JSON as Go's encoding/json writes it, where Python writes it in another way."""

from typing import Final

from reconciler.engine.values.gonumbers import format_float

_ESCAPES: Final = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}
"""What HTML does not take."""
_SMALLEST_PLAIN: Final = 1e-6
_EXPONENT: Final = 1e21
"""From here on, and below the one above, a number has an exponent."""


def escape(text: str) -> str:
    """Write JSON with Go's escapes; the characters that need them stand in its strings only."""
    return text.translate(_ESCAPES)


def write_float(value: float) -> str:
    """Write a finite number."""
    if value and not _SMALLEST_PLAIN <= abs(value) < _EXPONENT:
        return format_float(value, "e").replace("e-0", "e-")
    return format_float(value, "f")
