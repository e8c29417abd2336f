"""What the caller of a compiler gives for a rule in place of what would be read from outside."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenElements:
    """Values of a name for the elements that a rule goes through.

    Attributes:
        values: By the position of the element.
    """

    name: str
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What the caller gives for a rule.

    Attributes:
        names: Of values that the caller binds in the context.
        elements: Values for the elements of its loops.
    """

    names: frozenset[str] = frozenset()
    elements: tuple[GivenElements, ...] = ()
