"""The scope of a match: kinds for webhooks, and listings of existing objects."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from reconciler.engine.match.kinds import KindSelector
from reconciler.engine.match.selectors import LabelRequirement, selector_text

Pair: TypeAlias = tuple[str, str]
"""A label: its key and its value."""

PairSets: TypeAlias = tuple[frozenset[Pair], ...] | None
"""A matching object has all labels of at least one set; None: it may have any labels."""


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
    """A list request for existing objects that a rule may match; each must still be matched.

    Attributes:
        namespaces: Literal namespaces (of a Namespace its own name), or None for all.
        names: Literal names, or None for all.
        labels: Requirements on their labels that the API server can evaluate.
    """

    kinds: tuple[KindSelector, ...]
    namespaces: tuple[str, ...] | None
    names: tuple[str, ...] | None
    labels: tuple[LabelRequirement, ...] = ()

    @property
    def label_selector(self) -> str:
        """The label requirements in the API server's syntax; may be empty."""
        return selector_text(self.labels)


def has_lists(listings: Iterable[Listing]) -> bool:
    """Return whether any of the kinds can be listed, where it is served."""
    return any(kind.is_listable for listing in listings for kind in listing.kinds)


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchNeeds:
    """The data that a match needs beside the object and its names.

    Attributes:
        annotations: The paths of the annotations that it reads.
        pairs: Labels without which no object matches.
        namespace_pairs: Labels of the namespace without which no object in it matches.
    """

    operations: bool = False
    user: bool = False
    namespace_labels: bool = False
    annotations: frozenset[tuple[str, ...]] = frozenset()
    pairs: PairSets = None
    namespace_pairs: PairSets = None
