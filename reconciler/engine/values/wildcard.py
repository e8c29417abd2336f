"""Wildcards: ``*`` matches any run of characters, ``?`` exactly one; nothing else is special.

Text from an object is data. `escape` makes its ``*`` and ``?`` literal by replacing them with lone
surrogates. JSON and YAML from an API server cannot contain those, so no user can write them.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import eq
from typing import Self

Predicate = Callable[[str], bool]

_ESCAPED = {ord("*"): "\udc2a", ord("?"): "\udc3f"}
_LITERAL = {ord(escaped): chr(plain) for plain, escaped in _ESCAPED.items()}


def has_wildcard(text: str) -> bool:
    """Return whether the text contains an unescaped ``*`` or ``?``."""
    return "*" in text or "?" in text


def escape(text: str) -> str:
    """Return the text escaped, so that a pattern that contains it matches it literally."""
    return text.translate(_ESCAPED) if has_wildcard(text) else text


def literal(text: str) -> str:
    """Return the text without escapes; other text is returned unchanged."""
    return text if text.isascii() else text.translate(_LITERAL)


def matches(pattern: str, text: str) -> bool:
    """Return whether a pattern matches the whole text, case-sensitively; both may be escaped."""
    if pattern == "*":
        return True
    if has_wildcard(pattern):
        return compile_wildcard(pattern)(literal(text))
    return literal(pattern) == literal(text)


def compile_wildcard(pattern: str) -> Predicate:
    """Compile a pattern to a predicate whose time depends only on the lengths of both texts."""
    if not has_wildcard(pattern):
        wanted = literal(pattern)
        return partial(eq, wanted)
    head, *rest = pattern.split("*")
    if not rest:
        return _Segment.of(head).is_whole
    *middle, tail = rest
    if "?" not in pattern and not any(middle):
        return _affixes(literal(head), literal(tail))
    return _segments(
        _Segment.of(head), [_Segment.of(part) for part in middle if part], _Segment.of(tail)
    )


def compile_any(patterns: Iterable[str]) -> Predicate:
    """Compile patterns to one predicate that holds when any of them matches."""
    exact: set[str] = set()
    wild: list[Predicate] = []
    for pattern in patterns:
        if has_wildcard(pattern):
            wild.append(compile_wildcard(pattern))
        else:
            exact.add(literal(pattern))
    names = frozenset(exact)
    if not wild:
        return names.__contains__
    if len(wild) == 1 and not names:
        return wild[0]
    predicates = tuple(wild)
    return lambda text: text in names or any(holds(text) for holds in predicates)


def _affixes(head: str, tail: str) -> Predicate:
    if not tail:
        if not head:
            return lambda _text: True
        return lambda text: text.startswith(head)
    shortest = len(head) + len(tail)
    return lambda text: len(text) >= shortest and text.startswith(head) and text.endswith(tail)


def _segments(head: "_Segment", middle: "Sequence[_Segment]", tail: "_Segment") -> Predicate:
    shortest = head.length + tail.length + sum(item.length for item in middle)

    def holds(text: str) -> bool:
        end = len(text) - tail.length
        if len(text) < shortest or not head.fits(text, 0) or not tail.fits(text, end):
            return False
        position = head.length
        # The first place where a segment fits is always right, so there is no backtracking.
        for item in middle:
            found = item.find(text, position, end)
            if found < 0:
                return False
            position = found + item.length
        return True

    return holds


@dataclass(frozen=True, slots=True)
class _Segment:
    """The part of a pattern between two ``*``: texts at fixed offsets, with ``?`` around them."""

    length: int
    pieces: tuple[tuple[int, str], ...]

    @classmethod
    def of(cls, part: str) -> Self:
        pieces: list[tuple[int, str]] = []
        position = 0
        for piece in part.split("?"):
            if piece:
                pieces.append((position, literal(piece)))
            position += len(piece) + 1
        return cls(position - 1, tuple(pieces))

    def is_whole(self, text: str) -> bool:
        return len(text) == self.length and self.fits(text, 0)

    def fits(self, text: str, at: int) -> bool:
        return all(text.startswith(piece, at + offset) for offset, piece in self.pieces)

    def find(self, text: str, start: int, end: int) -> int:
        """Return the first position from ``start`` where it fits before ``end``, -1 for none."""
        if start + self.length > end:
            return -1
        if not self.pieces:
            return start
        if len(self.pieces) == 1:
            ((offset, piece),) = self.pieces
            found = text.find(piece, start + offset, end - (self.length - offset - len(piece)))
            return found - offset if found >= 0 else -1
        return self._scan(text, start, end)

    def _scan(self, text: str, start: int, end: int) -> int:
        # Each bit is a prefix of the segment that matches here (Shift-And): with a `?`, a search
        # that backtracks would try each start position anew.
        anywhere, letters = self._masks()
        last = 1 << (self.length - 1)
        begun = 0
        for position in range(start, end):
            begun = ((begun << 1) | 1) & letters.get(text[position], anywhere)
            if begun & last:
                return position + 1 - self.length
        return -1

    def _masks(self) -> tuple[int, dict[str, int]]:
        anywhere = (1 << self.length) - 1
        for offset, piece in self.pieces:
            anywhere &= ~(((1 << len(piece)) - 1) << offset)
        letters: dict[str, int] = {}
        for offset, piece in self.pieces:
            for index, letter in enumerate(piece):
                letters[letter] = letters.get(letter, anywhere) | 1 << (offset + index)
        return anywhere, letters
