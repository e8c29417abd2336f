"""Which rules take long, and where they are evaluated instead of where everything else waits."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from reconciler.clock import Clock
from reconciler.services.ports.isolation import Isolation

T = TypeVar("T")

_REMEMBERED: Final = 1_000
_SECONDS: Final = 60.0
"""For so long a rule that took long is not tried where others wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationOwner:
    """Whose evaluation it is."""

    tenant: str = ""
    policy: str = ""
    rule: str = ""


@dataclass(slots=True)
class LongEvaluations:
    """Evaluates what takes long, and remembers for whom it did.

    A rule that takes long does so for many triggers, which may all begin in one moment: to try
    each of them first would take long as well.
    """

    isolation: Isolation
    clock: Clock
    _long: OrderedDict[EvaluationOwner, float] = field(default_factory=OrderedDict)

    def expects(self, owner: EvaluationOwner) -> bool:
        """Return whether it took long lately."""
        return self.clock.monotonic() - self._long.get(owner, float("-inf")) < _SECONDS

    def note(self, owner: EvaluationOwner) -> None:
        """It takes long."""
        self._long[owner] = self.clock.monotonic()
        self._long.move_to_end(owner)
        if len(self._long) > _REMEMBERED:
            self._long.popitem(last=False)

    async def evaluate(self, work: Callable[[], T], owner: EvaluationOwner) -> T:
        """Return what an evaluation gives; raises as `Isolation.evaluate`."""
        return await self.isolation.evaluate(work, owner.tenant)
