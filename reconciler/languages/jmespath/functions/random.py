"""``random(pattern)``: a random text that a simple regular expression matches.

The pattern may use literals, classes, groups, alternatives and repetitions. Characters of ``.`` or
of a negated class are printable ASCII; an open repetition exceeds its minimum by at most `_OPEN`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from reconciler.languages.jmespath.functions.signature import TEXT, Function, Refused, extension
from reconciler.languages.jmespath.limits import Run

_OPEN = 10
_MOST = 1000  # repetitions that a pattern may request, as in RE2
_DEEPEST = 50
_LONGEST = 1000
_PACE = 32  # drawing a character takes as long as copying this many
_DIGITS = "0123456789"
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_WORD = f"{_DIGITS}{_LETTERS.upper()}_{_LETTERS}"
_SPACE = "\t\n\f\r "
_PRINTABLE = "".join(map(chr, range(0x20, 0x7F)))
_CLASSES = {"d": _DIGITS, "w": _WORD, "s": _SPACE}
_CONTROLS = {"t": "\t", "n": "\n", "f": "\f", "r": "\r"}
_REPETITIONS = {"*": (0, _OPEN), "+": (1, 1 + _OPEN), "?": (0, 1)}


@dataclass(frozen=True, slots=True)
class _Part:
    """A set of characters or a group of alternatives, and how often it is repeated."""

    content: "str | _Alternatives"
    least: int
    most: int


_Alternatives = tuple[tuple[_Part, ...], ...]


def _random(run: Run, pattern: str) -> str:
    if not pattern:
        raise Refused("no pattern provided")
    if len(pattern) > _LONGEST:
        raise Refused(f"the pattern is longer than {_LONGEST} characters")
    randbelow = run.environment.randbelow
    if randbelow is None:
        raise Refused("random numbers are not available here")
    run.read(len(pattern) * _PACE)
    tree = _Pattern(pattern).whole()
    pieces: list[str] = []
    _draw(tree, pieces, randbelow, run)
    return "".join(pieces)


def _draw(
    alternatives: _Alternatives, pieces: list[str], randbelow: Callable[[int], int], run: Run
) -> None:
    for part in alternatives[randbelow(len(alternatives))]:
        times = part.least + randbelow(part.most - part.least + 1)
        run.read((1 + times) * _PACE)
        for _ in range(times):
            if isinstance(part.content, str):
                pieces.append(part.content[randbelow(len(part.content))])
            else:
                _draw(part.content, pieces, randbelow, run)


@dataclass(slots=True)
class _Pattern:
    """Parses a pattern from left to right."""

    text: str
    position: int = 0
    depth: int = 0

    def whole(self) -> _Alternatives:
        tree = self._alternatives()
        if self.position < len(self.text):
            raise self._wrong("a closing parenthesis without an opening one")
        return tree

    def _alternatives(self) -> _Alternatives:
        found = [self._sequence()]
        while self._take("|"):
            found.append(self._sequence())
        return tuple(found)

    def _sequence(self) -> tuple[_Part, ...]:
        parts: list[_Part] = []
        while self.position < len(self.text) and self._next() not in "|)":
            if self._next() in "^$":
                self.position += 1
                continue
            content = self._content()
            least, most = self._repetition()
            parts.append(_Part(content, least, most))
        return tuple(parts)

    def _content(self) -> "str | _Alternatives":
        if self._take("("):
            return self._group()
        if self._take("["):
            return self._set()
        if self._take("."):
            return _PRINTABLE
        if self._take("\\"):
            return self._escaped()
        if self._next() in "*+?{":
            raise self._wrong("a repetition of nothing")
        return self._character()

    def _group(self) -> _Alternatives:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise self._wrong(f"groups nested deeper than {_DEEPEST} levels")
        if not self._take("?:") and self._take("?"):
            self._name()
        inner = self._alternatives()
        if not self._take(")"):
            raise self._wrong("a group that is not closed")
        self.depth -= 1
        return inner

    def _name(self) -> None:
        self._take("P")
        name, closed, _ = self.text[self.position :].partition(">")
        if not closed or not name.startswith("<") or not name[1:].isidentifier():
            raise self._wrong("a group with flags")
        self.position += len(name) + 1

    def _set(self) -> str:
        negated = self._take("^")
        members: set[str] = set()
        first = True
        while first or not self._take("]"):
            members.update(self._range())
            first = False
        chosen = set(_PRINTABLE) - members if negated else members
        if not chosen:
            raise self._wrong("a class without characters")
        return "".join(sorted(chosen))

    def _range(self) -> str:
        start = self._member()
        if not (
            len(start) == 1
            and self.text.startswith("-", self.position)
            and not self.text.startswith("-]", self.position)
        ):
            return start
        self.position += 1
        end = self._member()
        if len(end) != 1 or end < start or ord(end) - ord(start) > _MOST:
            raise self._wrong("a range that is none")
        return "".join(map(chr, range(ord(start), ord(end) + 1)))

    def _member(self) -> str:
        if self.text.startswith("[:", self.position):
            raise self._wrong("a named class")
        return self._escaped() if self._take("\\") else self._character()

    def _escaped(self) -> str:
        character = self._character()
        kind = character.lower()
        if kind in _CLASSES:
            chosen = _CLASSES[kind]
            if character == kind:
                return chosen
            return "".join(one for one in _PRINTABLE if one not in chosen)
        if character in _CONTROLS:
            return _CONTROLS[character]
        if character.isalnum():
            raise self._wrong(f"the escape \\{character}")
        return character

    def _repetition(self) -> tuple[int, int]:
        least, most = 1, 1
        if self._next() in _REPETITIONS:
            least, most = _REPETITIONS[self._character()]
        elif self._take("{"):
            inside, closed, _ = self.text[self.position :].partition("}")
            low, comma, high = inside.partition(",")
            if not closed or not _is_count(low) or (high and not _is_count(high)):
                raise self._wrong("a repetition that is none")
            self.position += len(inside) + 1
            least = int(low)
            most = int(high) if high else least + (_OPEN if comma else 0)
            if not least <= most <= _MOST + _OPEN:
                raise self._wrong(f"a repetition beyond {_MOST}")
        self._take("?")  # a lazy repetition makes no difference here
        return least, most

    def _character(self) -> str:
        if self.position >= len(self.text):
            raise self._wrong("an end too early")
        self.position += 1
        return self.text[self.position - 1]

    def _next(self) -> str:
        return self.text[self.position : self.position + 1]

    def _take(self, token: str) -> bool:
        found = self.text.startswith(token, self.position)
        if found:
            self.position += len(token)
        return found

    def _wrong(self, what: str) -> Refused:
        return Refused(f"the pattern has {what} at column {self.position + 1}")


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 4  # noqa: PLR2004 - up to 1000


FUNCTIONS: Mapping[str, Function] = {"random": extension(_random, TEXT, pure=False)}
