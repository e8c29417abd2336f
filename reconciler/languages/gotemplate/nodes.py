"""The parts of a parsed template; a position is that of a character in its text."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Dot:
    """What a template is at: ``.``."""

    position: int


@dataclass(frozen=True, slots=True)
class Nil:
    """The constant ``nil``."""

    position: int


@dataclass(frozen=True, slots=True)
class Constant:
    """A string, a truth value or a number without a type.

    Attributes:
        position: Of its first character.
        value: What it is where no type is asked for; an integer that does not fit is None.
        whole: What it is as an integer, None where it is none.
        real: What it is as a float, None where it is none.
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
    """``(...).a.b``: fields of what an operand gives."""

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
    """Commands that each get what the one before gives, as their last argument.

    Attributes:
        position: Of its first character.
        commands: At least one.
        declared: Names of the variables that get the result.
        assigns: They exist already.
    """

    position: int
    commands: tuple[Command, ...]
    declared: tuple[str, ...] = ()
    assigns: bool = False


Operand = Dot | Nil | Constant | Field | Variable | Identifier | Chain | Pipe


@dataclass(frozen=True, slots=True)
class Text:
    """Text between actions."""

    position: int
    text: str


@dataclass(frozen=True, slots=True)
class Action:
    """A pipeline whose result is written."""

    position: int
    pipe: Pipe


@dataclass(frozen=True, slots=True)
class Break:
    """The end of a range: ``{{break}}``."""

    position: int


@dataclass(frozen=True, slots=True)
class Continue:
    """The next element of a range: ``{{continue}}``."""

    position: int


@dataclass(frozen=True, slots=True)
class Control:
    """``if``, ``with`` or ``range``.

    Attributes:
        position: Of its pipeline.
        keyword: Which.
        pipe: What it depends on.
        body: What it holds.
        otherwise: What stands behind ``else``, None where there is none.
    """

    position: int
    keyword: str
    pipe: Pipe
    body: "tuple[Node, ...]"
    otherwise: "tuple[Node, ...] | None"


@dataclass(frozen=True, slots=True)
class Call:
    """Another template in its place: ``{{template "name" pipeline}}``."""

    position: int
    name: str
    pipe: Pipe | None


Node = Text | Action | Break | Continue | Control | Call
