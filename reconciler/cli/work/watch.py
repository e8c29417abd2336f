"""Looking again and again at a cluster, each time with a fresh picture."""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TypeVar

import click

from reconciler.cli.output.screen import warn
from reconciler.cli.output.terminal import CLEAR
from reconciler.errors import Throttled, Unavailable

T = TypeVar("T")

PAUSE = 2.0
"""Seconds between two looks."""


async def looks(look: Callable[[], Awaitable[T]], *, again: bool) -> AsyncIterator[T]:
    """Yield what there is now, and with ``again`` what there is every two seconds, for ever."""
    yield await look()
    while again:
        await asyncio.sleep(PAUSE)
        try:
            found = await look()
        except (Throttled, Unavailable) as error:
            # Whoever watches an outage wants to see its end.
            warn(f"not known now: {error}")
        else:
            yield found


def show_frame(lines: Iterable[str], *, more_follow: bool) -> None:
    """Write a picture: on a terminal in the place of the one before, elsewhere below it."""
    on_terminal = sys.stdout.isatty()
    if more_follow and on_terminal:
        click.echo(CLEAR, nl=False)
    for line in lines:
        click.echo(line)
    if more_follow and not on_terminal:
        click.echo("---")
