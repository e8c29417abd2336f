"""The files that the architecture tests read."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("reconciler", "admission")
PACKAGES = (*PRODUCT, "devcluster")


def sources(*folders: str) -> list[Path]:
    """Return the Python files below folders of the project."""
    return sorted(path for name in folders for path in (ROOT / name).rglob("*.py"))


def relative(path: Path) -> str:
    """Return a path relative to the repository, for messages and test names."""
    return path.relative_to(ROOT).as_posix()


def tracked_files() -> list[Path]:
    """Return the files of the repository, including new files that git does not ignore.

    Skip the calling test if the tree is not a git checkout (an unpacked archive).
    """
    # The checkout may belong to another user than the one who runs the tests, as in CI.
    git = ["git", "-c", f"safe.directory={ROOT}", "-C", str(ROOT)]
    listed = subprocess.run(
        [*git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        check=False,
        capture_output=True,
        text=True,
    )
    if listed.returncode:
        pytest.skip(f"not a git checkout: {listed.stderr.strip()}")
    files = (ROOT / name for name in listed.stdout.split("\0") if name)
    return sorted(path for path in files if path.is_file())
