"""The command `retrofit apply`: the changes that policies would make, in files or a cluster."""

import asyncio
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource

from reconciler.api.meta import Object
from reconciler.cli.desk.cue import cue_option
from reconciler.cli.desk.file_objects import FileObjects
from reconciler.cli.desk.inputs import Inputs, Paths, read_inputs
from reconciler.cli.desk.live import Address, address_of, cluster_options, live_cluster
from reconciler.cli.desk.live_objects import LiveObjects, Walk
from reconciler.cli.desk.operations import operation_of_flag, operation_option
from reconciler.cli.desk.output import COUNTED, FORMATS, HEADED, STREAMED, Writer, writer_of
from reconciler.cli.desk.progress import Bar
from reconciler.cli.desk.session import Session
from reconciler.cli.desk.stored import exception_namespace, honoured_exceptions
from reconciler.cli.desk.summary import Summary, passed_over
from reconciler.cli.output.exits import FINDINGS
from reconciler.cli.output.screen import screen_of, warn
from reconciler.cli.output.terminal import bare_stream
from reconciler.errors import InvalidSetting, RetrofitError

T = TypeVar("T", bound=Callable[..., Any])

_MANY = 200

_EPILOG = """\b
Examples:
  retrofit apply policy.yaml objects.yaml
  retrofit apply policies/ -r trigger.yaml -t 'targets/*.yaml'
  retrofit apply policy.yaml -r trigger.yaml -t all/ --operation DELETE
  kustomize build . | retrofit apply policy.yaml -r - -o yaml
  retrofit apply policy.yaml -r objects/ --check
  retrofit apply policy.yaml --cluster -n shop
  retrofit apply policy.yaml --cluster -r new-trigger.yaml
"""


_LISTS: Final = {
    "resources": "resource_lists",
    "targets": "target_lists",
    "exceptions": "exception_lists",
}
"""The options that name single files, and the matching options that take lists."""


def _files(*names: str, text: str) -> Callable[[T], T]:
    return click.option(*names, multiple=True, metavar="FILE", help=text)


def _lists(*names: str, text: str) -> Callable[[T], T]:
    return click.option(*names, multiple=True, metavar="FILE,...", help=text)


@click.command("apply", epilog=_EPILOG)
@click.argument("policies", nargs=-1, required=True, metavar="POLICY... [FILE...]")
@_files("--resource", "-r", "resources", text="Triggers; - is standard input. May be repeated.")
@_lists("--resources", "resource_lists", text="As --resource, for several files: a.yaml,b.yaml.")
@click.option(
    "--cluster",
    is_flag=True,
    help="Read targets, the objects of context entries and, without --resource, the triggers from"
    " a cluster.",
)
@click.option(
    "--namespace", "-n", default="", help="With --cluster: only triggers in this namespace."
)
@cluster_options
@_files("--target-resource", "-t", "targets", text="Objects that rules find as targets.")
@_lists("--target-resources", "target_lists", text="As --target-resource, for several files.")
@_files("--context-file", "contexts", text="Objects and data that context entries read.")
@_files("--exception", "exceptions", text="PolicyExceptions to honour.")
@_lists("--exceptions", "exception_lists", text="As --exception, for several files.")
@exception_namespace
@click.option(
    "--set", "settings", multiple=True, metavar="PATH=VALUE", help="The value of a variable."
)
@click.option(
    "--values-file", "-f", "values", metavar="FILE", help="A file with values of variables."
)
@cue_option
@operation_option
@click.option("--userinfo", "-u", metavar="FILE", help="Who sends the requests.")
@click.option(
    "--output",
    "-o",
    type=click.Choice(FORMATS),
    default="diff",
    show_default=True,
    help="diff: for people; yaml, json: all triggers and all changed targets; patch: RFC 6902;"
    " kyverno: the format of Kyverno's command.",
)
@click.option("--stdin", "-i", "piped", is_flag=True, help="The same as -o yaml, for a pipe.")
@click.option(
    "--verbose",
    "-v",
    is_flag=True,
    help="Show on stderr which operation is assumed, why rules changed nothing, and which files"
    " were ignored.",
)
@click.option(
    "--show-secrets",
    is_flag=True,
    help="Show the content of Secrets in diffs and messages, instead of ***.",
)
@click.option("--check", is_flag=True, help=f"Exit with {FINDINGS} if something would change.")
@click.option(
    "--warn-exit-code",
    type=click.IntRange(0, 255),
    default=0,
    metavar="N",
    help="Exit code instead of 0 if a rule was skipped with a warning.",
)
@click.option(
    "--warn-no-pass", is_flag=True, help="With --warn-exit-code: also if nothing would change."
)
def apply(
    *,
    output: str,
    piped: bool,
    verbose: bool,
    show_secrets: bool,
    check: bool,
    warn_exit_code: int,
    warn_no_pass: bool,
    cluster: bool,
    namespace: str,
    **paths: Any,
) -> None:
    """Show what policies would change, rule by rule and object by object; nothing is written.

    POLICY and FILE are files with YAML or JSON documents, folders, quoted wildcards, or https
    addresses. Without --resource, the triggers are in the arguments that contain no policy.
    Policies and their rules apply one after the other, each to the result of the one before.

    \b
    Exit code:
      0  everything was evaluated, whether or not something would change
      1  a policy is refused, or a rule ended in an error; --check: something
         would change
      2  could not run: wrong usage, a file or the cluster cannot be read
      N  with --warn-exit-code: there are warnings
    """  # noqa: D301 - click's mark for text that is not to be wrapped
    paths = _joined(paths)
    address = address_of(paths)
    operation = operation_of_flag(paths.pop("operation"))
    output = _format(output, piped=piped)
    _check_flags(paths, address, namespace, cluster=cluster)
    # Output that is piped into kubectl must not end halfway when a later file is unreadable.
    streamed = output in STREAMED and not cluster
    exceptions = paths.pop("exception_namespace")
    inputs = read_inputs(Paths(user=paths.pop("userinfo"), **paths), streamed=streamed)
    _check_triggers(inputs, namespace, cluster=cluster)
    for text in (*inputs.policies.warnings, *(item.message for item in inputs.policies.refused)):
        warn(text)
    if not inputs.policies.compiled and not inputs.policies.wrong:
        raise InvalidSetting("no policy of a language that is evaluated here: nothing to apply")
    summary = Summary(verbose=verbose, shows_secrets=show_secrets)
    writer = writer_of(
        output,
        sys.stdout,
        rules=sum(len(policy.programs) for policy in inputs.policies.compiled),
        unplaced=inputs.unplaced,
        shows_secrets=show_secrets,
    )
    work = _Work(inputs=inputs, operation=operation, writer=writer, summary=summary)
    try:
        unread = asyncio.run(
            work.live(address, namespace, exceptions, paths["cue"]) if cluster else work.offline()
        )
    except RetrofitError:
        _tell(summary.remarks(screen_of(sys.stderr)))
        raise
    writer.close()
    faults = inputs.policies.wrong + len(unread)
    _conclude(summary, inputs, unread, faults, output)
    if faults or summary.errors or summary.rejections or (check and summary.changed):
        sys.exit(FINDINGS)
    if summary.warnings or (warn_no_pass and not summary.changed):
        sys.exit(warn_exit_code)


def _joined(paths: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with the files of each list option merged into its plain option."""
    found = {name: value for name, value in paths.items() if name not in _LISTS.values()}
    for name, lists in _LISTS.items():
        listed = (file for item in paths[lists] for file in item.split(","))
        found[name] = (*found[name], *filter(None, listed))
    return found


def _format(output: str, *, piped: bool) -> str:
    source = click.get_current_context().get_parameter_source("output")
    if piped and source is not ParameterSource.DEFAULT and output != "yaml":
        raise click.UsageError(f"--stdin is -o yaml: leave -o {output} or --stdin out")
    return "yaml" if piped else output


def _conclude(
    summary: Summary, inputs: Inputs, unread: list[str], faults: int, output: str
) -> None:
    screen = screen_of(sys.stderr)
    _tell(summary.remarks(screen))
    for text in unread:
        warn(f"not read: {text}")
    if text := passed_over(inputs.passed_over, whole=summary.verbose):
        warn(text)
    ended = summary.changed or summary.errors or summary.rejections or summary.warnings
    if not (ended or faults or summary.verbose):
        warn("nothing would change; -v says why")
    counted, headed = output in COUNTED, output in HEADED
    if not headed:
        _tell(summary.lines(screen, faults=faults, totals=counted))
    if counted:
        # In other formats standard output holds nothing but the objects or the diff.
        click.echo(summary.totals(faults=faults), err=not headed)


def _tell(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line, err=True)


def _check_flags(
    paths: Mapping[str, Any], address: Address, namespace: str, *, cluster: bool
) -> None:
    if not cluster:
        chosen = "--exception-namespace" if paths["exception_namespace"] is not None else ""
        if flag := address.given or ("--namespace" if namespace else chosen):
            raise click.UsageError(f"{flag} needs --cluster")
        return
    for name, flag in (("targets", "--target-resource"), ("contexts", "--context-file")):
        if paths[name]:
            raise click.UsageError(f"{flag} gives what --cluster reads: leave one of them out")


def _check_triggers(inputs: Inputs, namespace: str, *, cluster: bool) -> None:
    given = not isinstance(inputs.triggers, Sequence) or bool(inputs.triggers)
    if not (given or cluster):
        raise click.UsageError(
            "name the triggers: after the policy, with --resource FILE, or --cluster;"
            " what lies beside a policy in a file or folder is no trigger"
        )
    if given and namespace:
        raise click.UsageError(
            "--namespace selects triggers in the cluster; leave it out with --resource"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """The inputs of one call, and the destinations of its results."""

    inputs: Inputs
    operation: str | None
    writer: Writer
    summary: Summary

    async def offline(self) -> list[str]:
        """Evaluate on files; return an empty list, since nothing can be unreadable here."""
        session = self._session(self.inputs, self.inputs.file_objects)
        with _progress(self.inputs.triggers) as triggers:
            for trigger in triggers:
                await self._one(session, trigger)
        return []

    async def live(
        self, address: Address, namespace: str, exceptions: str | None, cue: str
    ) -> list[str]:
        """Evaluate on a cluster; return a message for each kind that cannot be read."""
        inputs = self.inputs
        async with live_cluster(address, cue=cue) as live:
            policies = {policy.key for policy in inputs.policies.compiled}
            honoured = await honoured_exceptions(live, exceptions, policies, inputs.exceptions)
            inputs = replace(inputs, exceptions=honoured)
            session = self._session(inputs, LiveObjects(live))
            if inputs.triggers:
                for trigger in inputs.triggers:
                    await self._one(session, trigger)
                return []
            programs = [it for policy in inputs.policies.compiled for it in policy.programs]
            walk = Walk(live, programs)
            with Bar(hidden=sys.stdout.isatty()) as bar:
                async for triggers, left in walk.pages(namespace):
                    for trigger in triggers:
                        # The lists are wider than match: skip objects that no rule matches.
                        await self._one(session, trigger, always=False)
                        bar.advance(1, left)
            return walk.unread

    async def _one(self, session: Session, trigger: Object, *, always: bool = True) -> None:
        run = await session.run(trigger)
        self.summary.add(run)
        if always or run.results:
            self.writer.write(run)

    def _session(self, inputs: Inputs, file_objects: FileObjects | LiveObjects) -> Session:
        return Session(
            policies=inputs.policies.compiled,
            file_objects=file_objects,
            values=inputs.values,
            user=inputs.user,
            operation=self.operation,
            exceptions=inputs.exceptions,
            chained=isinstance(inputs.triggers, Sequence),
            targets_given=inputs.targets_given or isinstance(file_objects, LiveObjects),
        )


@contextmanager
def _progress(triggers: Sequence[Object] | Iterator[Object]) -> Iterator[Iterator[Object]]:
    few = isinstance(triggers, Sequence) and len(triggers) < _MANY
    # A progress bar would garble a diff on the same terminal.
    if few or not sys.stderr.isatty() or sys.stdout.isatty():
        yield iter(triggers)
        return
    with click.progressbar(triggers, label="objects", file=bare_stream(sys.stderr)) as bar:
        yield iter(bar)
