"""Loops that repeat work while a program runs, with pauses and warnings on failures.

Errors of the cluster and interrupted work on this machine are retried with a growing pause. Any
other exception is a bug: it ends the loop, which ends the program (`observe.loops`).
"""

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NoReturn

from reconciler.errors import ClusterError, Interrupted


@dataclass(slots=True, kw_only=True)
class WarnsOnce:
    """Logs a problem when it is new, and not at each retry.

    Attributes:
        warn: Called with a sentence for the log.
        problem: The current problem; empty if there is none.
    """

    warn: Callable[[str], None]
    problem: str = ""

    def tell(self, problem: str) -> None:
        """Record the current problem, and warn if it is new."""
        if problem and problem != self.problem:
            self.warn(problem)
        self.problem = problem


async def repeat(
    work: Callable[[], Awaitable[None]],
    *,
    every: float = math.inf,
    at_once: bool = True,
    woken: asyncio.Event | None = None,
    pauses: tuple[float, float] | None = None,
    at_most: Callable[[], float] = lambda: math.inf,
    tell: Callable[[str], None] = lambda _: None,
    failing: str = "",
) -> NoReturn:
    """Repeat work until cancelled.

    Args:
        work: Called once each time; retried after a `ClusterError` and after `Interrupted`.
        every: Seconds between two calls.
        at_once: The first call comes without a pause.
        woken: Ends the pause early; `work` clears it.
        pauses: Seconds after a first failure, doubling up to the longest; `every` if None.
        at_most: Returns the current upper limit of the pause.
        tell: Called with each failure, and with an empty text after each success.
        failing: Prefix of the error in the text.
    """
    first, longest = pauses or (every, every)
    pause = first
    if not at_once:
        await rest(every, woken)
    while True:
        try:
            await work()
        except (ClusterError, Interrupted) as error:
            tell(f"{failing}{error}")
            requested = error.retry_after if isinstance(error, ClusterError) else None
            await asyncio.sleep(requested or pause)
            pause = min(pause * 2, longest, at_most())
        else:
            tell("")
            pause = first
            await rest(every, woken)


async def rest(seconds: float, woken: asyncio.Event | None) -> None:
    """Pause for some seconds, which may be infinite, or until woken."""
    if woken is None:
        await asyncio.sleep(seconds)
        return
    # Not wait_for: on Python 3.11 it loses a cancellation that coincides with the event.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(None if math.isinf(seconds) else seconds):
            await woken.wait()
