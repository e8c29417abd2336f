r"""Finds the variables of a text: ``{{ expr }}``, ``{{- expr }}``, ``\{{`` for plain braces.

A variable contains no braces except single, flat ``{...}`` groups. So of nested variables the
innermost is found first, and then counts as ordinary text of the outer one.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from reconciler.errors import InvalidPolicy

# Possessive: backtracking never helps, and would take memory for each character.
_TOKEN = re.compile(r"(?<!\\)\{\{(?:\{[^{}]*+\}|[^{}]++)*+\}\}")
_OPENED = re.compile(r"(?<!\\)\{\{")
_PLAIN = "_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A variable in a text.

    Attributes:
        start: Index of its opening braces in the text.
        end: Index after its closing braces.
        body: Its expression as written, trimmed.
        offset: Index of `body` in the text.
        shallow: Whether it is written ``{{- ... }}``.
        inner: The variables inside it, in order.
    """

    start: int
    end: int
    body: str
    offset: int
    shallow: bool
    inner: tuple["Variable", ...]

    def walk(self) -> Iterator["Variable"]:
        """Yield the variables inside, innermost first, then this one."""
        for variable in self.inner:
            yield from variable.walk()
        yield self


def find(text: str, *, passes: int, location: str = "") -> list[Variable]:
    """Return the outermost variables of `text`, in order.

    Raises:
        InvalidPolicy: They are nested deeper than `passes`.
    """
    found: list[Variable] = []
    if "{{" not in text:
        return found
    masked = text
    for _ in range(passes):
        matches = [match.span() for match in _TOKEN.finditer(masked)]
        if not matches:
            return found
        found = list(_around(text, matches, found))
        masked = _masked(masked, matches)
    raise InvalidPolicy(location, f"variables are nested deeper than {passes} levels")


def _around(
    text: str, spans: Iterable[tuple[int, int]], known: Sequence[Variable]
) -> Iterator[Variable]:
    """Yield the variables of these spans, with known ones inside, and the known ones outside."""
    position = 0
    for start, end in spans:
        first = position
        while position < len(known) and known[position].start < end:
            position += 1
        inside = known[first:position]
        outside = sum(one.start < start for one in inside)
        yield from inside[:outside]
        yield _variable(text, start, end, tuple(inside[outside:]))
    yield from known[position:]


def _masked(text: str, spans: Iterable[tuple[int, int]]) -> str:
    pieces: list[str] = []
    position = 0
    for start, end in spans:
        pieces += [text[position:start], _PLAIN * (end - start)]
        position = end
    return "".join([*pieces, text[position:]])


def unescape(text: str) -> str:
    r"""Turn ``\{{`` into ``{{``."""
    return text.replace("\\{{", "{{")


def contains(text: str) -> bool:
    """Return whether `text` contains a variable."""
    return _TOKEN.search(text) is not None


def unclosed(text: str, *, passes: int) -> bool:
    """Return whether braces open a variable that is never closed, and so are plain text.

    Variables that are nested deeper than `passes` are not reported.
    """
    try:
        found = find(text, passes=passes)
    except InvalidPolicy:
        return False
    left = _masked(text, [(one.start, one.end) for one in found])
    return _OPENED.search(left) is not None


def replace(text: str, replacement: Callable[[str], str]) -> str:
    """Replace each outermost variable, braces included; escaped braces are kept."""
    pieces: list[str] = []
    position = 0
    for variable in find(text, passes=len(text)):
        pieces += [
            text[position : variable.start],
            replacement(text[variable.start : variable.end]),
        ]
        position = variable.end
    return "".join([*pieces, text[position:]])


def _variable(text: str, start: int, end: int, inner: tuple[Variable, ...]) -> Variable:
    raw = text[start + 2 : end - 2]
    body = raw.lstrip()
    shallow = body.startswith("-")
    if shallow:
        body = body[1:].lstrip()
    return Variable(
        start=start,
        end=end,
        body=body.rstrip(),
        offset=end - 2 - len(body),
        shallow=shallow,
        inner=inner,
    )
