"""Progress output for work that takes minutes."""

import sys
from typing import Self, TextIO

from rich.console import Console
from rich.status import Status

from reconciler.cli.output.terminal import bare_stream
from reconciler.clock import Clock, SystemClock

_EVERY = 15.0


def console_of(stream: TextIO) -> Console:
    """Return a console on a stream, past `visible_streams`, which would write out its colours."""
    return Console(file=bare_stream(stream))


class Progress:
    """A status line on a terminal; otherwise a plain line about every 15 seconds."""

    def __init__(self, *, stream: TextIO | None = None, clock: Clock | None = None) -> None:
        """Initialize; output goes to standard error by default."""
        self._stream = stream or sys.stderr
        self._clock = clock or SystemClock()
        self._began = self._clock.monotonic()
        self._reported = self._began
        self._status: Status | None = None
        if self._stream.isatty():
            self._status = console_of(self._stream).status("")

    def __enter__(self) -> Self:
        """Start the status line."""
        if self._status:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the status line, with the cursor at the start of a new line."""
        if self._status:
            self._status.stop()

    def say(self, text: str) -> None:
        """Print a permanent line."""
        print(text, file=self._stream, flush=True)
        self._reported = self._clock.monotonic()

    def update(self, phase: str) -> None:
        """Show the current phase; may be called at any frequency."""
        now = self._clock.monotonic()
        minutes, seconds = divmod(int(now - self._began), 60)
        line = f"{minutes}:{seconds:02d}  {phase}"
        if self._status:
            self._status.update(line)
        elif now - self._reported >= _EVERY:
            self.say(f"  {line}")
