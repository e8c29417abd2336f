"""Runs the scripts and commands of a test."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a process, whose `error` is None if it ended with 0 in time."""

    stdout: str
    stderr: str
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """Runs processes with the environment of the tests.

    Attributes:
        environment: Variables in addition to this process's own, such as PATH and KUBECONFIG.
    """

    environment: Mapping[str, str]

    async def run(
        self, argv: Sequence[str], folder: Path, extra: Mapping[str, str], within: float
    ) -> Outcome:
        """Run a process to its end, or kill its process group after `within` seconds."""
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                cwd=folder,
                env={**os.environ, **self.environment, **extra},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                process_group=0,
            )
        except OSError as error:
            return Outcome(stdout="", stderr="", error=str(error))
        reading = asyncio.ensure_future(process.communicate())
        finished, _ = await asyncio.wait([reading], timeout=within)
        if not finished:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        stdout, stderr = (text.decode(errors="replace") for text in await reading)
        if not finished:
            return Outcome(stdout=stdout, stderr=stderr, error=f"killed after {within:g} s")
        code = process.returncode
        return Outcome(stdout=stdout, stderr=stderr, error=f"exit status {code}" if code else None)
