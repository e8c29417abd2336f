"""Deadlines: the remaining time for all waits of one response."""

from dataclasses import dataclass
from datetime import UTC, datetime

from reconciler.clock import Deadline


@dataclass
class StillClock:
    """A clock that tests advance."""

    seconds: float = 1000.0

    def now(self):
        return datetime.fromtimestamp(self.seconds, UTC)

    def monotonic(self):
        return self.seconds


def test_time_that_has_passed_is_subtracted_from_the_time_left():
    clock = StillClock()
    deadline = Deadline(clock, 5.0)
    assert deadline.left == 5.0
    clock.seconds += 3.0
    assert deadline.left == 2.0


def test_a_deadline_that_has_passed_leaves_no_time():
    clock = StillClock()
    deadline = Deadline(clock, 5.0)
    clock.seconds += 60.0
    assert deadline.left == 0.0
