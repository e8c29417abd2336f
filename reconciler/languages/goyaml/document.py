"""Builds a document from the events of the parser.

The library would compose it by recursion, and a hundred thousand brackets, which an object may
contain, would crash the process.
"""

import math
import re
from dataclasses import dataclass, field
from typing import Any, Final

from yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    CollectionStartEvent,
    DocumentStartEvent,
    Event,
    MappingStartEvent,
    ScalarEvent,
    SequenceStartEvent,
)

from reconciler.engine.values import gojson
from reconciler.engine.values.gonumbers import INT64_MAX
from reconciler.languages.goyaml.faults import YAMLError, refusal
from reconciler.languages.goyaml.scalars import TAG, float_key, scalar

_SOLIDUS: Final = re.compile(r"(?<!\\)(?:\\\\)*\\/")
_MAX_DEPTH: Final = 200
"""Levels of maps and lists."""
_MAX_VALUES: Final = 100_000
"""Values of one document; values behind aliases count at each use."""


@dataclass(frozen=True, slots=True)
class _Node:
    """A complete value.

    Attributes:
        count: Number of values in it when written out, itself included.
        height: Number of nesting levels in it.
        aliased: It comes from an alias.
    """

    value: Any
    count: int = 1
    height: int = 0
    aliased: bool = False


@dataclass(frozen=True, slots=True)
class _Endless:
    """Stands for a number that JSON cannot hold, until an equal key replaces it."""

    refusal: YAMLError


def refuse_endless(value: Any) -> None:
    """Refuse a value that contains an infinite number or NaN."""
    if isinstance(value, _Endless):
        raise value.refusal
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            refuse_endless(part)


@dataclass(slots=True)
class _Frame:
    """A map or list that is being filled.

    Attributes:
        before: Number of values in the document before this one.
        key: Key of the next value, None where a key comes next.
        merges: The next value is merged.
        flows: It is written in brackets.
    """

    value: dict[str, Any] | list[Any]
    anchor: str | None
    before: int
    key: str | None = None
    merges: bool = False
    height: int = 1
    flows: bool = False


@dataclass(slots=True)
class Document:
    """The document so far; an anchor without a node belongs to an incomplete value.

    Attributes:
        text: The whole text, where it may contain the escape that only the parser accepts.
        root: Its value as the only item, once it is complete.
        is_endless: It contains an infinite number or NaN.
    """

    text: str
    root: list[Any] = field(default_factory=list)
    frames: list[_Frame] = field(default_factory=list)
    anchors: dict[str, _Node | None] = field(default_factory=dict)
    count: int = 0
    is_endless: bool = False

    def take(self, event: Event) -> None:
        """Process an event of the parser."""
        match event:
            case DocumentStartEvent() if event.version not in {None, (1, 1)}:
                raise refusal(event, "only YAML 1.1 is read")
            case ScalarEvent():
                if not event.style and "?" in event.value and self._is_in_brackets:
                    raise refusal(event, "a string with ? in brackets needs quotes")
                if self.text and event.style == '"':
                    self._refuse_solidus(event)
                node = _Node(scalar(event))
                if event.anchor:
                    self.anchors[event.anchor] = node
                self._put(event, node)
            case SequenceStartEvent():
                self._open(event, [])
            case MappingStartEvent():
                self._open(event, {})
            case CollectionEndEvent():
                self._close(event)
            case AliasEvent():
                self._put(event, self._named(event))
            case _:
                pass

    @property
    def _is_in_brackets(self) -> bool:
        return bool(self.frames) and self.frames[-1].flows

    def _put(self, event: Event, node: _Node) -> None:
        self.count += node.count
        if self.count > _MAX_VALUES:
            problem = f"it has more than {_MAX_VALUES} values, including those of aliases"
            raise refusal(event, problem)
        if len(self.frames) + node.height > _MAX_DEPTH:
            raise refusal(event, f"it is nested deeper than {_MAX_DEPTH} levels")
        if not self.frames:
            self.root.append(self._value(event, node.value))
            return
        frame = self.frames[-1]
        frame.height = max(frame.height, node.height + 1)
        if isinstance(frame.value, list):
            frame.value.append(self._value(event, node.value))
        else:
            self._put_into(frame, frame.value, event, node)

    def _put_into(self, frame: _Frame, into: dict[str, Any], event: Event, node: _Node) -> None:
        """Store a node as the next key or value of a map."""
        if frame.merges:
            _merge(event, into, node)
            frame.merges = False
        elif frame.key is not None:
            into[frame.key] = self._value(event, node.value)
            frame.key = None
        elif _is_merge(event):
            frame.merges = True
        else:
            frame.key = _key(event, node.value)

    def _value(self, event: Event, value: Any) -> Any:
        """Return the JSON form of a value: JSON has one type of numbers, all of them finite."""
        if not isinstance(value, float):
            return value
        if not math.isfinite(value):
            self.is_endless = True
            problem = "JSON has no infinity and no NaN"
            return _Endless(refusal(event, problem))
        return gojson.number_of(value)

    def _refuse_solidus(self, event: ScalarEvent) -> None:
        start, end = event.start_mark, event.end_mark
        quoted = self.text[start.index : end.index] if start and end else ""
        if _SOLIDUS.search(quoted):
            raise refusal(event, "an unknown escape character; a / needs no backslash")

    def _open(self, event: CollectionStartEvent, value: dict[str, Any] | list[Any]) -> None:
        if len(self.frames) >= _MAX_DEPTH:
            raise refusal(event, f"it is nested deeper than {_MAX_DEPTH} levels")
        if event.anchor:
            self.anchors[event.anchor] = None
        self.frames.append(_Frame(value, event.anchor, self.count, flows=bool(event.flow_style)))

    def _close(self, event: Event) -> None:
        frame = self.frames.pop()
        node = _Node(frame.value, self.count - frame.before + 1, frame.height)
        self.count = frame.before
        # An anchor refers to its latest definition, even one inside this value.
        if frame.anchor and self.anchors[frame.anchor] is None:
            self.anchors[frame.anchor] = node
        self._put(event, node)

    def _named(self, event: AliasEvent) -> _Node:
        if event.anchor not in self.anchors:
            raise refusal(event, "an alias refers to an anchor that is not defined before it")
        node = self.anchors[event.anchor]
        if node is None:
            raise refusal(event, "the value of an anchor contains itself")
        return _Node(node.value, node.count, node.height, aliased=True)


def _is_merge(event: Event) -> bool:
    if not isinstance(event, ScalarEvent) or event.value != "<<":
        return False
    return bool(event.implicit[0]) or event.tag == f"{TAG}merge"


def _merge(event: Event, into: dict[str, Any], node: _Node) -> None:
    """Merge a map, or the maps of a list, over existing keys; in a list the first map wins."""
    listed = isinstance(node.value, list) and not node.aliased
    for part in reversed(node.value) if listed else [node.value]:
        if not isinstance(part, dict):
            raise refusal(event, "<< takes a map or a list of maps")
        into.update(part)


def _key(event: Event, value: Any) -> str:
    """Return the text of a key.

    Raises:
        YAMLError: JSON has no such key.
    """
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case float():
            return float_key(value)
        case int() if value <= INT64_MAX:
            return str(value)
    raise refusal(event, "a key is not a string, boolean or number; write it in quotes")
