"""Pauses of the loops that never end: watches, the lease, events."""

from secrets import SystemRandom

_RANDOM = SystemRandom()


def jittered(seconds: float) -> float:
    """Return up to a fifth more or less, so that replicas do not march in step."""
    return seconds * _RANDOM.uniform(0.8, 1.2)


class Backoff:
    """Pauses that double with each failure in a row."""

    def __init__(self, *, first: float, longest: float) -> None:
        self._first = first
        self._longest = longest
        self._next = first

    def reset(self) -> None:
        """Begin again; called after a success."""
        self._next = self._first

    def pause(self) -> float:
        """Return the seconds to wait after one more failure."""
        seconds, self._next = self._next, min(self._next * 2, self._longest)
        return jittered(seconds)
