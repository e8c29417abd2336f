"""What the tests of the tree look at."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("reconciler", "admission")
PACKAGES = (*PRODUCT, "devcluster")


def sources(*folders: str) -> list[Path]:
    """Return the Python files of folders of the project, without caches."""
    return sorted(path for name in folders for path in (ROOT / name).rglob("*.py"))


def relative(path: Path) -> str:
    """Return a path as it stands in messages and test names."""
    return path.relative_to(ROOT).as_posix()


def tracked_files() -> list[Path]:
    """Return what is in the repository, and what would be with the next commit.

    Of a tree that is no checkout (an unpacked archive) the calling test is skipped.
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
