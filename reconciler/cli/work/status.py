"""The command line of `retrofit status`."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from typing import Any

import click
import orjson

from reconciler.api.meta import Kind, Object, policy_ref
from reconciler.cli.output.screen import screen_of, warn
from reconciler.cli.output.terminal import CLEAR
from reconciler.cli.work.overview import Overview, overview
from reconciler.cli.work.place import (
    Workplace,
    policy_key,
    stored_policy,
    work_options,
    workplace,
)
from reconciler.cli.work.report import data_of, lines_of
from reconciler.dialects.registry import POLICY_KINDS, REQUIRED_KINDS
from reconciler.errors import Forbidden, InvalidSetting, NoKindMatch, Throttled, Unavailable

_PAUSE = 2.0

_EPILOG = """\b
Examples:
  kubectl retrofit status
  kubectl retrofit status shop/restart --watch
  kubectl retrofit status -n shop -o json
"""


@click.command("status", epilog=_EPILOG)
@click.argument("policy", required=False, default="")
@click.option("--namespace", "-n", default="", help="Only triggers in this namespace; and sweeps.")
@click.option(
    "--output", "-o", type=click.Choice(("table", "json")), default="table", show_default=True
)
@click.option("--watch", "-w", is_flag=True, help="Update every 2 seconds until interrupted.")
@work_options
def status(policy: str, *, namespace: str, output: str, watch: bool, **address: Any) -> None:
    """Show what waits, what is done and what fails, of all policies or of one POLICY.

    POLICY is the NAME of a ClusterPolicy, or NAMESPACE/NAME of a Policy. What is in the way is
    grouped by reason, with a missing right, what to do, and the time of the next attempt.
    Finished requests count for as long as they are kept.

    \b
    Exit code:
      0  there is an answer, whatever waits or failed
      2  nothing could be done: wrong usage, no such policy, no cluster
    """  # noqa: D301 - click's mark for text that is not to be wrapped
    key = policy_key(policy) if policy else ""
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_status(key, namespace, output, watch=watch, address=address))


async def _status(
    key: str, namespace: str, output: str, *, watch: bool, address: dict[str, str]
) -> None:
    async with workplace(**address) as place:
        _show(await _look(place, key, namespace), place, output, clear=watch)
        while watch:
            await asyncio.sleep(_PAUSE)
            try:
                found = await _look(place, key, namespace)
            except (Throttled, Unavailable) as error:
                # Whoever watches an outage wants to see its end.
                warn(f"not known now: {error}")
            else:
                _show(found, place, output, clear=True)


async def _look(place: Workplace, key: str, namespace: str) -> Overview:
    found = [item async for item in place.requests.of_policy(key)]
    policies, complete = [], True
    try:
        if key:
            policies = [await stored_policy(place, key)]
    except Forbidden:
        complete = False
    except InvalidSetting:
        # A policy that was deleted is of interest as long as it left something.
        if not found:
            raise
    for kind in () if key else POLICY_KINDS:
        try:
            policies += [item async for item in _all(place, kind)]
        except Forbidden:
            complete = False
        except NoKindMatch:
            if kind in REQUIRED_KINDS:
                raise
    named = [(policy_ref(item).key, _not_ready(item)) for item in policies]
    return overview(found, policies=named, complete=complete, namespace=namespace)


async def _all(place: Workplace, kind: Kind) -> AsyncIterator[Object]:
    token = ""
    while True:
        page = await place.live.reader.list_page(kind, token=token)
        for item in page.items:
            yield item
        token = page.token
        if not token:
            return


def _not_ready(policy: Object) -> str:
    for item in (policy.get("status") or {}).get("conditions") or ():
        if item.get("type") == "Ready":
            return "" if item.get("status") == "True" else str(item.get("message", "unknown"))
    return "no controller has looked at it yet"


def _show(found: Overview, place: Workplace, output: str, *, clear: bool) -> None:
    if output == "json":
        click.echo(orjson.dumps(data_of(found)))
        return
    if clear and sys.stdout.isatty():
        click.echo(CLEAR, nl=False)
    for line in lines_of(found, screen_of(sys.stdout), now=place.live.clock.now()):
        click.echo(line)
    if clear and not sys.stdout.isatty():
        click.echo("---")
