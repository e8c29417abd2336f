"""The syntax tree of an expression."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from reconciler.languages.gval.values import Failure


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal value."""

    value: Any


@dataclass(frozen=True, slots=True)
class Variable:
    """A field of the data without ``$``, as ``kind`` or ``metadata.name``."""

    keys: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Call:
    """A call; an unknown function fails when it is evaluated."""

    name: str
    arguments: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Prefix:
    """An operator before its operand."""

    operator: str
    operand: "Node"


@dataclass(frozen=True, slots=True)
class Infix:
    """An operator between its operands."""

    operator: str
    left: "Node"
    right: "Node"


@dataclass(frozen=True, slots=True)
class Choice:
    """``condition ? yes : no``."""

    condition: "Node"
    yes: "Node"
    no: "Node"


@dataclass(frozen=True, slots=True)
class Array:
    """A list of values."""

    items: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Entry:
    """A key and its value; with placeholders in the key, one entry for each hit of a path."""

    key: "Node"
    value: "Node"
    captures: bool


@dataclass(frozen=True, slots=True)
class Mapping:
    """A map."""

    entries: "tuple[Entry, ...]"


@dataclass(frozen=True, slots=True)
class Placeholder:
    """``#1``, a key that a path captured, or ``#`` (None), all of them."""

    index: int | None


@dataclass(frozen=True, slots=True)
class Key:
    """``.key``, ``["key"]``, ``[0]``: one member."""

    key: "Node"


@dataclass(frozen=True, slots=True)
class Script:
    """``(expression)``: a value that is computed from the selected one."""

    expression: "Node"


@dataclass(frozen=True, slots=True)
class Wildcard:
    """``.*``, ``[*]``: all members."""


@dataclass(frozen=True, slots=True)
class Union:
    """``[a, b]``: several members."""

    keys: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Slice:
    """``[start:end:step]``: members of a list."""

    start: "Node"
    end: "Node"
    step: "Node"


@dataclass(frozen=True, slots=True)
class Filter:
    """``[? condition]``: the members for which a condition holds."""

    condition: "Node"


@dataclass(frozen=True, slots=True)
class Descent:
    """``..``: the value and all values in it, at any depth."""


SingleStep = Key | Script
"""A step with one result."""
SeveralStep = Wildcard | Union | Slice | Filter | Descent
"""A step with several results."""
Step = SingleStep | SeveralStep


@dataclass(frozen=True, slots=True)
class Path:
    """A path from the root, or from the element that a filter tests."""

    from_root: bool
    steps: "tuple[Step, ...]"


Node = Constant | Variable | Call | Prefix | Infix | Choice | Array | Mapping | Placeholder | Path
"""A part of an expression that has a value."""


class SyntaxFault(Failure):
    """An expression that cannot be parsed.

    Attributes:
        position: Index of the character at fault.
    """

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(reason)
        self.position = position


def direct_parts(node: Any) -> Iterator[Any]:
    """Yield the nodes directly below a node of an expression."""
    for field in fields(node):
        value = getattr(node, field.name)
        for part in value if isinstance(value, tuple) else (value,):
            if is_dataclass(part):
                yield part


def parts_of(node: Any) -> Iterator[Any]:
    """Yield a node of an expression and all nodes below it."""
    waiting = [node]
    while waiting:
        current = waiting.pop()
        yield current
        waiting += reversed(tuple(direct_parts(current)))
