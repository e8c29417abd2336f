"""The command line of `retrofit top`."""

import asyncio
import shutil
import sys
from functools import partial
from typing import Any

import click

from reconciler.cli.output.encoding import json_of
from reconciler.cli.output.screen import screen_of
from reconciler.cli.work.board import Board, rates
from reconciler.cli.work.look import look_at
from reconciler.cli.work.picture import data_of_board, picture
from reconciler.cli.work.place import policy_key, work_options, workplace
from reconciler.cli.work.watch import looks, show_frame, until_interrupted

_EPILOG = """\b
Examples:
  kubectl retrofit top
  kubectl retrofit top --watch
  kubectl retrofit top reload -o json
"""


@click.command("top", epilog=_EPILOG)
@click.argument("policy", required=False, default="")
@click.option(
    "--output", "-o", type=click.Choice(("table", "json")), default="table", show_default=True
)
@click.option("--watch", "-w", is_flag=True, help="Update every 2 seconds until interrupted.")
@work_options
def top(policy: str, *, output: str, watch: bool, **address: Any) -> None:
    """Show how busy policies are: queues, rollouts and failures, of all or of one POLICY.

    POLICY is the NAME of a ClusterPolicy, or NAMESPACE/NAME of a Policy; policies of other
    languages have their kind, as modrule/NAMESPACE/NAME. The figures come from the statuses of
    the policies and are at most a second old; no request is read, however many there are.
    `retrofit status` shows what blocks single requests.

    \b
    Exit code:
      0  the statuses were read, whatever waits or has failed
      2  could not run: wrong usage, no such policy, no cluster
    """  # noqa: D301 - click's mark for text that is not to be wrapped
    key = policy_key(policy) if policy else ""
    with until_interrupted(watching=watch):
        asyncio.run(_top(key, output, watch=watch, address=address))


async def _top(key: str, output: str, *, watch: bool, address: dict[str, str]) -> None:
    before: Board | None = None
    async with workplace(**address) as place:
        async for found in looks(partial(look_at, place, key), again=watch):
            _show(found, rates(before, found), output, more_follow=watch)
            before = found


def _show(
    found: Board, measured: dict[str, float] | None, output: str, *, more_follow: bool
) -> None:
    if output == "json":
        click.echo(json_of(data_of_board(found, measured), compact=True))
        return
    on_terminal = more_follow and sys.stdout.isatty()
    height = shutil.get_terminal_size().lines - 1 if on_terminal else 0
    lines = picture(found, screen_of(sys.stdout), rates=measured, height=height)
    show_frame(lines, more_follow=more_follow)
