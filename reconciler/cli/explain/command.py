"""The command line of `retrofit explain`."""

import asyncio
import sys
from typing import Any

import click

from reconciler.cli.desk.cue import cue_option
from reconciler.cli.desk.live import Address, address_of, cluster_options, live_cluster
from reconciler.cli.desk.operations import operation_of_flag, operation_option
from reconciler.cli.desk.stored import exception_namespace, policy_key
from reconciler.cli.desk.summary import passed_over
from reconciler.cli.explain.explanation import Explanation
from reconciler.cli.explain.live import plan_live
from reconciler.cli.explain.options import ExplainOptions, Plan
from reconciler.cli.explain.outline import outline
from reconciler.cli.explain.outline_writer import OutlineWriter, show
from reconciler.cli.output.encoding import json_of
from reconciler.cli.output.screen import screen_of, warn
from reconciler.errors import InvalidSetting

_EPILOG = """\b
Examples:
  retrofit explain policy.yaml
  retrofit explain policy.yaml --trigger cm.yaml --target deployments.yaml
  retrofit explain policy.yaml --trigger cm.yaml --operation DELETE
  retrofit explain reload --cluster --trigger configmap/shop/settings
  retrofit explain reload --cluster --trigger cm/shop/a --target deploy/shop/b

\b
Exit code:
  0  the rules were explained, whatever the result
  1  a policy is refused
  2  could not run: wrong usage, a file or the cluster cannot be read
"""


@click.command("explain", epilog=_EPILOG)
@click.argument("policy")
@click.option(
    "--trigger",
    metavar="FILE|KIND/NS/NAME",
    help="The object whose request may trigger the rules.",
)
@click.option("--old", metavar="FILE", help="The trigger as it was before an UPDATE.")
@click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="FILE|KIND/NS/NAME",
    help="Objects that may be targets. Files may also contain other objects that the rules read:"
    " ConfigMaps, Namespaces. May be repeated.",
)
@cue_option
@operation_option
@click.option("--userinfo", metavar="FILE", help="Who sends the request: a UserInfo document.")
@click.option(
    "--exception", "exceptions", multiple=True, metavar="FILE", help="PolicyExceptions to honour."
)
@exception_namespace
@click.option(
    "--set", "settings", multiple=True, metavar="PATH=VALUE", help="The value of a variable."
)
@click.option(
    "--values-file", "-f", "values", metavar="FILE", help="A file with values of variables."
)
@click.option(
    "--output",
    "-o",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="text: indented lines; json: a list of notes.",
)
@click.option("--cluster", is_flag=True, help="Read policy, trigger and targets from a cluster.")
@cluster_options
def explain(*, output: str, cluster: bool, operation: str | None, **options: Any) -> None:
    """Explain rule by rule why a policy does or does not change an object.

    POLICY is a file, an https address, a folder, - for standard input or, with --cluster,
    clusterpolicy/NAME (also NAME) or policy/NAMESPACE/NAME (also NAMESPACE/NAME). With --trigger,
    the command shows every clause of match, every precondition and every variable with its value,
    then every target with its change. Without it, the command shows what the rules need. Nothing
    is written, and the content of Secrets is not shown.

    With --cluster, --kubeconfig, --context or --as, KIND/NS/NAME (KIND/NAME if the kind is
    cluster-scoped) names an object in the cluster; files are accepted as well.
    """
    address = address_of(options)
    requested = ExplainOptions(operation=operation_of_flag(operation), **options)
    requested.check()
    writer = OutlineWriter()
    asyncio.run(_work(requested, address if cluster or address.given else None, writer))
    if text := passed_over(requested.passed_over, whole=False):
        warn(text)
    if output == "json":
        click.echo(json_of([note.fields() for note in writer.notes]))
    else:
        show(writer.notes, sys.stdout, screen_of(sys.stdout))


async def _work(requested: ExplainOptions, address: Address | None, writer: OutlineWriter) -> None:
    if address is None:
        if requested.exception_namespace is not None:
            raise click.UsageError("--exception-namespace needs --cluster")
        if policy_key(requested.policy):
            cure = "with --cluster, a stored policy of this name is read"
            raise InvalidSetting(f"{requested.policy}: there is no such file; {cure}")
        await _tell(requested.plan(), writer)
        return
    async with live_cluster(address, cue=requested.cue) as cluster:
        await _tell(await plan_live(requested, cluster), writer)


async def _tell(plan: Plan, writer: OutlineWriter) -> None:
    for policy, compiled in plan.policies:
        if not plan.requests:
            outline(policy, compiled, writer, plan.filters)
        for request in plan.requests:
            explanation = Explanation(
                policy=policy, compiled=compiled, plan=plan, request=request, writer=writer
            )
            await explanation.tell()
