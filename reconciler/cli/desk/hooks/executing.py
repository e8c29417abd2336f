"""An executable at the desk: its configuration, and a run that reaches no cluster by itself."""

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
from reconciler.execution.configuring import read_printed
from reconciler.execution.discovery import Executable, find_executables
from reconciler.execution.environment import clean_environment
from reconciler.execution.executables import Executables
from reconciler.hooks.bindings import HookConfig
from reconciler.isolation.jq import JqWorkers
from reconciler.services.ports.jq import Jq

_CLUSTER: Final = ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")


@asynccontextmanager
async def desk_tools(added: Sequence[str] = ()) -> AsyncIterator[tuple[Executables, Jq]]:
    """Give what runs executables, in an environment that leads to no cluster, and jq programs.

    Args:
        added: Names of variables that a hook gets as well, whatever they lead to.
    """
    jq = JqWorkers(workers=1)
    try:
        with tempfile.TemporaryDirectory(prefix="retrofit-") as folder:
            environment = clean_environment(os.environ, added)
            for name in _CLUSTER:
                if name not in added:
                    environment.pop(name, None)
            # What kubectl reads without KUBECONFIG lies there.
            if "HOME" not in added:
                environment["HOME"] = folder
            yield Executables(folder=Path(folder), environment=environment), jq
    finally:
        await jq.close()


def executables_in(path: Path) -> list[Executable]:
    """Return one executable, or all of a folder.

    Raises:
        InvalidSetting: There is none.
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


def confirm(path: Path, *, yes: bool) -> None:
    """Ask whether executables may be run, unless somebody has said so.

    Raises:
        InvalidSetting: They may not, or there is nobody to ask.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidSetting(f"{path} would be run on this machine: allow it with --yes")
    if not click.confirm(f"Run {path} on this machine, as you?", err=True):
        raise InvalidSetting(f"{path} was not run")


async def config_of(executables: Executables, executable: Executable, jq: Jq) -> HookConfig:
    """Return the configuration that an executable prints, its jq programs compiled.

    Raises:
        InvalidPolicy: It prints none that can be used; all places.
    """
    return await read_printed(await executables.config(executable), jq)


def faults_of(error: InvalidPolicy) -> Iterator[str]:
    """Yield what is wrong with a configuration, a line each."""
    yield from map(str, (InvalidPolicy(error.location, error.reason), *error.others))
