"""The commands of `retrofit hooks`."""

import asyncio
import sys
from pathlib import Path
from typing import Final

import click

from reconciler.cli.desk.file_objects import FileObjects, Scopes
from reconciler.cli.desk.files import NamedPath
from reconciler.cli.desk.hooks.answer import answer
from reconciler.cli.desk.hooks.bindings import REASONS, DeskBindings, Occasion, outline
from reconciler.cli.desk.hooks.effects import effects_of
from reconciler.cli.desk.hooks.executing import (
    config_of,
    confirm,
    desk_tools,
    executables_in,
    faults_of,
    hook_env_option,
    yes_option,
)
from reconciler.cli.desk.hooks.report import Report
from reconciler.cli.desk.hooks.subjects import Declared, DeskHook, Script, declared_in, is_declared
from reconciler.cli.desk.inputs import placed
from reconciler.cli.output.exits import FINDINGS
from reconciler.cli.output.masking import Mask, mask_of
from reconciler.cli.output.screen import screen_of, warn
from reconciler.cli.output.table import table
from reconciler.errors import InvalidPolicy, InvalidSetting
from reconciler.hooks.bindings import DELETED
from reconciler.hooks.operations import after_failure, read_operations
from reconciler.services.ports.jq import Jq

_HEAD: Final = ("HOOK", "BINDING", "ON", "QUEUE")
_TIMEOUT: Final = 60.0

_GROUP_EPILOG = """\b
Examples:
  retrofit hooks list hooks/ --yes
  retrofit hooks run hooks/pods-hook.sh --event Added -r pod.yaml
"""
_LIST_EPILOG = """\b
Examples:
  retrofit hooks list hooks/
  retrofit hooks list hooks/pods-hook.sh --yes
"""
_RUN_EPILOG = """\b
Examples:
  retrofit hooks run hooks/pods-hook.sh --event Added -r pod.yaml
  retrofit hooks run hooks/nightly.py --event Schedule -t objects/ --yes
  retrofit hooks run copy-settings.yaml --event Added -r settings.yaml
"""


@click.group("hooks", epilog=_GROUP_EPILOG)
def hooks() -> None:
    """List and try hooks; nothing is written to a cluster."""


hooks.add_command(answer)


@hooks.command("list", epilog=_LIST_EPILOG)
@click.argument("path", type=NamedPath(path_type=Path))
@hook_env_option
@yes_option
def list_(path: Path, added: tuple[str, ...], *, yes: bool) -> None:
    """List the hooks of a folder with their bindings.

    Each executable is run with --config, in an environment without access to a cluster.

    \b
    Exit code:
      0  all hooks can be used
      1  the configuration of a hook cannot be used
      2  could not run: wrong usage, no executable file
    """  # noqa: D301 - click's mark for text that is not to be wrapped
    if is_declared(path):
        cure = "name executables; `retrofit hooks run` tries a Hook of a file"
        raise InvalidSetting(f"{path}: it is no executable: {cure}")
    found = executables_in(path)
    confirm(path, yes=yes)
    rows: list[tuple[str, ...]] = [_HEAD]

    async def look() -> int:
        faults = 0
        async with desk_tools(added) as (executables, jq):
            for executable in found:
                try:
                    config = await config_of(executables, executable, jq)
                except InvalidPolicy as error:
                    faults += 1
                    for line in faults_of(error):
                        warn(f"{executable.name}: {line}")
                    continue
                rows.extend((executable.name, *row) for row in outline(config))
        return faults

    refused = asyncio.run(look())
    if len(rows) > 1:
        for line in table(rows, screen_of(sys.stdout).width):
            click.echo(line)
    if refused:
        sys.exit(FINDINGS)


@hooks.command("run", epilog=_RUN_EPILOG)
@click.argument("path", metavar="HOOK", type=NamedPath(path_type=Path))
@click.option(
    "--event",
    "reason",
    required=True,
    type=click.Choice(REASONS, case_sensitive=False),
    help="Why the hook runs.",
)
@click.option("--binding", default="", metavar="NAME", help="Only for this binding.")
@click.option(
    "--resource", "-r", "resources", multiple=True, metavar="FILE", help="Objects of the event."
)
@click.option(
    "--target-resource",
    "-t",
    "targets",
    multiple=True,
    metavar="FILE",
    help="Other objects of the cluster: for snapshots, and for operations to change.",
)
@click.option(
    "--timeout",
    "seconds",
    default=_TIMEOUT,
    show_default=True,
    metavar="SECONDS",
    help="Time limit of the run.",
)
@click.option(
    "--hook",
    "name",
    default="",
    metavar="NAME",
    help="The Hook to run, if the file contains several.",
)
@click.option("--show-secrets", is_flag=True, help="Show the content of Secrets.")
@hook_env_option
@yes_option
def run(
    path: Path,
    reason: str,
    binding: str,
    resources: tuple[str, ...],
    targets: tuple[str, ...],
    *,
    name: str,
    seconds: float,
    added: tuple[str, ...],
    show_secrets: bool,
    yes: bool,
) -> None:
    """Run a hook once, and show what it would change.

    HOOK is an executable, or a file with a Hook or ClusterHook. An executable gets the same
    files and variables as in a cluster, but no access to one. The command shows the
    input and the output of the hook. Operations are carried out in memory, on the objects of the
    files.

    \b
    Exit code:
      0  the hook succeeded
      1  it failed, or an operation of it would
      2  could not run: wrong usage, a missing file, no such binding
    """  # noqa: D301 - click's mark for text that is not to be wrapped
    scopes = Scopes()
    about, besides = placed(resources, scopes), placed(targets, scopes)
    if path.is_dir():
        raise InvalidSetting(
            f"{path}: it is a folder; name one hook, or see `retrofit hooks list`"
        )
    try:
        declared = declared_in(path, name) if is_declared(path) else None
    except InvalidPolicy as error:
        for line in faults_of(error):
            warn(f"{path}: {line}")
        sys.exit(FINDINGS)
    found = executables_in(path) if declared is None else []
    if declared is None:
        confirm(path, yes=yes)
    file_objects = FileObjects(besides if reason == DELETED else [*about, *besides])
    mask = Mask() if show_secrets else mask_of([*about, *besides])
    occasion = Occasion(reason=reason, objects=about, binding=binding)

    async def play() -> bool:
        async with desk_tools(added) as (executables, jq):
            hook: DeskHook = (
                Script(executable=found[0], executables=executables, jq=jq, seconds=seconds)
                if declared is None
                else Declared(hook=declared, jq=jq)
            )
            return await _play(hook, jq, file_objects, occasion, Report(sys.stdout, mask))

    if not asyncio.run(play()):
        sys.exit(FINDINGS)


async def _play(
    hook: DeskHook, jq: Jq, file_objects: FileObjects, occasion: Occasion, report: Report
) -> bool:
    """Run a hook, from its configuration to its effects; return whether all of it succeeded."""
    try:
        config = await hook.config()
        given = await DeskBindings(config, jq, file_objects).contexts(occasion)
        report.contexts(given)
        played = await hook.play(given, report.line)
        for problem in played.problems:
            warn(f"{hook.name}: {problem}")
        if played.failure:
            warn(f"{hook.name} failed: {played.failure}")
        operations = read_operations(played.operations)
    except InvalidPolicy as error:
        for line in faults_of(error):
            warn(f"{hook.name}: {line}")
        return False
    if played.failure:
        operations = after_failure(operations)
    effects = await effects_of(
        operations, file_objects, jq, confined_to=hook.confined_to, guard=hook.guard
    )
    report.effects(effects)
    if played.metrics:
        report.metrics(played.metrics)
    return not played.failure and not any(effect.error for effect in effects)
