"""Decoding of the text of a JSON patch with variables, once, to a document with variables.

A placeholder word replaces each variable while the text is decoded. So the value of a variable at
evaluation stays a value, and cannot become an operation, a field or a comment of the patch.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson

from reconciler.dialects.kyverno.convergence import appends
from reconciler.dialects.kyverno.patchtext import parse_operations
from reconciler.engine.patch import Operation, compile_operations
from reconciler.engine.patch.paths import MAX_DEPTH
from reconciler.errors import ErrorList, InvalidPolicy
from reconciler.languages.jmespath import braces
from reconciler.languages.jmespath.limits import DEFAULT_LIMITS
from reconciler.languages.jmespath.values import walk
from reconciler.languages.jmespath.yamltext import TooManyValues, decode_yaml

Path = tuple[str | int, ...]
Positions = tuple[int, ...]
"""The way to a value: positions in lists, and of entries in maps, whose keys may be variables."""

_ESCAPED = re.compile(r"\\\{\{")
_QUOTES = ("'", '"')
_BLOCK = re.compile(r"[|>][-+0-9]*")
_POSITION = "elementIndex"
_MAKES_JSON = re.compile(r"\bto_string\s*\(")
_NO_OPERATION = {"op": "remove", "path": ""}
PATHS = ("path", "from")
"""The fields of an operation that are paths."""
NO_PATH_CURE = "use patchStrategicMerge, whose keys may have variables, or foreach"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """A decoded patch before variable substitution.

    Attributes:
        document: The list of operations; strings hold the variables as they were written.
        quoted: Positions of strings that are one variable in quotes or in a block of text, whose
            value becomes text.
        plain: Positions of strings that are one variable without quotes.
        written: Those of them whose variable turns an object into JSON by to_string().
        fixed: The operations of known shape, with a word for each variable; dummies for others.
        shaped: Whether all operations have a known shape, and no path has a variable.
        appends: Whether operations may add to a list by position.
    """

    document: list[Any]
    quoted: frozenset[Positions]
    plain: frozenset[Positions]
    written: frozenset[Positions]
    fixed: tuple[Operation, ...]
    shaped: bool
    appends: bool


@dataclass(slots=True)
class _Words:
    """The placeholder words, and the variables that they replace."""

    prefix: str
    sources: list[str] = field(default_factory=list)
    in_quotes: list[bool] = field(default_factory=list)
    quoted: set[Positions] = field(default_factory=set)
    plain: set[Positions] = field(default_factory=set)
    written: set[Positions] = field(default_factory=set)

    @property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(f"{self.prefix}_([0-9]+)_")

    def add(self, source: str, *, in_quotes: bool) -> str:
        self.sources.append(source)
        self.in_quotes.append(in_quotes)
        return f"{self.prefix}_{len(self.sources) - 1}_"

    def begins(self, path: str) -> bool:
        """Return whether a path begins with a variable."""
        return self.pattern.match(path) is not None

    def restore(self, value: Any, path: Positions) -> Any:
        """Return the value with the words replaced by their variables."""
        if isinstance(value, dict):
            return {
                self.restored(key): self.restore(item, (*path, index))
                for index, (key, item) in enumerate(value.items())
            }
        if isinstance(value, list):
            return [self.restore(item, (*path, index)) for index, item in enumerate(value)]
        if not isinstance(value, str):
            return value
        if whole := self.pattern.fullmatch(value):
            index = int(whole[1])
            (self.quoted if self.in_quotes[index] else self.plain).add(path)
            if not self.in_quotes[index] and _MAKES_JSON.search(self.sources[index]):
                self.written.add(path)
        return self.restored(value)

    def is_indexed(self, operation: Operation) -> bool:
        """Return whether an operation adds at the element index of a foreach."""
        if operation.name != "add" or not operation.path:
            return False
        whole = self.pattern.fullmatch(str(operation.path[-1]))
        return whole is not None and _POSITION in self.sources[int(whole[1])]

    def restored(self, text: str) -> str:
        return self.pattern.sub(lambda found: self.sources[int(found[1])], text)


def decode(text: str, *, location: str, rule: str = "") -> Decoded:
    """Decode the text of a patch.

    Args:
        text: In YAML or JSON.
        rule: The name of its rule; empty inside of a foreach, where paths may have variables.

    Raises:
        InvalidPolicy: The text cannot be parsed, or a part without variables is invalid.
    """
    words = _Words(prefix=unused_word(text))
    drawn = parse_operations(_with_words(text, words, location), location=location)
    if rule:
        _check_paths(drawn, words, location, rule)
    shapes = [item if _is_shaped(item, words.pattern) else _NO_OPERATION for item in drawn]
    try:
        fixed = compile_operations(shapes, location=location)
    except InvalidPolicy as error:
        raise _restored(error, words) from error
    known = all(shape is item for shape, item in zip(shapes, drawn, strict=True))
    return Decoded(
        document=words.restore(drawn, ()),
        quoted=frozenset(words.quoted),
        plain=frozenset(words.plain),
        written=frozenset(words.written),
        fixed=fixed,
        shaped=known
        and not any(words.pattern.search(str(step)) for item in fixed for step in item.path),
        appends=not known or appends(fixed) or any(map(words.is_indexed, fixed)),
    )


def _check_paths(drawn: list[Any], words: _Words, location: str, rule: str) -> None:
    with ErrorList() as errors:
        for index, item in enumerate(drawn):
            for name in PATHS if isinstance(item, dict) else ():
                if words.begins(str(item.get(name, ""))):
                    place = f"{location}[{index}].{name}"
                    errors.add(InvalidPolicy(place, f"{variable_in_path(rule)}; {NO_PATH_CURE}"))


def variable_in_path(rule: str) -> str:
    """Return the error for a variable in a path, outside of a foreach."""
    return f'rule "{rule}" should not have variables in patchesJSON6902 path section'


def _restored(error: InvalidPolicy, words: _Words) -> InvalidPolicy:
    first, *others = (
        InvalidPolicy(one.location, words.restored(one.reason)) for one in (error, *error.others)
    )
    return InvalidPolicy(first.location, first.reason, others=others)


def count_values(text: str, *, most: int) -> int:
    """Return the number of values in a patch; YAML aliases count each time they are used.

    A text that cannot be parsed counts as zero, because the compiler reports its error.

    Raises:
        TooManyValues: There are more than `most`; no more than these were built.
    """
    try:
        drawn = _with_words(text, _Words(prefix=unused_word(text)), "")
        if drawn.startswith("["):
            return sum(1 for _ in walk(orjson.loads(drawn)))
        return sum(1 for _ in walk(decode_yaml(drawn, depth=MAX_DEPTH, values=most)))
    except TooManyValues:
        raise
    except (InvalidPolicy, ValueError):
        return 0


def unused_word(text: str) -> str:
    """Return a word that a text does not contain, to stand for its variables."""
    word = "variable"
    while word in text:
        word += "x"
    return word


def _with_words(text: str, words: _Words, location: str) -> str:
    is_json = text.startswith("[")
    pieces: list[str] = []
    position, open_quote = 0, False
    for start, end in _spans(text, location):
        piece = text[position:start]
        open_quote = _is_open(piece, open_quote=open_quote)
        around = text[start - 1 : start], text[end : end + 1]
        quotes = around[0] in _QUOTES and around[0] == around[1]
        in_quotes = open_quote if is_json else quotes or _begins_block(piece)
        word = words.add(text[start:end], in_quotes=in_quotes)
        pieces += [piece, f'"{word}"' if is_json and not in_quotes else word]
        position = end
    return "".join([*pieces, text[position:]])


def _begins_block(piece: str) -> bool:
    """Return whether what follows a piece of text is the first line of a YAML block of text."""
    head, newline, indent = piece.rpartition("\n")
    if not newline or indent.strip():
        return False
    header = head.rpartition("\n")[2].partition(" #")[0].split()
    return bool(header) and _BLOCK.fullmatch(header[-1]) is not None


def _spans(text: str, location: str) -> Iterator[tuple[int, int]]:
    found = braces.find(text, passes=DEFAULT_LIMITS.passes, location=location)
    spans = [(one.start, one.end) for one in found]
    escapes = [match.span() for match in _ESCAPED.finditer(text)]
    outside = [one for one in escapes if not any(a <= one[0] < b for a, b in spans)]
    yield from sorted([*spans, *outside])


def _is_open(piece: str, *, open_quote: bool) -> bool:
    """Return whether a JSON string is open after a piece of text."""
    escaped = False
    for char in piece:
        if char == '"' and not escaped:
            open_quote = not open_quote
        escaped = char == "\\" and not escaped
    return open_quote


def _is_shaped(item: Any, words: re.Pattern[str]) -> bool:
    if isinstance(item, str):
        return words.fullmatch(item) is None
    if not isinstance(item, dict):
        return True
    named = [*item, str(item.get("op", ""))]
    return not any(words.search(text) for text in named)
