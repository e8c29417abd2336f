"""The command line of `retrofit preview`."""

import asyncio
import sys
from collections.abc import Mapping
from typing import Any

import click

from reconciler.cli.desk.cue import cue_option
from reconciler.cli.desk.emit import render_yaml
from reconciler.cli.desk.files import NamedPath, read_one
from reconciler.cli.desk.inputs import read_exceptions
from reconciler.cli.desk.live import address_of, cluster_options
from reconciler.cli.desk.operations import POLICY_UPDATE, operation_of_flag, operation_option
from reconciler.cli.desk.stored import exception_namespace
from reconciler.cli.desk.summary import passed_over
from reconciler.cli.desk.values import read_user
from reconciler.cli.output.encoding import json_of
from reconciler.cli.output.exits import FINDINGS
from reconciler.cli.output.screen import screen_of, warn
from reconciler.cli.preview.baseline import read_baseline, write_baseline
from reconciler.cli.preview.data import data_of
from reconciler.cli.preview.policies import read_files, split_names
from reconciler.cli.preview.report import Report, lines_of
from reconciler.cli.preview.run import DEFAULT_LIMIT, Wish, run

_FORMATS = ("table", "json", "yaml")

_EPILOG = """\b
Examples:
  retrofit preview policy.yaml
  retrofit preview policy.yaml --server-dry-run --limit 0
  retrofit preview clusterpolicy/reload policy/shop/restart --context staging
  retrofit preview policies/ --write-baseline touched.yaml
  retrofit preview policies/ --baseline touched.yaml
"""


@click.command("preview", epilog=_EPILOG)
@click.argument("policies", nargs=-1, required=True, metavar="POLICY...")
@click.option(
    "--server-dry-run",
    is_flag=True,
    help="Let the API server try each change without storing it, and show what it refuses.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=DEFAULT_LIMIT,
    show_default=True,
    help="Number of diffs, and of problems, to show for each rule; 0: all. Everything is counted.",
)
@click.option("--namespace", "-n", default="", help="Only triggers in this namespace.")
@operation_option
@click.option("--userinfo", "-u", metavar="FILE", help="Who sends the requests.")
@click.option(
    "--exception", "exceptions", multiple=True, metavar="FILE", help="PolicyExceptions to honour."
)
@exception_namespace
@click.option("--service-hosts", default="", help="Hosts that context entries may call.")
@cue_option
@click.option(
    "--baseline",
    "expected",
    metavar="FILE",
    help="Fail unless exactly the objects in this file would be changed.",
)
@click.option(
    "--write-baseline",
    "kept",
    metavar="FILE",
    type=NamedPath(),
    help="Write a file with the objects that would be changed.",
)
@cluster_options
@click.option("--output", "-o", type=click.Choice(_FORMATS), default="table", show_default=True)
def preview(
    policies: tuple[str, ...], *, expected: str | None, kept: str | None, output: str, **flags: Any
) -> None:
    """Show what policies would do to the objects of a live cluster; nothing is written.

    POLICY is a file, an https address, a folder, a quoted wildcard or - for standard input; or
    clusterpolicy/NAME (also NAME) or policy/NAMESPACE/NAME (also NAMESPACE/NAME) for a
    policy in the cluster. Rules apply one after the other, each to the result of the one before.
    The content of Secrets is not shown.

    \b
    Exit code:
      0  everything was evaluated, whether or not something would change
      1  a policy is refused; something cannot be read, ended in an error, or
         would be refused; --baseline: other objects would be changed
      2  could not run: wrong usage, a file or the cluster cannot be read
    """  # noqa: D301 - click's mark for text that is not to be wrapped
    if expected and kept:
        raise click.UsageError("--baseline compares and --write-baseline stores: give one of them")
    address = address_of(flags)
    operation, sender = operation_of_flag(flags.pop("operation")), flags.pop("userinfo")
    if sender is not None and operation == POLICY_UPDATE:
        raise click.UsageError("--userinfo: there is no request when the policy changes")
    files, stored = split_names(policies)
    exceptions = flags.pop("exceptions")
    if [*files, *exceptions].count("-") > 1:
        raise click.UsageError("standard input (-) can be read once only")
    left_out: set[str] = set()
    wish = Wish(
        found=read_files(files, left_out.add),
        stored=stored,
        address=address,
        operation=operation,
        user={} if sender is None else _user(sender),
        exceptions=read_exceptions(exceptions),
        expected=None if expected is None else read_baseline(expected),
        **flags,
    )
    if text := passed_over(left_out, whole=False):
        warn(text)
    report = asyncio.run(run(wish, warn=warn))
    _show(report, output)
    if kept is not None:
        if report.incomplete:
            warn(f"Error: {kept}: not written, because not everything could be previewed")
            sys.exit(FINDINGS)
        write_baseline(kept, report.changed)
    if report.incomplete or report.refused or report.difference:
        sys.exit(FINDINGS)


def _user(name: str) -> Mapping[str, Any]:
    user, info = read_user(*read_one(name))
    return {
        "userInfo": info,
        "roles": list(user.roles or ()),
        "clusterRoles": list(user.cluster_roles or ()),
    }


def _show(report: Report, output: str) -> None:
    match output:
        case "json":
            click.echo(json_of(data_of(report)))
        case "yaml":
            click.echo(render_yaml(data_of(report)), nl=False)
        case _:
            for line in lines_of(report, screen_of(sys.stdout)):
                click.echo(line)
