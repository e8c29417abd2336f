"""Endless loops of a process: if one of them ends, the process ends too."""

import asyncio
import signal
from collections.abc import Awaitable, Coroutine, Mapping
from typing import Any, NoReturn

import uvloop

from reconciler.errors import RetrofitError
from reconciler.observe.logs import logger

_log = logger("loops")


class LoopEnded(RetrofitError):
    """A loop of the process ended, which is a bug of kube-retrofit."""


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop of a program."""
    loop = uvloop.new_event_loop()
    loop.set_exception_handler(_report)
    return loop


def _report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Report unhandled errors, except for writes to a connection that this process closed.

    If a request times out during a TLS handshake, uvloop answers the peer on a connection that
    is closed by then, and would report that as a fatal error with a traceback.
    """
    # The transport does not report itself as closing, and has no class to recognize it by.
    error = context.get("exception")
    if isinstance(error, RuntimeError) and str(error).endswith("the handler is closed"):
        return
    loop.default_exception_handler(context)


async def forever(name: str, loop: Awaitable[None]) -> NoReturn:
    """Run a loop and log its end.

    Raises:
        LoopEnded: The loop ended; the log has the reason.
        RetrofitError: The loop cannot continue, for the reason in the error.
    """
    try:
        await loop
    except RetrofitError:
        raise
    except Exception as error:
        _log.exception("a background loop crashed because of a bug in kube-retrofit", loop=name)
        raise LoopEnded(
            f"{name} ended because of a bug in kube-retrofit ({type(error).__name__}); see its log"
        ) from error
    _log.error("a background loop ended unexpectedly", loop=name)
    raise LoopEnded(f"{name} ended: a bug in kube-retrofit")


async def run_loops(loops: Mapping[str, Awaitable[None]]) -> NoReturn:
    """Run loops as `forever` does, side by side until one ends; then cancel the others."""
    try:
        async with asyncio.TaskGroup() as group:
            for name, loop in loops.items():
                group.create_task(forever(name, loop), name=name)
    except BaseExceptionGroup as ended:
        # All later errors are consequences of the first one.
        raise ended.exceptions[0] from None
    raise LoopEnded("there was no loop to run")


async def until_signal(work: Coroutine[Any, Any, None]) -> None:
    """Run until SIGTERM or SIGINT cancels it; a second signal ends the process immediately.

    Raises:
        RetrofitError: A loop ended; errors that follow from it are left out.
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
