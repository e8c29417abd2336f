"""Expressions that parse, but mean something that nobody can have meant."""

from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from reconciler.dialects.kubemod.items import Item
from reconciler.errors import ErrorList, InvalidPolicy
from reconciler.languages.gval.functions import FUNCTIONS
from reconciler.languages.gval.syntax import Call, Infix, Path, Variable


def refuse_misreadings(items: Sequence[Item]) -> None:
    """Refuse subtractions of names and calls of functions that there are not.

    The original takes them, and fails each time it evaluates them.

    Raises:
        InvalidPolicy: For each of them.
    """
    with ErrorList() as errors:
        for item in items:
            for node in parts_of(item.select.tree):
                if reason := _misread(node):
                    errors.add(InvalidPolicy(f"{item.location}.select", reason))


def _misread(node: Any) -> str:
    match node:
        case Call(name) if name not in FUNCTIONS:
            return f"there is no function {name}; there are {', '.join(sorted(FUNCTIONS))}"
        case Infix("-", Path(), Variable()):
            return 'a name with "-" in it is read as a subtraction: write ["a-name"] for .a-name'
        case _:
            return ""


def parts_of(node: Any) -> Iterator[Any]:
    """Yield a part of an expression and all parts in it."""
    if isinstance(node, tuple):
        for part in node:
            yield from parts_of(part)
    elif is_dataclass(node):
        yield node
        for field in fields(node):
            yield from parts_of(getattr(node, field.name))
