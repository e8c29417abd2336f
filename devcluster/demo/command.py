"""The command `retrofit dev demo`."""

import os
from pathlib import Path

import click
from rich.console import Console

from devcluster.demo.run import run

_EPILOG = """\b
Examples:
  retrofit dev demo                   everything, and nothing is left behind
  retrofit dev demo --keep            the cluster stays, to look around in it
  retrofit dev demo > demo.txt        plain text
"""


@click.command("demo", epilog=_EPILOG)
@click.option("--keep", is_flag=True, help="Leave the cluster running, and say how to use it.")
@click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".retrofit"),
    show_default=True,
    envvar="RETROFIT_DEV_DIR",
    show_envvar=True,
    help="Folder of the cluster's files; with --keep only.",
)
def demo(*, keep: bool, directory: Path) -> None:
    """Show on real objects what kube-retrofit does, in less than a minute.

    Starts a control plane of its own and both programs under their ServiceAccounts. Shows, with
    kubectl's own output: a restart of exactly the Deployments that mount a changed ConfigMap; a
    label of a Namespace spread to the workloads in it; a policy rolled out over 500 existing
    objects; a sidecar in Pods before they are stored; a target that may not be changed, with what
    to grant; the rules of other languages, KubeMod's and kinitiras'; and a hook.

    Exit code 1 when something is not as it should be.
    """
    run(Console(), os.environ, directory.absolute() if keep else None)
