"""The turn of a question to read, among all that read before their objects are stored."""

from dataclasses import dataclass
from typing import Final

from reconciler.clock import Deadline
from reconciler.engine.program import Program
from reconciler.services.processing.fairness import tenant_in
from reconciler.services.processing.memory_budget import Reading, Readings

_NOTABLE: Final = 0.1
"""Seconds of waiting from which a message names it."""


@dataclass(slots=True, kw_only=True)
class ReadingTurn:
    """The turn of one question; it takes none before its first read.

    It does not know who asks: in a circle, all that was read would stay in memory.

    Attributes:
        namespace: Namespace of the object, empty if it is cluster-scoped.
    """

    readings: Readings
    deadline: Deadline
    namespace: str
    _program: Program | None = None
    _waited: float = 0.0
    _reading: Reading | None = None

    def evaluates(self, program: Program) -> None:
        """Record the rule that is evaluated from now on."""
        self._program = program

    async def take(self) -> None:
        """Wait until this question may read, once, as the rule that is evaluated."""
        if self._reading is not None or self._program is None:
            return
        origin, left = self._program.origin, self.deadline.left
        tenant = tenant_in(self.namespace, origin.policy)
        try:
            rule = f"{origin.policy} {origin.rule}"
            self._reading = await self.readings.begin(rule, tenant)
        finally:
            self._waited += left - self.deadline.left

    def count(self, size: int) -> None:
        """Count bytes as read."""
        if self._reading is not None:
            self._reading.count(size)

    def end(self) -> None:
        """Let others read."""
        if self._reading is not None:
            self._reading.end()

    def too_late(self) -> str:
        """Return why there was no answer before the deadline."""
        text = f"there was no answer within {self.deadline.seconds:g} s"
        if self._waited < _NOTABLE:
            return text
        return (
            f"{text}, of which {self._waited:.1f} s passed while the context entries of other"
            f" requests took up the {self.readings.budget.limit} bytes of --max-reads: try again,"
            " let rules read less, or raise it"
        )
