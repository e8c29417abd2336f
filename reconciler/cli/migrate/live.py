"""A preview of a move in a cluster."""

import contextlib
from collections.abc import Sequence
from typing import TextIO

import click

from reconciler.api.kinds import policy_named
from reconciler.api.meta import Object, policy_ref
from reconciler.cli.desk.live import Address, live_cluster
from reconciler.cli.migrate.moving import Move
from reconciler.cli.output.screen import screen_of, warn
from reconciler.cli.preview.report import lines_of
from reconciler.cli.preview.run import Wish, run
from reconciler.errors import NoKindMatch, NotFound
from reconciler.kube.policies import KubePolicies


async def show_preview(
    found: Sequence[tuple[str, Object]], move: Move, address: Address, stream: TextIO
) -> bool:
    """Print what moved policies would do; return whether the report is incomplete or has refusals.

    Args:
        found: The policies after the move, each with its place.
        address: The cluster, with the API group that the policies move to.

    Raises:
        InvalidSetting: The cluster cannot be reached, or no rule can be previewed.
        ClusterError: The cluster cannot be read.
    """
    async with live_cluster(address) as live:
        stored = KubePolicies(live.client, installation=move.source)
        for _, policy in found:
            ref = policy_ref(policy)
            with contextlib.suppress(NotFound, NoKindMatch):
                await stored.get(policy_named(ref.key, move.source))
                warn(
                    f"{ref.kind} {ref.key} of {move.source.group} is stored: from the moment that"
                    f" the one of {move.target.group} is applied until it is deleted, both act"
                )
    report = await run(Wish(found=found, address=address), warn=warn)
    for line in lines_of(report, screen_of(stream)):
        click.echo(line, file=stream)
    return bool(report.incomplete or report.refused)
