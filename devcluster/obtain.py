"""The search for a control plane: on this machine, as a download, or by a build."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from devcluster import build, download
from devcluster.binaries import (
    VARIABLE,
    Binaries,
    Source,
    cache_root,
    in_folder,
    locate,
)
from devcluster.lock import locked
from devcluster.progress import Progress
from reconciler.errors import InvalidSetting, RetrofitError, Unavailable

_PART = ".part"


def obtain(environ: Mapping[str, str], source: Source) -> Binaries | Path:
    """Return a control plane, or the kubeconfig of an existing cluster.

    The first use may take minutes; it shows its progress and leaves only programs in the cache.

    Raises:
        InvalidSetting: RETROFIT_CONTROL_PLANE names something unusable, or the cache cannot be
            written.
        Unavailable: No control plane was found or made; the message states what is missing.
    """
    found = locate(environ, source)
    if found:
        return found
    root = cache_root(environ)
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        cure = "set XDG_CACHE_HOME to a folder that can be written"
        raise InvalidSetting(f"{error.filename}: {error.strerror}: {cure}") from error
    with Progress() as progress:
        progress.update("waiting for another process that gets the control plane")
        with locked(root / "lock", wait=True):
            sweep(root)
            # Another process may have put it there meanwhile.
            found = locate(environ, source)
            if not found:
                fetch(source, root, environ, progress)
                found = in_folder(root / source.key, str(root / source.key))
    if not found:
        raise Unavailable(f"no control plane in {root / source.key} although it was put there")
    return found


def sweep(root: Path) -> None:
    """Remove leftovers of a killed download or build; the lock must be held."""
    for left in root.glob(f"*{_PART}"):
        shutil.rmtree(left, ignore_errors=True)


def fetch(source: Source, root: Path, environ: Mapping[str, str], progress: Progress) -> None:
    """Put the programs into the cache by the first method that works; the lock must be held.

    Raises:
        Unavailable: No method worked; the message names the problem and remedy of each.
    """
    faults = []
    for get in (download.fetch_releases, build.build):
        part = root / f"{source.key}{_PART}"
        part.mkdir(mode=0o700, parents=True)
        try:
            files = get(source, part, environ, progress)
            _publish(files, root / source.key)
        except (RetrofitError, OSError) as error:
            faults.append(str(error))
        else:
            return
        finally:
            shutil.rmtree(part, ignore_errors=True)
    cure = f"or set {VARIABLE} to a folder with the programs or to a kubeconfig"
    raise Unavailable("no control plane: " + "; ".join(faults) + f"; {cure}")


def _publish(files: list[Path], folder: Path) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    for file in files:
        file.chmod(0o755)
        file.replace(folder / file.name)
