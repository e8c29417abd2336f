"""Values that the caller of a compiler provides in place of a rule's context entries."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenElements:
    """The values of one name for the elements of a rule's foreach.

    Attributes:
        values: By the position of the element.
    """

    name: str
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The values that the caller provides for one rule.

    Attributes:
        names: Names of the values that the caller binds in the context.
        elements: Values for the elements of its foreach loops.
    """

    names: frozenset[str] = frozenset()
    elements: tuple[GivenElements, ...] = ()
