"""The check for expressions that parse, but cannot mean what their author intended."""

from typing import Any

from reconciler.errors import ErrorList, InvalidPolicy
from reconciler.languages.gval import faults_of
from reconciler.languages.gval.functions import FUNCTIONS
from reconciler.languages.gval.syntax import Call, Infix, Node, Path, Variable, parts_of


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
        for fault in faults_of(tree):
            errors.add(InvalidPolicy(location, fault))


def _misread(node: Any) -> str:
    match node:
        case Call(name) if name not in FUNCTIONS:
            return f"there is no function {name}; available: {', '.join(sorted(FUNCTIONS))}"
        case Infix("-", Path(), Variable()):
            return 'a name with "-" in it is read as a subtraction: write ["a-name"] for .a-name'
        case _:
            return ""
