"""What is done again and again while a program lives: when, and what is said when it fails.

What the cluster refuses, and what somebody has interrupted on this machine, is tried again with a
pause that grows. Anything else is a bug: it ends the loop, and that ends the program
(`observe.loops`).
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
    """Says what is in the way when it is new, and not at each try.

    Attributes:
        warn: Called with a sentence for the log.
        problem: What is in the way now; empty where nothing is.
    """

    warn: Callable[[str], None]
    problem: str = ""

    def tell(self, problem: str) -> None:
        """Take in what is in the way now."""
        if problem and problem != self.problem:
            self.warn(problem)
        self.problem = problem


def _nobody(_problem: str) -> None:
    """The next time comes soon, and nobody can do anything about it."""


def _any() -> float:
    return math.inf


async def repeat(
    work: Callable[[], Awaitable[None]],
    *,
    every: float = math.inf,
    at_once: bool = True,
    woken: asyncio.Event | None = None,
    pauses: tuple[float, float] | None = None,
    at_most: Callable[[], float] = _any,
    tell: Callable[[str], None] = _nobody,
    failing: str = "",
) -> NoReturn:
    """Do something again and again until cancelled.

    Args:
        work: Is done once each time; a `ClusterError` is tried again, and so is `Interrupted`.
        every: Seconds between two times.
        at_once: The first time comes at once.
        woken: Begins the next time before its time; `work` clears it.
        pauses: Seconds after a first failure, which double up to the longest; as `every` if None.
        at_most: Gives the longest pause that is right now.
        tell: Called with each failure, and the empty string when it went well.
        failing: What comes before the error in the text.
    """
    first, longest = pauses or (every, every)
    pause = first
    if not at_once:
        await _rest(every, woken)
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
            await _rest(every, woken)


async def _rest(seconds: float, woken: asyncio.Event | None) -> None:
    if woken is None:
        await asyncio.sleep(seconds)
        return
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(None if math.isinf(seconds) else seconds):
            await woken.wait()
