"""The only place that asks what time it is."""

import time
from dataclasses import field
from datetime import UTC, datetime
from typing import Protocol

from reconciler.values import value_class


class Clock(Protocol):
    """Gives the time; tests pass one that stands still."""

    def now(self) -> datetime:
        """Return the wall clock, aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go back, for durations."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the wall clock, aware, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds that never go back, for durations."""
        return time.monotonic()


@value_class(frozen=True, slots=True)
class Deadline:
    """Until when one answer has to be given: handed to everything that is waited for on the way.

    Attributes:
        seconds: From when it was made on.
    """

    clock: Clock
    seconds: float
    _begun: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_begun", self.clock.monotonic())

    @property
    def left(self) -> float:
        """Return the seconds that remain, 0 where it has passed."""
        return max(0.0, self._begun + self.seconds - self.clock.monotonic())
