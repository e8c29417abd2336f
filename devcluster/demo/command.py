"""The command `retrofit dev demo`."""

import os
import sys
from pathlib import Path

import click

from devcluster.demo.run import run
from devcluster.progress import console_of
from reconciler.cli.desk.files import NamedPath

_EPILOG = """\b
Examples:
  retrofit dev demo               plays all scenes, and leaves nothing behind
  retrofit dev demo --keep        keeps the cluster for a look around
  retrofit dev demo > demo.txt    writes plain text
"""


@click.command("demo", epilog=_EPILOG)
@click.option("--keep", is_flag=True, help="Leave the cluster running, and print how to use it.")
@click.option(
    "--dir",
    "directory",
    type=NamedPath(file_okay=False, path_type=Path),
    default=Path(".retrofit"),
    show_default=True,
    envvar="RETROFIT_DEV_DIR",
    show_envvar=True,
    help="Folder of the cluster's files; with --keep only.",
)
def demo(*, keep: bool, directory: Path) -> None:
    """Show what kube-retrofit does on real objects.

    Takes less than a minute. Starts a control plane of its own and both programs under their
    ServiceAccounts. Shows, with kubectl's own output: a restart of exactly the Deployments that
    mount a changed ConfigMap; a label of a Namespace spread to the workloads in it; a policy
    rolled out over 500 existing objects; a sidecar in Pods before they are stored; a target that
    may not be changed, with the right to grant; rules of KubeMod and of kinitiras; and a hook.

    Exit code 1 if something is not as expected.
    """
    run(console_of(sys.stdout), os.environ, directory.absolute() if keep else None)
