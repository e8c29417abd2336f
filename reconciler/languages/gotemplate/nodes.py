"""The AST nodes of a template; a position is the offset of a character in its text."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Dot:
    """The current value: ``.``."""

    position: int


@dataclass(frozen=True, slots=True)
class Nil:
    """The constant ``nil``."""

    position: int


@dataclass(frozen=True, slots=True)
class Constant:
    """A string, a boolean or an untyped number.

    Attributes:
        value: The value where no type is expected; None for an integer that does not fit.
        whole: The value as an integer, or None.
        real: The value as a float, or None.
    """

    position: int
    value: Any
    whole: int | None = None
    real: float | None = None


@dataclass(frozen=True, slots=True)
class Field:
    """``.a.b``: fields of dot."""

    position: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    """``$x.a.b``: a variable, with fields of it."""

    position: int
    name: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Identifier:
    """The name of a function."""

    position: int
    name: str


@dataclass(frozen=True, slots=True)
class Chain:
    """``(...).a.b``: fields of the value of an operand."""

    position: int
    operand: "Operand"
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Command:
    """An operand and its arguments."""

    position: int
    operands: "tuple[Operand, ...]"


@dataclass(frozen=True, slots=True)
class Pipe:
    """Commands, each of which gets the value of the previous one as its last argument.

    Attributes:
        commands: At least one.
        declared: Names of the variables that get the result.
        assigns: The variables exist already.
    """

    position: int
    commands: tuple[Command, ...]
    declared: tuple[str, ...] = ()
    assigns: bool = False


Operand = Dot | Nil | Constant | Field | Variable | Identifier | Chain | Pipe


@dataclass(frozen=True, slots=True)
class Text:
    """Text between actions."""

    text: str


@dataclass(frozen=True, slots=True)
class Action:
    """A pipeline whose result is written."""

    position: int
    pipe: Pipe


@dataclass(frozen=True, slots=True)
class Break:
    """The end of a range: ``{{break}}``."""


@dataclass(frozen=True, slots=True)
class Continue:
    """The next element of a range: ``{{continue}}``."""


@dataclass(frozen=True, slots=True)
class Control:
    """A control structure.

    Attributes:
        position: Of its pipeline.
        keyword: ``if``, ``with`` or ``range``.
        pipe: Its condition, or the value to iterate over.
        body: Its nodes.
        otherwise: The nodes behind ``else``, or None without one.
    """

    position: int
    keyword: str
    pipe: Pipe
    body: "tuple[Node, ...]"
    otherwise: "tuple[Node, ...] | None"


@dataclass(frozen=True, slots=True)
class Call:
    """The call of another template: ``{{template "name" pipeline}}``."""

    position: int
    name: str
    pipe: Pipe | None


Node = Text | Action | Break | Continue | Control | Call
