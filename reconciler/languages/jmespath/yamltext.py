"""Decodes YAML into plain JSON values, from parser events and with a depth limit.

The library composes documents by recursion without a limit: a hundred thousand brackets, which
a substituted value may contain, would crash the process.
"""

import math
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Final

import yaml
from yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    Event,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceStartEvent,
)

from reconciler.languages.jmespath.values import is_bounded

_Parser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

MAX_VALUES: Final = 100_000
"""Values of one document; values behind aliases count at each use."""

_CONSTANTS: Final[dict[str, bool | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_WORDS: Final[dict[str, bool]] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "off", "Off", "OFF"), False),
}
_NUMERIC: Final = frozenset("0123456789+-.")
_DECIMAL: Final = re.compile(r"[-+]?(?:0|[1-9][0-9_]{0,400})")
_OTHER_BASE: Final = re.compile(r"([-+]?)0(?:x([0-9a-fA-F_]+)|b([01_]+)|o?([0-7_]+))")
_FLOAT: Final = re.compile(
    r"[-+]?(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?"
)
_TAG: Final = "tag:yaml.org,2002:"
_PLAIN_TAGS: Final = frozenset({None, "!", f"{_TAG}str", f"{_TAG}map", f"{_TAG}seq"})


class Unreadable(Exception):
    """The text is YAML, but cannot be represented as JSON values.

    Attributes:
        mark: The place.
        problem: The reason.
    """

    def __init__(self, event: Event, problem: str) -> None:
        super().__init__(problem)
        self.mark = event.start_mark
        self.problem = problem


class TooManyValues(ValueError):
    """The document has more values than the caller allows."""


def decode_yaml(text: str, *, depth: int, values: int = MAX_VALUES) -> Any:
    """Decode one document.

    As in YAML 1.1, `yes` and `on` are true; dates stay text, 0644 is octal, 1e3 is 1000. A value
    behind an alias is shared, but counts as deep and as large as it is when written out.

    Raises:
        TooManyValues: It has more than `values` values; no more than these are built.
        ValueError: It cannot be decoded or is nested deeper than `depth`; the message says where.
    """
    with _readable():
        document = _Document(depth=depth, values=values, words=True)
        _fill(document, yaml.parse(text, Loader=_Parser))
        return document.value


def decode_documents(text: str, *, depth: int, texts: Collection[str]) -> list[Any]:
    """Decode all documents as `decode_yaml` does, but `yes` is text; an empty one is None.

    Args:
        depth: Maximum levels of maps and lists in a document.
        texts: Top-level fields whose scalar value is kept as written: 010 is not 8.

    Raises:
        TooManyValues: They have more than `MAX_VALUES` values together.
        ValueError: One cannot be decoded, has a key twice or is nested deeper than `depth`; the
            message says where.
    """
    found: list[Any] = []
    values = MAX_VALUES
    with _readable():
        # Read lazily, up to the limits: the library's time grows with the square of the depth.
        events = iter(yaml.parse(text, Loader=_Parser))
        for event in events:
            if isinstance(event, DocumentStartEvent):
                document = _Document(depth=depth, values=values, texts=texts, unique=True)
                _fill(
                    document, takewhile(lambda one: not isinstance(one, DocumentEndEvent), events)
                )
                values -= document.count
                found.append(document.value)
    return found


@contextmanager
def _readable() -> Iterator[None]:
    """Convert errors of the library into a `ValueError` that says where the fault is."""
    try:
        yield
    except (yaml.MarkedYAMLError, Unreadable) as error:
        mark = error.mark if isinstance(error, Unreadable) else error.problem_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ValueError(f"is not YAML: {place}{error.problem}") from error
    except (yaml.YAMLError, UnicodeError) as error:
        problem = " ".join(str(error).split())
        raise ValueError(f"is not YAML: {problem}") from error


@dataclass(frozen=True, slots=True)
class _Node:
    """A complete value, with its number of values when written out and its depth."""

    value: Any
    count: int = 1
    height: int = 0


@dataclass(slots=True)
class _Frame:
    """A map or list that is being filled."""

    value: dict[str, Any] | list[Any]
    anchor: str | None = None
    key: str | None = None
    before: int = 0
    height: int = 1


@dataclass(slots=True)
class _Document:
    """The document so far; `count` is the number of its values.

    Attributes:
        texts: Its fields whose scalar value is kept as written.
        unique: A repeated key in a map is refused.
        words: `yes`, `no`, `on`, `off`, `y` and `n` are booleans.
    """

    depth: int
    values: int
    texts: Collection[str] = ()
    unique: bool = False
    words: bool = False
    root: list[Any] = field(default_factory=list)
    frames: list[_Frame] = field(default_factory=list)
    anchors: dict[str, _Node] = field(default_factory=dict)
    count: int = 0

    @property
    def value(self) -> Any:
        """The value of the document, None where it is empty."""
        return self.root[0] if self.root else None

    def put(self, event: Event, node: _Node) -> None:
        """Store a value in the innermost map or list; a key waits for its value."""
        frame = self.frames[-1] if self.frames else _Frame(self.root)
        if isinstance(frame.value, dict) and frame.key is None:
            frame.key = _key(event, node.value if self.words else None)
            if self.unique and frame.key in frame.value:
                raise Unreadable(event, f"the key {frame.key!r:.80} occurs twice")
            return
        self.count += node.count
        if self.count > self.values:
            raise TooManyValues(
                f"has more than {self.values} values, those that aliases repeat counted each time"
            )
        if len(self.frames) + node.height > self.depth:
            raise Unreadable(event, f"nested deeper than {self.depth} levels")
        frame.height = max(frame.height, node.height + 1)
        if isinstance(frame.value, list):
            frame.value.append(node.value)
        elif frame.key is not None:
            frame.value[frame.key] = node.value
            frame.key = None

    def scalar(self, event: ScalarEvent) -> Any:
        """Return the value of a scalar at its place in the document."""
        value = scalar_value(event, words=self.words)
        if value is None or len(self.frames) != 1 or self.frames[0].key not in self.texts:
            return value
        return event.value

    def open(self, event: NodeEvent, value: dict[str, Any] | list[Any]) -> None:
        before = self.count
        self.put(event, _Node(value, height=1))
        self.frames.append(_Frame(value, event.anchor, before=before))

    def close(self) -> None:
        """End the innermost map or list; aliases are valid only now, so none is endless."""
        frame = self.frames.pop()
        if self.frames:
            above = self.frames[-1]
            above.height = max(above.height, frame.height + 1)
        if frame.anchor:
            count = self.count - frame.before
            self.anchors[frame.anchor] = _Node(frame.value, count, frame.height)


def _fill(document: _Document, events: Iterable[Event]) -> None:
    for event in events:
        match event:
            case ScalarEvent():
                node = _Node(document.scalar(event))
                document.put(event, node)
                if event.anchor:
                    document.anchors[event.anchor] = node
            case SequenceStartEvent() | MappingStartEvent():
                refuse_tag(event)
                document.open(event, [] if isinstance(event, SequenceStartEvent) else {})
            case CollectionEndEvent():
                document.close()
            case AliasEvent():
                if event.anchor not in document.anchors:
                    raise Unreadable(event, f"nothing before has the anchor {event.anchor}")
                document.put(event, document.anchors[event.anchor])
            case DocumentStartEvent() if document.root:
                raise Unreadable(event, "a second document begins; only one is allowed")


def _key(event: Event, value: Any) -> str:
    if not isinstance(event, ScalarEvent):
        raise Unreadable(event, "a map, list or alias as a key; put {{ }} into quotes")
    if event.value == "<<" and event.implicit[0]:
        raise Unreadable(event, "merge keys (<<) are not supported; write the fields out")
    if isinstance(value, bool):
        return str(value).lower()
    return str(value if isinstance(value, int) else event.value)


def refuse_tag(event: Any) -> None:
    """Refuse a value with a tag that changes its type."""
    if event.tag not in _PLAIN_TAGS:
        raise Unreadable(event, f"the tag {event.tag} is not supported; use plain JSON types")


def scalar_value(event: Any, *, words: bool) -> Any:
    """Return the value of a scalar; with `words`, `yes` and `on` are true."""
    if not event.implicit[0]:
        refuse_tag(event)
        return event.value
    text: str = event.value
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if words and text in _WORDS:
        return _WORDS[text]
    return _number(text) if text[0] in _NUMERIC else text


def _number(text: str) -> int | float | str:
    number = _integer(text)
    if number is not None and is_bounded(number):
        return number
    return _float(text) if _FLOAT.fullmatch(text) else text


def _integer(text: str) -> int | None:
    if _DECIMAL.fullmatch(text):
        return int(text.replace("_", ""))
    found = _OTHER_BASE.fullmatch(text)
    if found is None:
        return None
    sign, hexadecimal, binary, octal = found.groups()
    digits, base = (hexadecimal, 16) if hexadecimal else (binary, 2) if binary else (octal, 8)
    digits = digits.replace("_", "")
    return int(sign + digits, base) if digits else None


def _float(text: str) -> float | str:
    """Return a number; as in Go, an integer beyond 64 bits becomes a float."""
    value = float(text.replace("_", ""))
    if not math.isfinite(value):
        return text
    return int(value) if value.is_integer() and is_bounded(int(value)) else value
