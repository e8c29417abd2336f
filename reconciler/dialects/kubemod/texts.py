"""Expressions that parse, but mean something that nobody can have meant."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from reconciler.errors import ErrorList, InvalidPolicy
from reconciler.languages.gval import fault_of
from reconciler.languages.gval.functions import FUNCTIONS
from reconciler.languages.gval.syntax import Call, Infix, Node, Path, Variable


def refuse_misreadings(tree: Node, location: str) -> None:
    """Refuse what the original takes, and fails to evaluate whatever the object is.

    That is a subtraction of names, a call of a function that there is not, an operator whose
    literal operands do not fit it, and a literal regular expression that is none.

    Raises:
        InvalidPolicy: For each of them.
    """
    with ErrorList() as errors:
        for node in parts_of(tree):
            if reason := _misread(node):
                errors.add(InvalidPolicy(location, reason))


def _misread(node: Any) -> str:
    match node:
        case Call(name) if name not in FUNCTIONS:
            return f"there is no function {name}; there are {', '.join(sorted(FUNCTIONS))}"
        case Infix("-", Path(), Variable()):
            return 'a name with "-" in it is read as a subtraction: write ["a-name"] for .a-name'
        case _:
            return fault_of(node)


def parts_of(node: Any) -> Iterator[Any]:
    """Yield a part of an expression and all parts in it."""
    if isinstance(node, tuple):
        for part in node:
            yield from parts_of(part)
    elif is_dataclass(node):
        yield node
        for field in fields(node):
            yield from parts_of(getattr(node, field.name))
