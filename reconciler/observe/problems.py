"""What is in the way of something that goes on for ever: told once, not at each try."""

import asyncio
from collections.abc import Callable


async def tell_problems(
    problem: Callable[[], str],
    say: Callable[[str], None],
    *,
    every: float,
    over: Callable[[], None] = lambda: None,
) -> None:
    """Look for ever.

    Args:
        problem: Gives what is in the way now, empty where nothing is.
        say: Told each new problem.
        every: Seconds between two looks.
        over: Called when nothing is in the way any more.
    """
    told = ""
    while True:
        found = problem()
        if found and found != told:
            say(found)
        elif told and not found:
            over()
        told = found
        await asyncio.sleep(every)
