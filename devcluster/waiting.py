"""Waiting for external conditions, always with a time limit."""

import threading
from collections.abc import Callable
from typing import TypeVar

from reconciler.clock import SystemClock
from reconciler.errors import Unavailable

T = TypeVar("T")
_LONGEST_PAUSE = 0.5


def pause(seconds: float) -> None:
    """Sleep, interruptible by Ctrl-C."""
    threading.Event().wait(seconds)


def wait_until(
    condition: Callable[[], T | None],
    *,
    within: float,
    what: str,
    every: float = 0.05,
) -> T:
    """Return the first truthy result of the condition.

    Args:
        condition: Called immediately and then after each pause.
        within: Time limit in seconds.
        what: Description of the condition, such as ``the API server answers /readyz``.
        every: Seconds between attempts at first; pauses grow up to half a second, because
            most attempts start a program or call a server that has other work.

    Raises:
        Unavailable: The time limit has passed.
    """
    clock = SystemClock()
    begun = clock.monotonic()
    while True:
        result = condition()
        if result:
            return result
        waited = clock.monotonic() - begun
        if waited >= within:
            raise Unavailable(f"waited {within:g} s in vain until {what}")
        pause(max(every, min(waited / 10, _LONGEST_PAUSE)))
