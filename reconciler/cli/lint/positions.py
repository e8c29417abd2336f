"""Lines and columns of field paths such as ``spec.rules[0].name`` in the text of a file."""

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import yaml

from reconciler.cli.desk import nodes
from reconciler.cli.desk.nodes import Node, Root, Scalar, read_roots

_VARIABLE: Final = re.compile(r"\{\{.*?\}\}", re.DOTALL)
_INDEX: Final = re.compile(r"\[(\d+)\]")
_MERGE: Final = "<<"
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")


@dataclass(frozen=True, slots=True)
class Position:
    """The start of a value in a file; line and column count from 1."""

    line: int
    column: int


class Positions:
    """The positions in one file, which is parsed at the first search: most have no findings."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    @cached_property
    def _lines(self) -> list[str]:
        return self._content.decode(errors="replace").splitlines()

    @cached_property
    def _roots(self) -> dict[int, Node]:
        """The documents by their first lines."""
        return {root.line: root.node for root in _read(self._content)}

    def find(self, document: int, place: str) -> Position:
        """Return the position of a field path in a document, or of its last existing parent.

        Args:
            document: The first line of the document.
            place: The path as in messages, such as ``metadata.annotations[a.b/c]``.
        """
        node = self._roots.get(document)
        return Position(document, 1) if node is None else _follow(node, place, self._lines)


def _read(content: bytes) -> Iterator[Root]:
    # Documents before an error keep their positions; the error carries its own position.
    with contextlib.suppress(yaml.YAMLError):
        # JSON is YAML except for surrogates, whose values do not matter here.
        yield from read_roots(_SURROGATE.sub(rb"\\ue0", content))


def _follow(node: Node, place: str, lines: Sequence[str]) -> Position:
    at = _at(node)
    while place:
        if isinstance(node, Scalar) and node.literal and place.startswith("["):
            return _inside(node, place, lines) or at
        step = _step(node, place)
        if step is None:
            break
        at, node, place = step
    return at


def _at(node: Node) -> Position:
    return Position(node.start.line + 1, node.start.column + 1)


def _step(node: Node, place: str) -> tuple[Position, Node, str] | None:
    """Return the child for the first step of a path, its position, and the rest of the path.

    In a map, a child is where its key is.
    """
    if isinstance(node, nodes.Sequence):
        found = _INDEX.match(place)
        if found is None or int(found[1]) >= len(node.items):
            return None
        item = node.items[int(found[1])]
        return _at(item), item, place[found.end() :]
    children = _children(node) if isinstance(node, nodes.Mapping) else {}
    # Label names contain dots and slashes: the longest matching key wins.
    for key in sorted(children, key=len, reverse=True):
        for written in (f".{key}", key, f"[{key}]", f'["{key}"]'):
            rest = place.removeprefix(written)
            if len(rest) < len(place) and rest[:1] in ("", ".", "["):
                return *children[key], rest
    return None


def _children(node: nodes.Mapping) -> dict[str, tuple[Position, Node]]:
    found = {key.value: (_at(key), value) for key, value in node.pairs}
    for key, value in node.pairs:
        if key.value == _MERGE:
            for source in value.items if isinstance(value, nodes.Sequence) else [value]:
                if isinstance(source, nodes.Mapping):
                    found = _children(source) | found
    return found


def _inside(text: Scalar, place: str, around: Sequence[str]) -> Position | None:
    """Return a position in a block scalar that holds a YAML document itself."""
    # Unquoted variables are not YAML: replace each by a word of the same length.
    content = _VARIABLE.sub(lambda found: re.sub(r"[^\n]", "x", found[0]), text.value)
    root = next(_read(content.encode()), None)
    if root is None:
        return None
    found = _follow(root.node, place, content.splitlines())
    first = text.start.line + 1
    lines = around[first : text.end.line]
    indents = [len(line) - len(line.lstrip()) for line in lines if line.strip()]
    return Position(found.line + first, found.column + min(indents, default=0))
