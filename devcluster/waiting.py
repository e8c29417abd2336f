"""Waiting for the world outside, never longer than said."""

import threading
from collections.abc import Callable
from typing import TypeVar

from reconciler.clock import Clock, SystemClock
from reconciler.errors import Unavailable

T = TypeVar("T")
_LONGEST_PAUSE = 0.5


def pause(seconds: float) -> None:
    """Let that much time pass; Ctrl-C ends it."""
    threading.Event().wait(seconds)


def wait_until(
    condition: Callable[[], T | None],
    *,
    within: float,
    what: str,
    every: float = 0.05,
    clock: Clock | None = None,
) -> T:
    """Return the first truthy result of the condition.

    Args:
        condition: Asked at once and then again after each pause.
        within: Seconds until it is given up.
        what: What is waited for, as ``the API server answers /readyz``.
        every: Seconds between two tries at first; they become more, up to half a second, because
            most tries start a program or ask a server that has other work.
        clock: Measures the time; the machine's own by default.

    Raises:
        Unavailable: The time is over.
    """
    clock = clock or SystemClock()
    begun = clock.monotonic()
    while True:
        result = condition()
        if result:
            return result
        waited = clock.monotonic() - begun
        if waited >= within:
            raise Unavailable(f"waited {within:g} s in vain until {what}")
        pause(max(every, min(waited / 10, _LONGEST_PAUSE)))
