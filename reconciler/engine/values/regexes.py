"""Regular expressions with the syntax and guarantees of RE2, which Go uses too."""

import re
from collections.abc import Mapping
from typing import Any, Final

import re2

Regex = Any
"""A compiled expression; the library is untyped."""

MEMORY: Final = 1024 * 1024
"""The memory limit of a compiled expression, in bytes."""

_SINGLE_BYTE: Final = re.compile(r"(?<!\\)(?:\\\\)*\\C")
_VARIABLE: Final = re.compile(r"\$(?:(\$)|\{(\w+)\}|(\w+))")
_NUMBER: Final = re.compile("0|[1-9][0-9]{0,8}")
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


def split_replacement(text: str, names: Mapping[str, int], groups: int) -> list[str | int]:
    """Return the texts and the group numbers of a replacement, as Go's `Regexp.Expand` reads it.

    ``$1`` and ``${name}`` stand for a group, ``$$`` for ``$``; a group that the expression does
    not have is empty. A number that begins with 0 is a name.

    Args:
        text: The replacement.
        names: The numbers of the named groups.
        groups: How many groups the expression has.
    """
    pieces: list[str | int] = []
    position = 0
    for found in _VARIABLE.finditer(text):
        pieces.append(text[position : found.start()])
        position = found.end()
        if found[1]:
            pieces.append("$")
            continue
        name = found[2] or found[3]
        number = int(name) if _NUMBER.fullmatch(name) else names.get(name)
        if number is not None and number <= groups:
            pieces.append(number)
    return [*pieces, text[position:]]
