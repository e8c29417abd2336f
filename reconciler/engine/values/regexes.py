"""Regular expressions with the syntax and guarantees of RE2, which Go uses too."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import re2

Regex = Any
"""A compiled expression; the library is untyped."""

MEMORY: Final = 1024 * 1024
"""The memory limit of a compiled expression, in bytes."""

_ESCAPE: Final = re.compile(r"\\Q.*?(?:\\E|\Z)|\\.", re.DOTALL)
"""A quoted text, in which nothing is an escape, or an escape."""
_VARIABLE: Final = re.compile(r"\$(?:(\$)|\{(\w+)\}|(\w+))")
_NUMBER: Final = re.compile("0|[1-9][0-9]{0,8}")
_STEPS: Final = 8
"""Instructions of a compiled expression per step of the allowance."""
_SEARCH: Final = 128
"""Steps of the start of a search."""
_INSIDE: Final = range(0x80, 0xC0)
"""The bytes of UTF-8 that begin no character."""


def compile_regex(pattern: str) -> Regex:
    """Compile a regular expression.

    Raises:
        ValueError: The pattern is invalid; the message gives the reason.
    """
    if any(found[0] == r"\C" for found in _ESCAPE.finditer(pattern)):
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


@dataclass(frozen=True, slots=True)
class Match:
    """One match.

    Attributes:
        start: Index of its first character.
        end: Index of the character behind it.
        groups: The text of the whole match and of each group, None for one that took no part.
    """

    start: int
    end: int
    groups: tuple[str | None, ...]


def matches(regex: Regex, text: str, spend: Callable[[int], None]) -> Iterator[Match]:
    """Yield the matches that Go finds, without an empty one directly behind another.

    Args:
        spend: Called with the steps of each search, which may go to the end of the text.

    Raises:
        UnicodeError: The text is not well-formed.
    """
    raw = text.encode()
    spend(_steps(regex, len(text)))
    start = end = read = 0
    behind = -1
    for found in regex.finditer(raw):
        first, last = found.span()
        # Between two bytes, for which RE2 looks, \B holds within a character.
        inside = first < len(raw) and raw[first] in _INSIDE
        if inside or first == last == behind:
            spend(_SEARCH)
            continue
        behind = last
        start = end + len(raw[read:first].decode())
        end = start + len(raw[first:last].decode())
        read = last
        groups = (found.group(number) for number in range(regex.groups + 1))
        yield Match(start, end, tuple(None if part is None else part.decode() for part in groups))
        spend(_steps(regex, len(text) - end))


def is_found(regex: Regex, text: str, spend: Callable[[int], None]) -> bool:
    """Return whether an expression matches somewhere in a text; arguments as of `matches`."""
    if text.isascii():
        # The library alone is right then, and faster.
        spend(_steps(regex, len(text)))
        return regex.search(text) is not None
    return next(matches(regex, text, spend), None) is not None


def _steps(regex: Regex, length: int) -> int:
    """Return the steps of one search in a text of that length."""
    return int(_SEARCH + length * (1 + regex.programsize // _STEPS) // 4)


def split_replacement(text: str, names: Mapping[str, int], groups: int) -> list[str | int]:
    """Return the texts and the group numbers of a replacement, as Go's `Regexp.Expand` reads it.

    ``$1`` and ``${name}`` stand for a group, ``$$`` for ``$``; a group that the expression does
    not have is empty. A number that begins with 0 is a name.

    Args:
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
