"""The check for expressions that parse, but cannot mean what their author intended."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from reconciler.errors import ErrorList, InvalidPolicy
from reconciler.languages.gval import fault_of
from reconciler.languages.gval.functions import FUNCTIONS
from reconciler.languages.gval.syntax import Call, Infix, Node, Path, Variable


def refuse_misreadings(tree: Node, location: str) -> None:
    """Refuse expressions that the original accepts, but fails to evaluate for every object.

    These are a subtraction of names, a call of an unknown function, an operator whose literal
    operands have wrong types, and an invalid literal regular expression.

    Raises:
        InvalidPolicy: The tree contains such parts; it holds an error for each.
    """
    with ErrorList() as errors:
        for node in parts_of(tree):
            if reason := _misread(node):
                errors.add(InvalidPolicy(location, reason))


def _misread(node: Any) -> str:
    match node:
        case Call(name) if name not in FUNCTIONS:
            return f"there is no function {name}; available: {', '.join(sorted(FUNCTIONS))}"
        case Infix("-", Path(), Variable()):
            return 'a name with "-" in it is read as a subtraction: write ["a-name"] for .a-name'
        case _:
            return fault_of(node)


def parts_of(node: Any) -> Iterator[Any]:
    """Yield a node of an expression and all nodes below it."""
    if isinstance(node, tuple):
        for part in node:
            yield from parts_of(part)
    elif is_dataclass(node):
        yield node
        for field in fields(node):
            yield from parts_of(getattr(node, field.name))
