"""Values that the caller of a compiler provides in place of a rule's context entries."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The values that the caller provides for one rule.

    Attributes:
        names: Names of the values that the caller binds in the context.
        elements: Values for the elements of its foreach loops, by name and then by position.
    """

    names: frozenset[str] = frozenset()
    elements: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
