"""Rules that take long to evaluate, and their evaluation where no other work waits for it."""

from dataclasses import dataclass, field
from typing import Final

from reconciler.clock import Clock
from reconciler.services.ports.isolation import Isolation
from reconciler.services.processing.known_requests import Recent

_SECONDS: Final = 60.0
"""Seconds for which a rule that took long is not tried again where other work waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationOwner:
    """The tenant, policy and rule that an evaluation belongs to."""

    tenant: str = ""
    policy: str = ""
    rule: str = ""


@dataclass(slots=True)
class LongEvaluations:
    """Runs long evaluations in isolation, and remembers which rules needed that.

    A rule that takes long does so for many triggers, which may all begin at the same moment.
    Trying each of them where other work waits would take long as well.
    """

    isolation: Isolation
    clock: Clock
    _long: Recent[EvaluationOwner, float] = field(default_factory=Recent)

    def expects(self, owner: EvaluationOwner) -> bool:
        """Return whether an evaluation of this owner took long lately."""
        return self.clock.monotonic() - self._long.get(owner, float("-inf")) < _SECONDS

    def note(self, owner: EvaluationOwner) -> None:
        """Note that an evaluation of this owner takes long."""
        self._long.keep(owner, self.clock.monotonic())
