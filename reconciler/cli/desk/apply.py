"""The command `retrofit apply`: what would change, in files or in the objects of a cluster."""

import asyncio
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import click

from reconciler.api.meta import Object
from reconciler.cli.desk.inputs import Inputs, Paths, read_inputs
from reconciler.cli.desk.live import Address, cluster_options, live_cluster
from reconciler.cli.desk.livestock import LiveStock, Walk
from reconciler.cli.desk.output import FORMATS, STREAMED, Writer, writer_of
from reconciler.cli.desk.progress import Bar
from reconciler.cli.desk.session import Session
from reconciler.cli.desk.stock import Source
from reconciler.cli.desk.stored import exception_namespace, heeded_exceptions
from reconciler.cli.desk.summary import Summary

T = TypeVar("T", bound=Callable[..., Any])

WRONG = 1
CHANGES = 3
_MANY = 200

_EPILOG = """\b
Examples:
  retrofit apply policy.yaml --resource objects.yaml
  retrofit apply policies/ -r trigger.yaml -t 'targets/*.yaml'
  kustomize build . | retrofit apply policy.yaml -r - -o yaml | kubectl apply -f -
  retrofit apply policy.yaml -r objects/ --check
  retrofit apply policy.yaml --cluster -n shop
  retrofit apply policy.yaml --cluster -r new-trigger.yaml
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Where:
    """What is looked at in a cluster; see the flags of the same names."""

    address: Address
    namespace: str
    exception_namespace: str | None


def _files(*names: str, text: str) -> Callable[[T], T]:
    return click.option(*names, multiple=True, metavar="FILE", help=text)


@click.command("apply", epilog=_EPILOG)
@click.argument("policies", nargs=-1, required=True, metavar="POLICY...")
@_files("--resource", "-r", "resources", text="Triggers; - is standard input. May be repeated.")
@click.option(
    "--cluster",
    is_flag=True,
    help="Read targets, what entries read and, without --resource, triggers from a cluster.",
)
@click.option("--namespace", "-n", default="", help="With --cluster: triggers in this one only.")
@cluster_options
@_files("--target-resource", "-t", "targets", text="Objects that rules find as targets.")
@_files(
    "--context-file",
    "contexts",
    text="Objects and data that context entries read.",
)
@_files("--exception", "exceptions", text="PolicyExceptions to heed.")
@exception_namespace
@click.option("--set", "settings", multiple=True, metavar="PATH=VALUE", help="A variable's value.")
@click.option("--values-file", "-f", "values", metavar="FILE", help="Values of variables.")
@click.option("--userinfo", "-u", metavar="FILE", help="Who sends the requests.")
@click.option(
    "--output",
    "-o",
    type=click.Choice(FORMATS),
    default="diff",
    show_default=True,
    help="diff for people; yaml, json: all triggers and what else changed; patch: RFC 6902.",
)
@click.option("--verbose", "-v", is_flag=True, help="diff: say why rules left objects alone.")
@click.option("--check", is_flag=True, help=f"Exit with {CHANGES} when something would change.")
def apply(
    *,
    output: str,
    verbose: bool,
    check: bool,
    cluster: bool,
    namespace: str,
    **paths: Any,
) -> None:
    """Show what policies would change, rule by rule and object by object; nothing is written.

    POLICY and FILE are files with YAML or JSON documents, folders, or quoted wildcards. Policies
    and their rules apply one after the other, each on what the one before it made.

    \b
    Exit code:
      0  everything was evaluated, whether or not something would change
      1  an input cannot be used, a policy is refused, or a rule ended in an error
      2  wrong usage
      3  with --check: something would change
    """  # noqa: D301 - click's mark for text that is not to be wrapped
    address = Address(**{name: paths.pop(name) for name in ("kubeconfig", "context", "user")})
    _check_flags(paths, address, namespace, cluster=cluster)
    # What is piped into kubectl must not end in the middle when a later file is unreadable.
    streamed = output in STREAMED and not cluster
    where = _Where(
        address=address,
        namespace=namespace,
        exception_namespace=paths.pop("exception_namespace"),
    )
    inputs = read_inputs(Paths(user=paths.pop("userinfo"), **paths), streamed=streamed)
    for text in (*inputs.policies.warnings, *(item.message for item in inputs.policies.refused)):
        click.echo(text, err=True)
    summary = Summary()
    writer = writer_of(output, sys.stdout, verbose=verbose, unplaced=inputs.unplaced)
    if cluster:
        unread = asyncio.run(_work_live(inputs, writer, summary, where))
    else:
        unread = asyncio.run(_work(inputs, writer, summary))
    writer.close()
    summary.show(sys.stderr)
    for text in unread:
        click.echo(f"not read: {text}", err=True)
    refused = any(not item.foreign for item in inputs.policies.refused)
    if refused or summary.errors or unread:
        sys.exit(WRONG)
    if check and summary.changed:
        sys.exit(CHANGES)


def _check_flags(
    paths: Mapping[str, Any], address: Address, namespace: str, *, cluster: bool
) -> None:
    if not cluster:
        chosen = "--exception-namespace" if paths["exception_namespace"] is not None else ""
        if flag := address.given or ("--namespace" if namespace else chosen):
            raise click.UsageError(f"{flag} needs --cluster")
        if not paths["resources"]:
            raise click.UsageError("name the triggers with --resource FILE, or --cluster")
        return
    for name, flag in (("targets", "--target-resource"), ("contexts", "--context-file")):
        if paths[name]:
            raise click.UsageError(f"{flag} gives what --cluster reads: leave one of them out")
    if namespace and paths["resources"]:
        raise click.UsageError(
            "--namespace chooses triggers of the cluster, --resource gives them"
        )


async def _work(inputs: Inputs, writer: Writer, summary: Summary) -> list[str]:
    session = _session(inputs, inputs.stock)
    with _progress(inputs.triggers) as triggers:
        for trigger in triggers:
            run = await session.run(trigger)
            summary.add(run)
            writer.write(run)
    return []


async def _work_live(inputs: Inputs, writer: Writer, summary: Summary, where: _Where) -> list[str]:
    """Evaluate on a cluster; return what cannot be read there."""
    async with live_cluster(where.address) as live:
        policies = {policy.key for policy in inputs.policies.compiled}
        exceptions = await heeded_exceptions(
            live, where.exception_namespace, policies, inputs.exceptions
        )
        inputs = replace(inputs, exceptions=exceptions)
        session = _session(inputs, LiveStock(live))
        if inputs.triggers:
            for trigger in inputs.triggers:
                run = await session.run(trigger)
                summary.add(run)
                writer.write(run)
            return []
        walk = Walk(live, [it for policy in inputs.policies.compiled for it in policy.programs])
        with Bar(hidden=sys.stdout.isatty()) as bar:
            async for triggers, left in walk.pages(where.namespace):
                for trigger in triggers:
                    run = await session.run(trigger)
                    summary.add(run)
                    # A list is wider than match: what no rule matches is not to be written.
                    if run.results:
                        writer.write(run)
                    bar.advance(1, left)
        return walk.unread


def _session(inputs: Inputs, stock: Source) -> Session:
    return Session(
        policies=inputs.policies.compiled,
        stock=stock,
        values=inputs.values,
        user=inputs.user,
        exceptions=inputs.exceptions,
        chained=isinstance(inputs.triggers, Sequence),
    )


@contextmanager
def _progress(triggers: Sequence[Object] | Iterator[Object]) -> Iterator[Iterator[Object]]:
    few = isinstance(triggers, Sequence) and len(triggers) < _MANY
    # A bar between the lines of a diff on the same terminal would be noise.
    if few or not sys.stderr.isatty() or sys.stdout.isatty():
        yield iter(triggers)
        return
    with click.progressbar(triggers, label="objects", file=sys.stderr) as bar:
        yield iter(bar)
