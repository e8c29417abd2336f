"""The only module that reads the system's clocks."""

import time
from dataclasses import field
from datetime import UTC, datetime
from typing import Protocol

from reconciler.values import value_class


class Clock(Protocol):
    """Returns the time; tests use a clock that stands still."""

    def now(self) -> datetime:
        """Return the wall-clock time, timezone-aware, in UTC."""

    def monotonic(self) -> float:
        """Return monotonic seconds, for durations."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the wall-clock time, timezone-aware, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return monotonic seconds, for durations."""
        return time.monotonic()


@value_class(frozen=True, slots=True)
class Deadline:
    """The time by which an answer is due; passed to every step that waits.

    Attributes:
        seconds: Total time, from the creation of the deadline.
    """

    clock: Clock
    seconds: float
    _begun: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_begun", self.clock.monotonic())

    @property
    def left(self) -> float:
        """Return the remaining seconds, or 0 if the deadline has passed."""
        return max(0.0, self._begun + self.seconds - self.clock.monotonic())
