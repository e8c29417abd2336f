"""The loops of a process: none of them ends by itself, and where one does, the process does."""

import asyncio
import signal
from collections.abc import Awaitable, Coroutine, Mapping
from typing import Any, NoReturn

import uvloop

from reconciler.errors import RetrofitError
from reconciler.observe.logs import logger

_log = logger("loops")


class LoopEnded(RetrofitError):
    """A loop of the process ended, by a bug of kube-retrofit."""


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop of a program."""
    loop = uvloop.new_event_loop()
    loop.set_exception_handler(_report)
    return loop


def _report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Say what nobody awaits, but for bytes on a connection that we have ended.

    Where a request times out while TLS is under way, uvloop answers the peer on the connection
    that is closed by then, and would report that as a fatal error with a traceback.
    """
    # The transport itself says that it is not closing, and it has no class to be known by.
    error = context.get("exception")
    if isinstance(error, RuntimeError) and str(error).endswith("the handler is closed"):
        return
    loop.default_exception_handler(context)


async def forever(name: str, loop: Awaitable[None]) -> NoReturn:
    """Run a loop, and say it where it ends.

    Raises:
        LoopEnded: It did; the log says why.
        RetrofitError: It cannot go on, and its own words say why.
    """
    try:
        await loop
    except RetrofitError:
        raise
    except Exception as error:
        _log.exception("a background loop crashed because of a bug in kube-retrofit", loop=name)
        text = (
            f"{name} ended because of a bug in kube-retrofit"
            f" ({type(error).__name__}); its log has it"
        )
        raise LoopEnded(text) from error
    _log.error("a background loop ended unexpectedly", loop=name)
    raise LoopEnded(f"{name} ended: a bug in kube-retrofit")


async def run_loops(loops: Mapping[str, Awaitable[None]]) -> NoReturn:
    """Run loops side by side until one ends; the others are cancelled then.

    Raises:
        LoopEnded: As `forever`.
        RetrofitError: As `forever`.
    """
    try:
        async with asyncio.TaskGroup() as group:
            for name, loop in loops.items():
                group.create_task(forever(name, loop), name=name)
    except BaseExceptionGroup as ended:
        # Whatever else ends then ends for its sake.
        raise ended.exceptions[0] from None
    raise LoopEnded("there was no loop to run")


async def until_signal(work: Coroutine[Any, Any, None]) -> None:
    """Run until SIGTERM or SIGINT cancels it; a second signal ends the process at once.

    Raises:
        RetrofitError: A loop ended; what ends for its sake is left out.
    """
    loop, task = asyncio.get_running_loop(), asyncio.create_task(work)
    signals = (signal.SIGTERM, signal.SIGINT)

    def stop() -> None:
        for number in signals:
            loop.remove_signal_handler(number)
        task.cancel()

    for number in signals:
        loop.add_signal_handler(number, stop)
    try:
        await task
    except asyncio.CancelledError:
        _log.info("drained")
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
