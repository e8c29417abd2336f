"""Shows log files and follows them."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from devcluster.waiting import pause

Print = Callable[[str], object]
_PAUSE = 0.2
_TAIL = 1 << 20


def log_files(folder: Path) -> dict[str, Path]:
    """Return the logs of a folder by the name of the part."""
    return {path.stem: path for path in sorted(folder.glob("*.log"))}


def print_last(files: Mapping[str, Path], count: int, out: Print) -> dict[str, int]:
    """Print the last lines of each file, and return the size of each."""
    ends = {}
    for name, path in files.items():
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - _TAIL))
            lines = file.read(end).decode(errors="replace").splitlines()
        ends[name] = end
        _print(lines[-count:] if count else [], name, files, out)
    return ends


def follow(files: Mapping[str, Path], ends: dict[str, int], out: Print) -> None:
    """Print complete lines as they are added to the files, until Ctrl-C."""
    while True:
        for name, path in files.items():
            ends[name] = _print_new(name, files, ends[name], out) if path.exists() else 0
        pause(_PAUSE)


def _print_new(name: str, files: Mapping[str, Path], start: int, out: Print) -> int:
    path = files[name]
    if path.stat().st_size < start:  # The file was truncated or replaced.
        start = 0
    with path.open("rb") as file:
        file.seek(start)
        whole, newline, _ = file.read().rpartition(b"\n")
    _print(whole.decode(errors="replace").splitlines(), name, files, out)
    return start + len(whole) + len(newline)


def _print(lines: list[str], name: str, files: Mapping[str, Path], out: Print) -> None:
    width = max(len(each) for each in files)
    for line in lines:
        out(f"{name:<{width}} | {line}" if len(files) > 1 else line)
