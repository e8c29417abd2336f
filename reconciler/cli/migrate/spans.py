"""YAML as its author wrote it: each text with its place, so that one word can be replaced.

Comments, order, quotes, anchors and indentation stay, because nothing is written anew. A file is
to be read by `documents.parse_documents` first, which refuses what has no end.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import yaml
from yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    DocumentStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceStartEvent,
)

_Parser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_SEPARATOR: Final = "."


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalar:
    """A text, from ``start`` to ``end`` in the file, quotes and all."""

    value: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Sequence:
    """A list."""

    items: list["Node"] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Mapping:
    """A map: its keys with their places, and its values."""

    pairs: list[tuple[Scalar, "Node"]] = field(default_factory=list)

    def get(self, path: str) -> "Node | None":
        """Return what stands at a path of keys, as ``metadata.name``; None where nothing does."""
        found: Node | None = self
        for key in path.split(_SEPARATOR):
            if not isinstance(found, Mapping):
                return None
            found = next((value for name, value in found.pairs if name.value == key), None)
        return found

    def scalar(self, path: str) -> Scalar | None:
        """Return the text at a path, None where there is none."""
        found = self.get(path)
        return found if isinstance(found, Scalar) else None

    def text(self, path: str) -> str:
        """Return the same as a value, empty where there is none."""
        found = self.scalar(path)
        return "" if found is None else found.value

    def items(self, path: str) -> list["Node"]:
        """Return the items of the list at a path."""
        found = self.get(path)
        return found.items if isinstance(found, Sequence) else []


Node: TypeAlias = Scalar | Sequence | Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """A document, and the line at which it begins."""

    line: int
    node: Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """A value that takes the place of a text's."""

    at: Scalar
    value: str


def read_roots(text: str) -> Iterator[Root]:
    """Yield the documents of a file that can be read.

    Raises:
        YAMLError: It cannot.
    """
    parser, builder, line = _Parser(text), _Builder(), 1
    while parser.check_event():
        event: Any = parser.get_event()
        if isinstance(event, DocumentStartEvent):
            begins: Any = event.start_mark
            builder, line = _Builder(), begins.line + 1
        elif isinstance(event, NodeEvent):
            builder.begin(event)
        elif isinstance(event, CollectionEndEvent):
            builder.put(builder.open.pop().node)
        if builder.root is not None:
            yield Root(line=line, node=builder.root)
            builder = _Builder()


@dataclass(slots=True)
class _Frame:
    """A map or list that is being filled; the key that comes next belongs to a map."""

    node: Mapping | Sequence
    key: Scalar | None = None


@dataclass(slots=True)
class _Builder:
    """One document so far."""

    root: Node | None = None
    open: list[_Frame] = field(default_factory=list)
    anchors: dict[str, Node] = field(default_factory=dict)

    def begin(self, event: Any) -> None:
        """Take in what may have an anchor, or name one."""
        if isinstance(event, AliasEvent):
            self.put(self.anchors[str(event.anchor)])
            return
        node = _node_of(event)
        if event.anchor:
            self.anchors[event.anchor] = node
        if isinstance(node, Scalar):
            self.put(node)
        else:
            self.open.append(_Frame(node))

    def put(self, node: Node) -> None:
        """Take in a whole node."""
        if not self.open:
            self.root = node
            return
        frame = self.open[-1]
        if isinstance(frame.node, Sequence):
            frame.node.items.append(node)
        elif frame.key is not None:
            frame.node.pairs.append((frame.key, node))
            frame.key = None
        elif isinstance(node, Scalar):
            frame.key = node


def _node_of(event: Any) -> Node:
    if isinstance(event, ScalarEvent):
        start, end = _marks(event)
        return Scalar(value=event.value, start=start, end=end)
    return Sequence() if isinstance(event, SequenceStartEvent) else Mapping()


def _marks(event: Any) -> tuple[int, int]:
    return event.start_mark.index, event.end_mark.index


def apply(text: str, edits: Iterable[Edit]) -> str:
    """Return a text after edits; two of one place count once."""
    found = {edit.at.start: edit for edit in edits}
    for start in sorted(found, reverse=True):
        edit = found[start]
        written = text[start : edit.at.end]
        text = f"{text[:start]}{written.replace(edit.at.value, edit.value)}{text[edit.at.end :]}"
    return text
