"""What a shell needs so that the documents' commands work in it, and how it forgets it again."""

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
    """Put `retrofit`, `kubectl-retrofit` and the control plane's kubectl into one folder.

    A cluster that somebody else runs comes without a kubectl; then theirs is used.
    """
    folder = parts.Layout(directory=directory).bin
    folder.mkdir(exist_ok=True)
    scripts = Path(sysconfig.get_path("scripts"))
    files = {name: scripts / name for name in _OWN if (scripts / name).exists()}
    if isinstance(programs, Binaries):
        # The bundle goes by the name under which it is called.
        files["kubectl"] = Path(programs.command("kubectl")[0])
    for name, file in files.items():
        link = folder / name
        link.unlink(missing_ok=True)
        link.symlink_to(file)


def entering(directory: Path, kubeconfig: str, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines that make a shell use a cluster; the same again change nothing."""
    yield f"export KUBECONFIG={shlex.quote(kubeconfig)}"
    folder = str(parts.Layout(directory=directory).bin)
    if folder not in environ.get("PATH", "").split(os.pathsep):
        yield f'export PATH={shlex.quote(folder)}{os.pathsep}"$PATH"'


def leaving(directory: Path, kubeconfig: str, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines that make a shell forget a cluster that it uses; none where it does not."""
    if environ.get("KUBECONFIG") == kubeconfig:
        yield "unset KUBECONFIG"
    folder = str(parts.Layout(directory=directory).bin)
    path = environ.get("PATH", "").split(os.pathsep)
    if folder in path:
        kept = os.pathsep.join(item for item in path if item != folder)
        yield f"export PATH={shlex.quote(kept)}"


def used_directory(environ: Mapping[str, str]) -> Path | None:
    """Return the folder of the cluster of `retrofit dev` that KUBECONFIG names, if it is one."""
    kubeconfig = environ.get("KUBECONFIG", "")
    if not kubeconfig or os.pathsep in kubeconfig:
        return None
    directory = Path(kubeconfig).parent
    there = state.load(directory)
    return directory if there and there.kubeconfig == kubeconfig else None
