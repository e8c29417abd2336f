"""How often something may happen: a burst at first, then once per interval."""

from dataclasses import dataclass
from typing import Final

_ALMOST: Final = 1e-9
"""Tolerance for rounding errors of a token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Rate limit: the seconds for each time, and the times allowed in a burst."""

    interval: float
    burst: int


@dataclass(frozen=True, slots=True)
class Bucket:
    """Token bucket for a pace: each time takes a token, and each interval adds one.

    Attributes:
        tokens: The number of tokens at a time.
        at: That time, in seconds.
    """

    tokens: float
    at: float

    @classmethod
    def full(cls, pace: Pace, now: float) -> "Bucket":
        """Return the bucket before the first time."""
        return cls(float(max(pace.burst, 1)), now)

    def ready_at(self, pace: Pace, now: float) -> float:
        """Return when a token is available, now at the earliest."""
        missing = 1 - self._filled(pace, now)
        return now if missing <= _ALMOST else now + missing * pace.interval

    def take(self, pace: Pace, now: float) -> "Bucket":
        """Return the bucket after a token is taken now."""
        return Bucket(max(self._filled(pace, now) - 1, 0.0), now)

    def _filled(self, pace: Pace, now: float) -> float:
        most = float(max(pace.burst, 1))
        if pace.interval <= 0:
            return most
        return min(most, self.tokens + max(now - self.at, 0.0) / pace.interval)
