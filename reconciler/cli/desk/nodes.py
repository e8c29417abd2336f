"""YAML nodes with their places in the text, to name these and to replace single values.

Comments, order, quotes, anchors and indentation stay, because nothing is serialized again. Only
documents that pass `documents.parse_documents` may be walked: it refuses aliases without end.
"""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias, cast

import yaml
from yaml.error import Mark
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
_PROPERTIES: Final = re.compile(r"(?:[&!]\S*\s+)*")
"""The anchor and tag before a scalar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalar:
    """A scalar, from ``start`` to ``end`` in the file, including its quotes.

    Attributes:
        literal: It is a block scalar that keeps its line breaks.
    """

    value: str
    start: Mark
    end: Mark
    literal: bool


@dataclass(frozen=True, slots=True)
class Sequence:
    """A YAML sequence; where an alias stands for it, it starts at the alias."""

    start: Mark
    items: list["Node"] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Mapping:
    """A YAML mapping: its keys as scalars, and its values; it starts as a sequence does."""

    start: Mark
    pairs: list[tuple[Scalar, "Node"]] = field(default_factory=list)

    def get(self, path: str) -> "Node | None":
        """Return the node at a path of keys such as ``metadata.name``, None where it is absent."""
        found: Node | None = self
        for key in path.split(_SEPARATOR):
            if not isinstance(found, Mapping):
                return None
            found = next((value for name, value in found.pairs if name.value == key), None)
        return found

    def scalar(self, path: str) -> Scalar | None:
        """Return the scalar at a path, None where there is none."""
        found = self.get(path)
        return found if isinstance(found, Scalar) else None

    def text(self, path: str) -> str:
        """Return the value of the scalar at a path, empty where there is none."""
        found = self.scalar(path)
        return "" if found is None else found.value

    def items(self, path: str) -> list["Node"]:
        """Return the items of the list at a path."""
        found = self.get(path)
        return found.items if isinstance(found, Sequence) else []


Node: TypeAlias = Scalar | Sequence | Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """The root node of a document, and the document's first line."""

    line: int
    node: Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """The replacement of a scalar's value."""

    at: Scalar
    value: str


def read_roots(text: str | bytes) -> Iterator[Root]:
    """Yield the documents of a YAML file, those before an error, too.

    Raises:
        YAMLError: The text is not YAML.
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
    """A mapping or sequence under construction; a mapping keeps the key of its next value."""

    node: Mapping | Sequence
    key: Scalar | None = None


@dataclass(slots=True)
class _Builder:
    """Builds the nodes of one document from parser events."""

    root: Node | None = None
    open: list[_Frame] = field(default_factory=list)
    anchors: dict[str, Node] = field(default_factory=dict)

    def begin(self, event: Any) -> None:
        """Process the event of an alias, a scalar, or the start of a collection."""
        if isinstance(event, AliasEvent):
            self.put(self._named(event))
            return
        node = _node_of(event)
        if event.anchor:
            self.anchors[event.anchor] = node
        if isinstance(node, Scalar):
            self.put(node)
        else:
            self.open.append(_Frame(node))

    def _named(self, event: Any) -> Node:
        node = self.anchors.get(event.anchor)
        if node is None:
            problem = f"nothing before has the anchor {event.anchor}"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
        return node if isinstance(node, Scalar) else replace(node, start=event.start_mark)

    def put(self, node: Node) -> None:
        """Add a complete node to the collection under construction."""
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
    # The marks are None only for events that are made without a text.
    start, end = cast("Mark", event.start_mark), cast("Mark", event.end_mark)
    if isinstance(event, ScalarEvent):
        return Scalar(value=event.value, start=start, end=end, literal=event.style == "|")
    return Sequence(start) if isinstance(event, SequenceStartEvent) else Mapping(start)


def apply(text: str, edits: Iterable[Edit]) -> str:
    """Return the text with the edits applied; two edits of the same scalar count as one."""
    found = {edit.at.start.index: edit for edit in edits}
    for start in sorted(found, reverse=True):
        edit = found[start]
        end = edit.at.end.index
        text = f"{text[:start]}{_replaced(text[start:end], edit)}{text[end:]}"
    return text


def _replaced(written: str, edit: Edit) -> str:
    head = _PROPERTIES.match(written)[0]  # type: ignore[index]  # it matches the empty text
    content = written.removeprefix(head)
    if edit.at.value in content:
        return head + content.replace(edit.at.value, edit.value)
    return head + json.dumps(edit.value)  # written with escapes
