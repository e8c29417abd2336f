"""Lines and columns of field paths such as ``spec.rules[0].name`` in the text of a file."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import yaml
from yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    CollectionStartEvent,
    DocumentStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceStartEvent,
)

_Parser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_VARIABLE: Final = re.compile(r"\{\{.*?\}\}", re.DOTALL)
_INDEX: Final = re.compile(r"\[(\d+)\]")
_MERGE: Final = "<<"
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")


@dataclass(frozen=True, slots=True)
class Position:
    """The start of a value in a file; line and column count from 1."""

    line: int
    column: int


@dataclass(slots=True)
class _Node:
    """A value, with the position of its key, or its own where it has no key."""

    at: Position
    children: "dict[str, _Node] | list[_Node] | None" = None
    text: "_Text | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Text:
    """A literal block scalar, which may itself hold a YAML document."""

    value: str
    first_line: int
    indent: int


class Positions:
    """The positions in one file, by the first line of each document."""

    def __init__(self, content: bytes) -> None:
        self._roots = dict(_read(content))

    def find(self, document: int, place: str) -> Position:
        """Return the position of a field path in a document, or of its last existing parent.

        Args:
            document: The first line of the document.
            place: The path as in messages, such as ``metadata.annotations[a.b/c]``.
        """
        node = self._roots.get(document)
        return Position(document, 1) if node is None else _follow(node, place)


def _follow(node: _Node, place: str) -> Position:
    while place:
        if node.text is not None and place.startswith("["):
            return _inside(node, node.text, place)
        step = _step(node, place)
        if step is None:
            break
        node, place = step
    return node.at


def _step(node: _Node, place: str) -> tuple[_Node, str] | None:
    """Return the child for the first step of a path, and the rest of the path."""
    if isinstance(node.children, list):
        found = _INDEX.match(place)
        if found is None or int(found[1]) >= len(node.children):
            return None
        return node.children[int(found[1])], place[found.end() :]
    # Label names contain dots and slashes: the longest matching key wins.
    for key in sorted(node.children or (), key=len, reverse=True):
        for written in (f".{key}", key, f"[{key}]", f'["{key}"]'):
            rest = place.removeprefix(written)
            if len(rest) < len(place) and rest[:1] in ("", ".", "["):
                return (node.children or {})[key], rest
    return None


def _inside(node: _Node, text: _Text, place: str) -> Position:
    # Unquoted variables are not YAML: replace each by a word of the same length.
    content = _VARIABLE.sub(lambda found: re.sub(r"[^\n]", "x", found[0]), text.value)
    roots = [root for _, root in _read(content.encode())]
    if not roots:
        return node.at
    found = _follow(roots[0], place)
    return Position(found.line + text.first_line - 1, found.column + text.indent)


def _read(content: bytes) -> Iterator[tuple[int, _Node]]:
    lines = content.decode(errors="replace").splitlines()
    builder, line = _Builder(lines), 1
    # JSON is YAML except for surrogates, whose values do not matter here.
    parser = _Parser(_SURROGATE.sub(rb"\\ue0", content))
    try:
        while parser.check_event():
            event: Any = parser.get_event()
            begins: Any = event.start_mark
            if isinstance(event, DocumentStartEvent):
                builder, line = _Builder(lines), begins.line + 1
            elif isinstance(event, NodeEvent):
                builder.begin(event)
            elif isinstance(event, CollectionEndEvent):
                builder.end()
            if builder.root is not None:
                yield line, builder.root
                builder = _Builder(lines)
    except yaml.YAMLError:
        # Earlier documents keep their positions; the error carries its own position.
        return


@dataclass(slots=True)
class _Frame:
    node: _Node
    key: tuple[str, Position] | None = None
    merged: list[_Node] = field(default_factory=list)


@dataclass(slots=True)
class _Builder:
    lines: list[str]
    root: _Node | None = None
    frames: list[_Frame] = field(default_factory=list)
    anchors: dict[str, _Node] = field(default_factory=dict)

    def begin(self, event: Any) -> None:
        at = Position(event.start_mark.line + 1, event.start_mark.column + 1)
        frame = self.frames[-1] if self.frames else None
        of_map = frame is not None and isinstance(frame.node.children, dict)
        if frame and of_map and frame.key is None and isinstance(event, ScalarEvent):
            frame.key = event.value, at
            return
        if frame and of_map and frame.key:
            at = frame.key[1]
        node = self._node(event, at)
        if event.anchor and not isinstance(event, AliasEvent):
            self.anchors[event.anchor] = node
        if isinstance(event, CollectionStartEvent):
            self.frames.append(_Frame(node))
        else:
            self._put(node)

    def end(self) -> None:
        frame = self.frames.pop()
        if isinstance(frame.node.children, dict):
            for merged in frame.merged:
                for source in merged.children if isinstance(merged.children, list) else [merged]:
                    if isinstance(source.children, dict):
                        frame.node.children = source.children | frame.node.children
        self._put(frame.node)

    def _node(self, event: Any, at: Position) -> _Node:
        if isinstance(event, AliasEvent):
            known = self.anchors.get(str(event.anchor))
            return _Node(at, known.children if known else None)
        if isinstance(event, SequenceStartEvent):
            return _Node(at, [])
        if isinstance(event, CollectionStartEvent):
            return _Node(at, {})
        if event.style != "|":
            return _Node(at)
        first = event.start_mark.line + 1
        lines = self.lines[first : event.end_mark.line]
        indents = [len(line) - len(line.lstrip()) for line in lines if line.strip()]
        text = _Text(value=event.value, first_line=first + 1, indent=min(indents, default=0))
        return _Node(at, text=text)

    def _put(self, node: _Node) -> None:
        if not self.frames:
            self.root = node
            return
        frame = self.frames[-1]
        if isinstance(frame.node.children, list):
            frame.node.children.append(node)
        elif isinstance(frame.node.children, dict) and frame.key:
            if frame.key[0] == _MERGE:
                frame.merged.append(node)
            else:
                frame.node.children[frame.key[0]] = node
            frame.key = None
