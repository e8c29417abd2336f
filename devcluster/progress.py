"""Say what goes on during work that takes minutes."""

import sys
from typing import Self, TextIO

from rich.console import Console
from rich.status import Status

from reconciler.clock import Clock, SystemClock

_EVERY = 15.0


class Progress:
    """A line that moves on a terminal; elsewhere a plain line about every 15 seconds."""

    def __init__(self, *, stream: TextIO | None = None, clock: Clock | None = None) -> None:
        """Write to standard error by default."""
        self._stream = stream or sys.stderr
        self._clock = clock or SystemClock()
        self._began = self._clock.monotonic()
        self._reported = self._began
        self._status: Status | None = None
        if self._stream.isatty():
            self._status = Console(file=self._stream).status("")

    def __enter__(self) -> Self:
        """Begin."""
        if self._status:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the cursor at the start of a fresh line."""
        if self._status:
            self._status.stop()

    def say(self, text: str) -> None:
        """Print a line that stays."""
        print(text, file=self._stream, flush=True)
        self._reported = self._clock.monotonic()

    def update(self, phase: str) -> None:
        """Tell what goes on now; call it as often as there is something to tell."""
        now = self._clock.monotonic()
        minutes, seconds = divmod(int(now - self._began), 60)
        line = f"{minutes}:{seconds:02d}  {phase}"
        if self._status:
            self._status.update(line)
        elif now - self._reported >= _EVERY:
            self.say(f"  {line}")
