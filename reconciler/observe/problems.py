"""What is in the way of something that goes on for ever: logged once, not at each try."""

from collections.abc import Callable

from reconciler.services.jobs import WarnsOnce, repeat


async def tell_problems(
    problem: Callable[[], str],
    warn: Callable[[str], None],
    *,
    every: float,
    over: Callable[[], None] = lambda: None,
) -> None:
    """Look for ever.

    Args:
        problem: Gives what is in the way now, empty where nothing is.
        warn: Called with each new problem.
        every: Seconds between two looks.
        over: Called when nothing is in the way any more.
    """
    once = WarnsOnce(warn=warn)

    async def look() -> None:
        before, found = once.problem, problem()
        once.tell(found)
        if before and not found:
            over()

    await repeat(look, every=every)
