"""The backoff between the attempts of a request.

The request stores the pause, so a restart neither forgets it nor starts a burst of attempts.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Exponential pauses with a ceiling; all values in seconds.

    Attributes:
        spread: Share of a pause that is added at random, so that equal requests drift apart.
    """

    base: float = 1.0
    ceiling: float = 300.0
    spread: float = 0.2

    def delay(self, attempt: int, jitter: float = 0.0) -> float:
        """Return the pause after an attempt counted from 1; ``jitter`` is within [0, 1)."""
        pause = min(self.base * (1 << min(max(attempt, 1) - 1, 32)), self.ceiling)
        return pause * (1 + self.spread * jitter)
