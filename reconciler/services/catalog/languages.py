"""Which policy languages are at work in a cluster, and why another is not."""

from dataclasses import dataclass, field

from reconciler.api.meta import Kind, PolicyRef
from reconciler.dialects.registry import OPTIONAL_KINDS, dialect_named, required_kinds
from reconciler.installation import REPLACING, Installation
from reconciler.signals import Signal


@dataclass(slots=True)
class Languages:
    """What is known of those that a cluster need not have.

    Attributes:
        installation: Whose policies are acted on whatever else there is.
        changed: One begins to be at work, or ends.
    """

    installation: Installation = REPLACING
    changed: Signal[[]] = field(default_factory=Signal)
    _served: set[Kind] = field(default_factory=set)
    _originals: dict[str, str] = field(default_factory=dict)

    def take(self, kind: Kind, *, served: bool) -> None:
        """Take in whether a kind of policies can be read, and it is known who else acts on it."""
        if served != (kind in self._served):
            (self._served.add if served else self._served.discard)(kind)
            self.changed.emit()

    def stand_by(self, dialect: str, reason: str) -> None:
        """Leave the policies of a language to somebody else; without a reason act on them."""
        if self._originals.get(dialect, "") != reason:
            self._originals[dialect] = reason
            self.changed.emit()

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of policies that are acted on."""
        there = (
            kind for kind in OPTIONAL_KINDS if kind in self._served and not self._reason_of(kind)
        )
        return (*required_kinds(self.installation), *there)

    def standing_by(self, ref: PolicyRef) -> str:
        """Return why somebody else acts on a policy, empty where nobody does."""
        # Nearly always nobody else is there, and every attempt asks.
        dialect = dialect_named(ref) if any(self._originals.values()) else None
        return "" if dialect is None else self._originals.get(dialect.name, "")

    def is_served(self, ref: PolicyRef) -> bool:
        """Return whether a policy is of a kind that is followed."""
        kinds = (*required_kinds(self.installation), *self._served)
        names = {(kind.api_version, kind.kind) for kind in kinds}
        return (ref.api_version, ref.kind) in names

    def _reason_of(self, kind: Kind) -> str:
        ref = PolicyRef(api_version=kind.api_version, kind=kind.kind, name="")
        return self.standing_by(ref)
