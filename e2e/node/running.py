"""Commands of the node's rig: each step is printed, and the output of a command that fails."""

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import click

from devcluster.supervision import last_lines
from reconciler.clock import SystemClock


class RigError(Exception):
    """A step failed; the message is shown to the user."""


class Running:
    """Runs commands and writes their output to one log in a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.log = folder / "last.log"
        self._clock = SystemClock()
        self._began = self._clock.monotonic()
        self.log.unlink(missing_ok=True)

    def say(self, text: str) -> None:
        """Print a line with the seconds since the start."""
        click.echo(f"[{self._clock.monotonic() - self._began:6.1f} s] {text}")

    @contextlib.contextmanager
    def step(self, text: str) -> Iterator[None]:
        """Print that a step starts, and at its end how long it took."""
        began = self._clock.monotonic()
        self.say(f"{text} ...")
        yield
        self.say(f"{text}: {self._clock.monotonic() - began:.1f} s")

    def run(self, *argv: str | Path, env: Mapping[str, str] | None = None) -> None:
        """Run a command to its end.

        Raises:
            RigError: It failed.
        """
        with self.log.open("a") as log:
            print(f"+ {' '.join(map(str, argv))}", file=log, flush=True)
            done = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **(env or {})},
                check=False,
            )
        if done.returncode:
            raise RigError(f"{argv[0]} failed; the end of {self.log}:\n{last_lines(self.log, 15)}")

    def ask(self, *argv: str | Path) -> str:
        """Run a command to its end and return what it printed.

        Raises:
            RigError: It failed.
        """
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RigError(f"{argv[0]} failed: {done.stderr.strip()}")
        return done.stdout.strip()
