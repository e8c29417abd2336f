"""What a rule needs to be granted."""

from dataclasses import dataclass

from reconciler.api.rights import Right


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """One thing that a rule needs.

    Attributes:
        location: In the policy, of the target or the match.
        options: The rights of which any one is enough; the best comes first.
    """

    location: str
    options: tuple[Right, ...]
