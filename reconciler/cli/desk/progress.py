"""A bar for reads of a cluster that take longer than a moment; only for a person at a terminal."""

import sys
from typing import Self, TextIO

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from reconciler.cli.output.screen import screen_of


class Bar:
    """A bar on standard error, that is gone at the end; nothing where that is no terminal."""

    def __init__(self, *, stream: TextIO | None = None, hidden: bool = False) -> None:
        """Write to standard error by default; ``hidden`` writes nothing."""
        stream = stream or sys.stderr
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            console=screen_of(stream).console(stream),
            transient=True,
            disable=hidden or not stream.isatty(),
        )
        self._task: TaskID = self._progress.add_task("objects", total=None)
        self._done = 0

    def __enter__(self) -> Self:
        """Begin."""
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the bar."""
        self._progress.stop()

    def begin(self, what: str) -> None:
        """Begin a new bar in the place of the old one."""
        self._progress.remove_task(self._task)
        self._task, self._done = self._progress.add_task(what, total=None), 0

    def advance(self, done: int, left: int) -> None:
        """Say how many objects more are done, and how many are known to be left."""
        self._done += done
        self._progress.update(self._task, completed=self._done, total=self._done + left)
