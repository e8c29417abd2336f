"""What a rule may match: kinds for webhooks, and where the existing objects are."""

from dataclasses import dataclass
from typing import TypeAlias

from reconciler.engine.match.kinds import KindSelector
from reconciler.engine.match.selectors import LabelRequirement, selector_text

Pair: TypeAlias = tuple[str, str]
"""A label: its key and its value."""

PairSets: TypeAlias = tuple[frozenset[Pair], ...] | None
"""Whatever can match has all labels of at least one set; None where it may have any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KindScope:
    """A kind that a rule may match.

    Attributes:
        operations: Of the filter that names the kind; empty for all.
    """

    selector: KindSelector
    operations: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Where the existing objects are that a rule may match; each is to be matched again.

    Attributes:
        namespaces: Literal namespaces (of a Namespace its own name), or None for all.
        names: Literal names, or None for all.
        labels: What all of them have or lack, as far as the API server can filter by it.
    """

    kinds: tuple[KindSelector, ...]
    namespaces: tuple[str, ...] | None
    names: tuple[str, ...] | None
    labels: tuple[LabelRequirement, ...] = ()

    @property
    def label_selector(self) -> str:
        """What the API server can filter by, in its own syntax; may be empty."""
        return selector_text(self.labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchNeeds:
    """What a match asks for beside the object and its names.

    Attributes:
        operations: What was done to the object.
        user: Who sent the request.
        roles: The roles of the user.
        namespace_labels: The labels of the object's namespace.
        annotations: The paths of the annotations that it reads.
        pairs: Labels without which no object matches.
        namespace_pairs: Labels of the namespace without which no object in it matches.
    """

    operations: bool = False
    user: bool = False
    roles: bool = False
    namespace_labels: bool = False
    annotations: frozenset[tuple[str, ...]] = frozenset()
    pairs: PairSets = None
    namespace_pairs: PairSets = None
