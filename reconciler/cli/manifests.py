"""The location of the CRDs and manifests that kube-retrofit ships."""

from pathlib import Path

from reconciler.errors import InvalidSetting


def find_manifests() -> Path:
    """Return the folder that holds ``crds`` and ``manifests``: of the wheel or the source tree.

    Raises:
        InvalidSetting: Neither location has these folders.
    """
    here = Path(__file__).resolve().parent
    for folder in (here / "install", here.parents[1]):
        if (folder / "crds").is_dir() and (folder / "manifests").is_dir():
            return folder
    raise InvalidSetting(
        f"no folders crds and manifests in {here / 'install'} or {here.parents[1]}: "
        "this installation of kube-retrofit is incomplete"
    )
