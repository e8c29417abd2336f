"""Watches the files that tests read, by polling."""

import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from reconciler.cli.desk.files import SUFFIXES, has_wildcards
from reconciler.cli.desk.suite.hookmodel import HookTest
from reconciler.cli.desk.suite.model import TestFile, read_tests
from reconciler.clock import Clock
from reconciler.errors import RetrofitError

State = Mapping[Path, tuple[int, int]]
"""The modification time and size of each file."""

_INTERVAL: Final = 0.5
"""The minimum seconds between two polls."""
_SHARE: Final = 20
"""The minimum pause as a multiple of a poll's duration, which grows with the number of files."""
_LONGEST: Final = 10
"""The number of polls after which a run starts even if files keep changing."""


def places_of(tests: Iterable[Path]) -> set[Path]:
    """Return test files, and the files and folders that they name; broken ones name nothing."""
    found: set[Path] = set()
    for path in tests:
        found.add(path)
        try:
            found.update(place for test in read_tests(path) for place in _named(test))
        except RetrofitError:
            continue
    return found


def state_of(places: Iterable[Path]) -> State:
    """Return the state of files, and of the YAML and JSON files below folders.

    Absent files are omitted, so that their creation is a change.
    """
    found: dict[Path, tuple[int, int]] = {}
    for place in places:
        inside = (item for item in place.rglob("*") if item.suffix in SUFFIXES)
        for path in [place, *(inside if place.is_dir() else ())]:
            try:
                status = path.stat()
            except OSError:
                continue
            if stat.S_ISREG(status.st_mode):
                found[path] = (status.st_mtime_ns, status.st_size)
    return found


def changed_after(look: Callable[[], State], before: State, clock: Clock) -> list[Path]:
    """Wait until files have changed and then stay unchanged; return the changed files."""
    last = before
    tries = 0
    while True:
        started = clock.monotonic()
        now = look()
        took = clock.monotonic() - started
        if now != before:
            tries += 1
            if now == last or tries > _LONGEST:
                return sorted({path for path, _ in now.items() ^ before.items()})
        last = now
        threading.Event().wait(max(_INTERVAL, took * _SHARE))


def _named(test: TestFile | HookTest) -> Iterator[Path]:
    if isinstance(test, HookTest):
        files = [name for step in test.steps for name in (*(step.cluster or ()), *step.objects)]
        yield from (test.path.parent / name for name in (test.hook, *files))
        return
    names = [name for listed in test.files.values() for name in listed]
    names += [name for item in test.expected for name in item.patched]
    names += [name for item in test.entries for name in item.files or ()]
    for name in filter(None, [*names, test.variables, test.user]):
        path = test.path.parent / name
        while has_wildcards(str(path)) and not path.exists():
            path = path.parent
        yield path
