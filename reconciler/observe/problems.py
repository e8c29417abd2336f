"""Logs a problem of an endless task once, not at each attempt."""

from collections.abc import Callable

from reconciler.services.jobs import WarnsOnce, repeat


async def tell_problems(
    problem: Callable[[], str],
    warn: Callable[[str], None],
    *,
    every: float,
    over: Callable[[], None] = lambda: None,
) -> None:
    """Check for a problem at an interval until cancelled.

    Args:
        problem: Returns the current problem, or an empty text.
        warn: Called with each new problem.
        every: Seconds between two checks.
    """
    once = WarnsOnce(warn=warn)

    async def look() -> None:
        before, found = once.problem, problem()
        once.tell(found)
        if before and not found:
            over()

    await repeat(look, every=every)
