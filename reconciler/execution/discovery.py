"""Finds the hooks in a folder, by the rules and in the order of shell-operator."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from reconciler.errors import InvalidSetting

_LIBRARIES: Final = "lib"
_DOCUMENTS: Final = frozenset({".yaml", ".json", ".md", ".txt"})
_HIDDEN: Final = "."


@dataclass(frozen=True, slots=True)
class Executable:
    """A file that is a hook.

    Attributes:
        name: Its path below the folder of hooks, with slashes.
    """

    name: str
    path: Path

    @property
    def root(self) -> Path:
        """Return the folder of hooks."""
        return self.path.parents[self.name.count("/")]


@dataclass(frozen=True, slots=True)
class Discovery:
    """The content of a folder of hooks.

    Attributes:
        executables: Sorted by their paths as texts.
        skipped: Paths below the folder that would be hooks if they were executable.
    """

    executables: tuple[Executable, ...]
    skipped: tuple[str, ...]


def find_executables(folder: Path) -> Discovery:
    """Search a folder and its subfolders, except hidden ones and those named ``lib``.

    Links to files are followed, because ConfigMap volumes use them; links to folders are not.

    Raises:
        InvalidSetting: The folder cannot be read.
    """
    root = folder.resolve()
    names: list[str] = []
    for place, folders, files in os.walk(root, onerror=_refuse):
        folders[:] = [name for name in folders if name[0] != _HIDDEN and name != _LIBRARIES]
        subfolder = Path(place).relative_to(root)
        names += [(subfolder / name).as_posix() for name in files if _may_be_one(name)]
    names.sort()
    found = [name for name in names if _is_executable(root / name)]
    return Discovery(
        executables=tuple(Executable(name, root / name) for name in found),
        skipped=tuple(name for name in names if name not in set(found)),
    )


def _may_be_one(name: str) -> bool:
    return name[0] != _HIDDEN and Path(name).suffix not in _DOCUMENTS


def _is_executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _refuse(error: OSError) -> None:
    raise InvalidSetting(f"cannot search {error.filename} for hooks: {error.strerror}")
