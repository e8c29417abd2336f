"""The command `retrofit apply`: what would change, without a cluster."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from reconciler.api.meta import Object
from reconciler.cli.desk.inputs import Inputs, Paths, read_inputs
from reconciler.cli.desk.output import FORMATS, Writer, writer_of
from reconciler.cli.desk.session import Session, TriggerRun
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
"""


def _files(*names: str, text: str) -> Callable[[T], T]:
    return click.option(*names, multiple=True, metavar="FILE", help=text)


@click.command("apply", epilog=_EPILOG)
@click.argument("policies", nargs=-1, required=True, metavar="POLICY...")
@_files("--resource", "-r", "resources", text="Triggers; - is standard input. May be repeated.")
@_files("--target-resource", "-t", "targets", text="Objects that rules find as targets.")
@_files(
    "--context-file",
    "contexts",
    text="Objects and data that context entries read.",
)
@_files("--exception", "exceptions", text="PolicyExceptions to heed.")
@click.option("--set", "settings", multiple=True, metavar="PATH=VALUE", help="A variable's value.")
@click.option("--values-file", "-f", "values", metavar="FILE", help="Values of variables.")
@click.option("--userinfo", "-u", "user", metavar="FILE", help="Who sends the requests.")
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
def apply(*, output: str, verbose: bool, check: bool, **paths: Any) -> None:
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
    if not paths["resources"]:
        raise click.UsageError("name the triggers with --resource FILE")
    inputs = read_inputs(Paths(**paths))
    for text in (*inputs.policies.warnings, *(item.message for item in inputs.policies.refused)):
        click.echo(text, err=True)
    summary = Summary()
    writer = writer_of(output, sys.stdout, verbose=verbose, unplaced=inputs.unplaced)
    asyncio.run(_work(inputs, writer, summary))
    writer.close()
    summary.show(sys.stderr)
    refused = any(not item.foreign for item in inputs.policies.refused)
    if refused or summary.errors:
        sys.exit(WRONG)
    if check and summary.changed:
        sys.exit(CHANGES)


async def _work(inputs: Inputs, writer: Writer, summary: Summary) -> None:
    session = Session(
        policies=inputs.policies.compiled,
        stock=inputs.stock,
        values=inputs.values,
        user=inputs.user,
        exceptions=inputs.exceptions,
    )
    with _progress(inputs.triggers) as triggers:
        async for run in _runs(session, triggers):
            summary.add(run)
            writer.write(run)


async def _runs(session: Session, triggers: Iterator[Object]) -> AsyncIterator[TriggerRun]:
    for trigger in triggers:
        yield await session.run(trigger)


@contextmanager
def _progress(triggers: Sequence[Object]) -> Iterator[Iterator[Object]]:
    # A bar between the lines of a diff on the same terminal would be noise.
    if len(triggers) < _MANY or not sys.stderr.isatty() or sys.stdout.isatty():
        yield iter(triggers)
        return
    with click.progressbar(triggers, label="objects", file=sys.stderr) as bar:
        yield iter(bar)
