"""A progress bar for long reads of a cluster, shown only on a terminal."""

import sys
from typing import Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from reconciler.cli.output.screen import screen_of


class Bar:
    """A transient progress bar on standard error; disabled where that is not a terminal."""

    def __init__(self, *, hidden: bool = False) -> None:
        """Set the stream; ``hidden`` disables the bar."""
        stream = sys.stderr
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
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def begin(self, what: str) -> None:
        """Replace the bar by a new one with another description."""
        self._progress.remove_task(self._task)
        self._task, self._done = self._progress.add_task(what, total=None), 0

    def advance(self, done: int, left: int) -> None:
        """Add to the number of processed objects, and set the number of those known to be left."""
        self._done += done
        self._progress.update(self._task, completed=self._done, total=self._done + left)
