"""Shell lines that make the commands of the documentation work, and lines that undo them."""

import os
import shlex
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from devcluster import parts, state
from devcluster.binaries import Binaries

_OWN: Final = ("retrofit", "kubectl-retrofit")


def link_programs(directory: Path, programs: Binaries | Path) -> None:
    """Link `retrofit`, `kubectl-retrofit` and the control plane's kubectl in one folder.

    An existing cluster comes without a kubectl; then the user's own is used.
    """
    folder = parts.Layout(directory=directory).bin
    folder.mkdir(exist_ok=True)
    scripts = Path(sysconfig.get_path("scripts"))
    files = {name: scripts / name for name in _OWN if (scripts / name).exists()}
    if isinstance(programs, Binaries):
        # The bundle selects the program by the name under which it is called.
        files["kubectl"] = Path(programs.command("kubectl")[0])
    for name, file in files.items():
        link = folder / name
        link.unlink(missing_ok=True)
        link.symlink_to(file)


def entering(directory: Path, kubeconfig: str, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines that make a shell use a cluster; they are idempotent."""
    yield f"export KUBECONFIG={shlex.quote(kubeconfig)}"
    folder = str(parts.Layout(directory=directory).bin)
    if folder not in environ.get("PATH", "").split(os.pathsep):
        yield f'export PATH={shlex.quote(folder)}{os.pathsep}"$PATH"'


def leaving(directory: Path, kubeconfig: str, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines that undo `entering`; none if the shell does not use the cluster."""
    if environ.get("KUBECONFIG") == kubeconfig:
        yield "unset KUBECONFIG"
    folder = str(parts.Layout(directory=directory).bin)
    path = environ.get("PATH", "").split(os.pathsep)
    if folder in path:
        kept = os.pathsep.join(item for item in path if item != folder)
        yield f"export PATH={shlex.quote(kept)}"


def used_directory(environ: Mapping[str, str]) -> Path | None:
    """Return the folder of the `retrofit dev` cluster in KUBECONFIG, or None."""
    kubeconfig = environ.get("KUBECONFIG", "")
    if not kubeconfig or os.pathsep in kubeconfig:
        return None
    directory = Path(kubeconfig).parent
    there = state.load(directory)
    return directory if there and there.kubeconfig == kubeconfig else None
