"""Regular expressions with the syntax and guarantees of RE2, which Go uses too."""

import re
from typing import Any, Final

import re2

Regex = Any
"""A compiled expression; the library is untyped."""

MEMORY: Final = 1024 * 1024
"""The memory limit of a compiled expression, in bytes."""

_SINGLE_BYTE: Final = re.compile(r"(?<!\\)(?:\\\\)*\\C")
_STEPS: Final = 8
"""Instructions of a compiled expression per step of the allowance."""


def compile_regex(pattern: str) -> Regex:
    """Compile a regular expression.

    Raises:
        ValueError: The pattern is invalid; the message gives the reason.
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
    """Return by how much a search takes longer than with a short expression, as a factor."""
    return int(1 + regex.programsize // _STEPS)
