"""Upper and lower case, and the case styles of identifiers."""

from collections.abc import Callable
from typing import Final
from unicodedata import category

from reconciler.engine.values.gotext import lower, title, upper
from reconciler.languages.gotemplate.functions.runes import is_space, runes
from reconciler.languages.gotemplate.limits import Run
from reconciler.languages.gotemplate.signature import (
    STRING,
    Family,
    Function,
    family,
    function,
    plain,
)

_IDEOGRAPHS: Final = (
    (0x4E00, 0x9FCC), (0x3400, 0x4DB5), (0x20000, 0x2A6D6), (0x2A700, 0x2B734), (0x2B740, 0x2B81D),
)  # fmt: skip
_PACE: Final = 16
"""Splitting a character into words costs as much as copying this many characters."""
_WORDS: Final = frozenset({"alphabet", "number"})
_BREAKS: Final = frozenset({"connector", "punctuation"})


def _first_letters(
    text: str, change: Callable[[str], str], separates: Callable[[str], bool]
) -> str:
    """Change the letters that follow a separator."""
    letters = runes(text)
    pairs = zip(f" {letters}", letters, strict=False)
    return "".join(change(each) if separates(previous) else each for previous, each in pairs)


def _separates(character: str) -> bool:
    if character.isascii():
        return not (character.isalnum() or character == "_")
    return not (character.isalpha() or character.isdecimal()) and is_space(character)


def _swapcase(text: str) -> str:
    pieces: list[str] = []
    gap = True
    for each in runes(text):
        kind = category(each)
        if kind in {"Lu", "Lt"}:
            pieces.append(lower(each))
            gap = False
        elif kind == "Ll":
            pieces.append(title(each) if gap else upper(each))
            gap = False
        else:
            pieces.append(each)
            gap = is_space(each)
    return "".join(pieces)


def _is_connector(character: str) -> bool:
    return character in "-_" or is_space(character)


def _camel(text: str) -> str:
    """Change to camel case; leading connectors stay, and of several in a row all but one."""
    rest = runes(text)
    start = next((at for at, each in enumerate(rest) if not _is_connector(each)), 0)
    if all(map(_is_connector, rest)):
        return rest + rest[-1:]  # as in the original
    pieces = [rest[:start]]
    current = upper(rest[start])
    for each in rest[start + 1 :]:
        previous, current = current, each
        if _is_connector(current) and _is_connector(previous):
            pieces.append(previous)
        elif _is_connector(previous):
            current = upper(current)
        else:
            current = lower(current)
            pieces.append(previous)
    return "".join([*pieces, current])


def _is_alphabet(character: str) -> bool:
    code = ord(character)
    return character.isalpha() and not any(low <= code <= high for low, high in _IDEOGRAPHS)


def _kind(character: str) -> str:
    if _is_connector(character):
        return "connector"
    group = category(character)
    if group.startswith("P"):
        return "punctuation"
    if group == "Lu":
        return "upper"
    if _is_alphabet(character):
        return "alphabet"
    return "number" if group.startswith("N") else "other"


def _words(text: str) -> list[tuple[str, str]]:
    """Split a text into words, each with its kind."""
    words: list[tuple[str, str]] = []
    position = 0
    while position < len(text):
        kind = _kind(text[position])
        end = _word_end(text, position, kind)
        words.append((kind, text[position:end]))
        position = end
    return words


def _word_end(text: str, start: int, kind: str) -> int:
    if kind == "punctuation":
        return _while(text, start + 1, lambda each: category(each).startswith("P"))
    if kind != "upper":
        return _while(text, start + 1, lambda each: _kind(each) == kind)
    following = text[start + 1 : start + 2]
    if not following:
        return start + 1
    if category(following) == "Lu":
        end = _while(text, start + 1, lambda each: category(each) == "Lu")
        # The last capital begins the next word if lower-case letters follow it.
        return end - 1 if end < len(text) and _is_alphabet(text[end]) else end
    return _while(text, start + 1, lambda each: _kind(each) == "alphabet")


def _while(text: str, position: int, holds: Callable[[str], bool]) -> int:
    while position < len(text) and holds(text[position]):
        position += 1
    return position


class _Joined:
    """Joins words in lower case, with a connector between them."""

    def __init__(self, words: list[tuple[str, str]], connector: str) -> None:
        self._words = words
        self._connector = connector
        self._at = 0
        self._pieces: list[str] = []

    def text(self) -> str:
        while self._at < len(self._words) - 1:
            kind, word = self._words[self._at]
            self._at += 1
            if kind != "connector":
                self._write(word)
            self._between(kind, word)
        for kind, word in self._words[self._at :]:
            self._write(self._connector * len(word) if kind == "connector" else word)
        return "".join(self._pieces)

    def _next(self) -> str:
        """Return the kind of the next word, empty at the end."""
        return self._words[self._at][0] if self._at < len(self._words) else ""

    def _write(self, word: str) -> None:
        # Capitals only; a digraph in title case stays.
        self._pieces += (lower(each) if category(each) == "Lu" else each for each in word)

    def _take_word(self) -> None:
        while self._next() in _WORDS:
            self._write(self._words[self._at][1])
            self._at += 1

    def _between(self, kind: str, word: str) -> None:
        if kind == "connector":
            self._pieces.append(self._connector * len(word))
        elif kind == "number":
            self._take_word()
            if self._next() not in {"", "punctuation"}:
                self._connect()
        elif kind != "punctuation":
            self._after_word()

    def _after_word(self) -> None:
        if self._next() != "number":
            if self._next() not in _BREAKS:
                self._connect()
            return
        if self._at == len(self._words) - 1:
            return
        number = self._words[self._at][1]
        self._at += 1
        if self._next() != "alphabet":
            self._write(number)
            if self._next() not in _BREAKS:
                self._connect()
            return
        self._connect()
        self._write(number)
        self._take_word()
        if self._next() not in {"", *_BREAKS}:
            self._connect()

    def _connect(self) -> None:
        self._pieces.append(self._connector)


def _joined(connector: str) -> Function:
    def joined(run: Run, text: str) -> str:
        run.spend(len(text) * _PACE)
        return _Joined(_words(runes(text)), connector).text()

    return function(joined, STRING)


FUNCTIONS: Family = family(
    {
        "upper": plain(lambda text: upper(runes(text)), STRING),
        "lower": plain(lambda text: lower(runes(text)), STRING),
        "title": plain(lambda text: _first_letters(text, title, _separates), STRING),
        "untitle": plain(lambda text: _first_letters(text, lower, is_space), STRING),
        "swapcase": plain(_swapcase, STRING),
        "snakecase": _joined("_"),
        "kebabcase": _joined("-"),
        "camelcase": plain(_camel, STRING),
    }
)
