"""Regular expressions in the syntax and with the guarantees of RE2, which is that of Go."""

import re
from typing import Any, Final

import re2

Regex = Any
"""A compiled expression of the library, which has no types."""

MEMORY: Final = 1024 * 1024
"""Bytes that a compiled expression may take."""

_SINGLE_BYTE: Final = re.compile(r"(?<!\\)(?:\\\\)*\\C")
_STEPS: Final = 8
"""Instructions of a compiled expression that take the time of a character."""


def compile_regex(pattern: str) -> Regex:
    """Compile a regular expression.

    Raises:
        ValueError: The text of the error says what it is not.
    """
    if _SINGLE_BYTE.search(pattern):
        raise ValueError(r"not a regular expression: \C is not supported")
    options = re2.Options()
    options.max_mem = MEMORY
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0].decode() if isinstance(error.args[0], bytes) else str(error)
        raise ValueError(f"not a regular expression: {reason}") from None
    except UnicodeError:
        raise ValueError("not well-formed text") from None


def pace_of(regex: Regex) -> int:
    """Return how many times longer than over a short expression a search takes."""
    return int(1 + regex.programsize // _STEPS)
