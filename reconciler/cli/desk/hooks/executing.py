"""Runs of executable hooks on this machine, in an environment without access to a cluster."""

import os
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import click

from reconciler.cli.output.screen import warn
from reconciler.errors import InvalidPolicy, InvalidSetting
from reconciler.execution.discovery import Executable, find_executables
from reconciler.execution.environment import clean_environment
from reconciler.execution.executables import Executables
from reconciler.hooks.bindings import HookConfig
from reconciler.isolation.jq import JqWorkers
from reconciler.services.hooks.compiling import read_printed
from reconciler.services.ports.jq import Jq

_CLUSTER: Final = ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")


@asynccontextmanager
async def desk_tools(added: Sequence[str] = ()) -> AsyncIterator[tuple[Executables, Jq]]:
    """Yield a runner of executables, without access to a cluster, and an evaluator of jq programs.

    Args:
        added: Names of additional variables for hooks, even if they give access to a cluster.
    """
    jq = JqWorkers(workers=1)
    try:
        with tempfile.TemporaryDirectory(prefix="retrofit-") as folder:
            environment = clean_environment(os.environ, added)
            for name in _CLUSTER:
                if name not in added:
                    environment.pop(name, None)
            # Without KUBECONFIG, kubectl reads its configuration from HOME.
            if "HOME" not in added:
                environment["HOME"] = folder
            yield Executables(folder=Path(folder), environment=environment), jq
    finally:
        await jq.close()


def executables_in(path: Path) -> list[Executable]:
    """Return the executable at a path, or all executables of a folder.

    Raises:
        InvalidSetting: No executable is found.
    """
    if not path.exists():
        raise InvalidSetting(f"{path}: there is no such file")
    if path.is_dir():
        found = find_executables(path)
        for name in found.skipped:
            warn(f"{path / name} is skipped: it is not executable; chmod +x makes it a hook")
        if not found.executables:
            raise InvalidSetting(f"{path}: there is no executable file in this folder")
        return list(found.executables)
    if not os.access(path, os.X_OK):
        raise InvalidSetting(f"{path}: it is not executable; chmod +x makes it a hook")
    return [Executable(path.name, path.resolve())]


yes_option = click.option(
    "--yes", "-y", is_flag=True, help="Run executables on this machine without asking."
)
hook_env_option = click.option(
    "--hook-env",
    "added",
    multiple=True,
    metavar="NAME",
    help="A variable to pass to hooks as well, such as KUBECONFIG. May be repeated.",
)


def confirm(path: Path, *, yes: bool) -> None:
    """Ask the user whether executables may be run, unless ``yes`` is set.

    Raises:
        InvalidSetting: The user declines, or standard input is not a terminal.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidSetting(f"{path} would be run on this machine: allow it with --yes")
    if not _agreed(f"Run {path} on this machine, as you?"):
        raise InvalidSetting(f"{path} was not run")


def _agreed(question: str) -> bool:
    try:
        return click.confirm(question, err=True)
    except click.Abort as error:
        click.echo(err=True)  # The cursor is behind the question.
        if isinstance(error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        return False


async def config_of(executables: Executables, executable: Executable, jq: Jq) -> HookConfig:
    """Return the configuration that an executable prints, with its jq programs compiled.

    Raises:
        InvalidPolicy: The configuration is invalid; the error holds all faults.
    """
    return await read_printed(await executables.config(executable), jq)


def faults_of(error: InvalidPolicy) -> Iterator[str]:
    """Yield one line for each fault of a configuration."""
    yield from map(str, (InvalidPolicy(error.location, error.reason), *error.others))
