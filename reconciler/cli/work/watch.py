"""Polling of a cluster, with a new frame of output each time."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TypeVar

import click

from reconciler.cli.output.screen import warn
from reconciler.cli.output.terminal import CLEAR
from reconciler.errors import Throttled, Unavailable

T = TypeVar("T")

PAUSE = 2.0
"""Seconds between two polls."""


def until_interrupted(*, watching: bool) -> contextlib.AbstractContextManager[None]:
    """Return a context in which Ctrl-C is the regular end of a watch, and of nothing else."""
    return contextlib.suppress(KeyboardInterrupt) if watching else contextlib.nullcontext()


async def looks(look: Callable[[], Awaitable[T]], *, again: bool) -> AsyncIterator[T]:
    """Yield the current state and, with ``again``, a new one every two seconds forever."""
    yield await look()
    while again:
        await asyncio.sleep(PAUSE)
        try:
            found = await look()
        except (Throttled, Unavailable) as error:
            # Keep polling through an outage, to show its end.
            warn(f"not known now: {error}")
        else:
            yield found


def show_frame(lines: Iterable[str], *, more_follow: bool) -> None:
    """Write a frame: on a terminal it replaces the one before, elsewhere it follows it."""
    on_terminal = sys.stdout.isatty()
    if more_follow and on_terminal:
        click.echo(CLEAR, nl=False)
    for line in lines:
        click.echo(line)
    if more_follow and not on_terminal:
        click.echo("---")
