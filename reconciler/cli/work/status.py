"""The command line of `retrofit status`."""

import asyncio
import sys
from functools import partial
from typing import Any

import click

from reconciler.api.meta import Object, policy_ref
from reconciler.cli.output.encoding import json_of
from reconciler.cli.output.screen import screen_of
from reconciler.cli.work.overview import Overview, overview
from reconciler.cli.work.place import (
    Workplace,
    policy_key,
    stored_policies,
    stored_policy,
    why_not_ready,
    work_options,
    workplace,
)
from reconciler.cli.work.report import data_of, lines_of
from reconciler.cli.work.watch import looks, show_frame, until_interrupted
from reconciler.errors import Forbidden, InvalidSetting
from reconciler.kube.hooks import KubeHooks

_EPILOG = """\b
Examples:
  kubectl retrofit status
  kubectl retrofit status shop/restart --watch
  kubectl retrofit status -n shop -o json
"""


@click.command("status", epilog=_EPILOG)
@click.argument("policy", required=False, default="")
@click.option("--namespace", "-n", default="", help="Only sweeps, and triggers in this namespace.")
@click.option(
    "--output", "-o", type=click.Choice(("table", "json")), default="table", show_default=True
)
@click.option("--watch", "-w", is_flag=True, help="Update every 2 seconds until interrupted.")
@work_options
def status(policy: str, *, namespace: str, output: str, watch: bool, **address: Any) -> None:
    """Show the waiting, finished and failed requests of all policies, or of one POLICY.

    POLICY is the NAME of a ClusterPolicy, or NAMESPACE/NAME of a Policy; policies of other
    languages have their kind, as modrule/NAMESPACE/NAME. Problems are grouped by reason, with
    the missing right, what to do, and the time of the next attempt. Finished requests count
    for as long as they are kept.

    \b
    Exit code:
      0  the requests were read, whatever waits or has failed
      2  could not run: wrong usage, no such policy, no cluster
    """  # noqa: D301 - click's mark for text that is not to be wrapped
    key = policy_key(policy) if policy else ""
    with until_interrupted(watching=watch):
        asyncio.run(_status(key, namespace, output, watch=watch, address=address))


async def _status(
    key: str, namespace: str, output: str, *, watch: bool, address: dict[str, str]
) -> None:
    async with workplace(**address) as place:
        look = partial(_look, place, key, namespace)
        async for found in looks(look, again=watch):
            _show(found, place, output, more_follow=watch)


async def _look(place: Workplace, key: str, namespace: str) -> Overview:
    found = [item async for item in place.requests.of_policy(key)]
    policies, complete = [], True
    try:
        if key:
            policies = [await stored_policy(place, key)]
    except Forbidden:
        complete = False
    except InvalidSetting:
        # A deleted policy is shown as long as it has requests.
        if not found:
            raise
    if not key:
        policies, complete = await stored_policies(place)
    named = [(policy_ref(item).key, why_not_ready(item)) for item in policies]
    return overview(
        found,
        policies=named,
        hooks=[] if key else await _hooks(place, namespace),
        complete=complete,
        namespace=namespace,
        role_label=place.live.installation.background_label,
    )


async def _hooks(place: Workplace, namespace: str) -> list[Object]:
    """Return the hooks that the user may read, of one namespace if it is named."""
    live = place.live
    try:
        return await KubeHooks(live.client, live.kinds, live.clock, namespace).stored()
    except Forbidden:
        return []


def _show(found: Overview, place: Workplace, output: str, *, more_follow: bool) -> None:
    if output == "json":
        click.echo(json_of(data_of(found), compact=True))
        return
    lines = lines_of(found, screen_of(sys.stdout), now=place.live.clock.now())
    show_frame(lines, more_follow=more_follow)
