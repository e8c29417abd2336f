"""The policy languages that are active in a cluster, and why others are not."""

from dataclasses import dataclass, field

from reconciler.api.meta import Kind, PolicyRef
from reconciler.dialects.registry import OPTIONAL_KINDS, dialect_named, required_kinds
from reconciler.installation import REPLACING, Installation
from reconciler.signals import Signal


@dataclass(slots=True)
class Languages:
    """The state of the optional policy languages.

    Attributes:
        installation: Determines the kinds of policies that are always acted on.
        changed: Emitted when a language becomes active or inactive.
    """

    installation: Installation = REPLACING
    changed: Signal[[]] = field(default_factory=Signal)
    _served: set[Kind] = field(default_factory=set)
    _originals: dict[str, str] = field(default_factory=dict)

    def take(self, kind: Kind, *, served: bool) -> None:
        """Record whether a kind can be read and the state of its language's original is known."""
        if served != (kind in self._served):
            (self._served.add if served else self._served.discard)(kind)
            self.changed.emit()

    def stand_by(self, dialect: str, reason: str) -> None:
        """Leave a language's policies to its original; an empty reason resumes acting on them."""
        if self._originals.get(dialect, "") != reason:
            self._originals[dialect] = reason
            self.changed.emit()

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Return the kinds of policies that are acted on."""
        there = (
            kind for kind in OPTIONAL_KINDS if kind in self._served and not self._reason_of(kind)
        )
        return (*required_kinds(self.installation), *there)

    def standing_by(self, ref: PolicyRef) -> str:
        """Return why a policy is left to the original of its language, empty if it is not."""
        # Called in every attempt; nearly always, no original is at work.
        dialect = dialect_named(ref) if any(self._originals.values()) else None
        return "" if dialect is None else self._originals.get(dialect.name, "")

    def is_served(self, ref: PolicyRef) -> bool:
        """Return whether the kind of a policy is required or served by the cluster."""
        kinds = (*required_kinds(self.installation), *self._served)
        names = {(kind.api_version, kind.kind) for kind in kinds}
        return (ref.api_version, ref.kind) in names

    def _reason_of(self, kind: Kind) -> str:
        ref = PolicyRef(api_version=kind.api_version, kind=kind.kind, name="")
        return self.standing_by(ref)
