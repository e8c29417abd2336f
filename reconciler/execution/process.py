"""One process of a hook, from its start until its whole process group has ended.

It leads a session and a process group of its own, so that processes it starts end with it.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from reconciler.errors import Interrupted, InvalidSetting

_CHUNK: Final = 64 * 1024
_KIB: Final = 1024
_DRAIN: Final = 1.0
"""Seconds to wait for remaining output after the process has ended."""
# Python ignores these signals, and a child process would inherit that.
_OWN_SIGNALS: Final = (signal.SIGPIPE, signal.SIGXFSZ)

_PROCESSES: Final = Path("/proc")
_DEAD: Final = frozenset("ZX")

Sink = Callable[[bytes], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a process ended.

    Attributes:
        code: As ``returncode``: a negative value is the signal that ended it.
        late: It exceeded its time limit.
        left_behind: It ended, but processes that it had started were running, and were killed.
        user: CPU seconds in user mode, of it and the children that it waited for.
        system: CPU seconds in kernel mode, likewise.
        most_memory: Peak of its resident memory, in bytes.
    """

    code: int
    late: bool
    left_behind: bool
    user: float
    system: float
    most_memory: int


class HookProcess:
    """A started process, for which the caller has to await `ended`."""

    def __init__(self, pid: int, pipes: Sequence["_Pipe"]) -> None:
        self._pid = pid
        self._pipes = pipes

    @classmethod
    def start(
        cls, command: Sequence[str], environment: Mapping[str, str], output: Sink, errors: Sink
    ) -> Self:
        """Start a process with empty input, whose output is passed to the sinks as it arrives.

        Raises:
            Interrupted: The machine cannot start another process.
            InvalidSetting: The system is not Linux.
        """
        if not hasattr(os, "pidfd_open"):
            raise InvalidSetting("executables can be run on Linux only: use the image of hooks")
        pipes: list[_Pipe] = []
        try:
            pipes.append(_Pipe(output))
            pipes.append(_Pipe(errors))
            pid = _spawn(command, environment, pipes)
        except OSError as error:
            for pipe in pipes:
                pipe.close()
            raise Interrupted(f"no process can be started: {error.strerror}") from error
        finally:
            for pipe in pipes:
                pipe.close_writing()
        return cls(pid, pipes)

    async def ended(self, seconds: float | None, grace: float) -> Ended:
        """Wait until the process ends, and stop it at its time limit.

        Cancelling the wait stops the process too.

        Args:
            seconds: Its time limit; None for no limit.
            grace: Seconds between SIGTERM and SIGKILL.
        """
        late = False
        with _Watch(self._pid) as watch:
            for pipe in self._pipes:
                pipe.follow()
            try:
                late = not await watch.wait(seconds)
                if late:
                    await self._stop(watch, grace)
            except asyncio.CancelledError:
                await self._stop(watch, grace)
                raise
            finally:
                if not watch.is_over:
                    self._signal(signal.SIGKILL)
                status, usage = self._reap()
                left_behind = not late and _is_alive(self._pid)
                self._signal(signal.SIGKILL)
                await self._drain()
        return Ended(
            code=os.waitstatus_to_exitcode(status),
            late=late,
            left_behind=left_behind,
            user=usage.ru_utime,
            system=usage.ru_stime,
            most_memory=usage.ru_maxrss * _KIB,
        )

    async def _stop(self, watch: "_Watch", grace: float) -> None:
        self._signal(signal.SIGTERM)
        await watch.wait(grace)

    def _signal(self, number: int) -> None:
        """Send a signal to all processes of its group, if there are any."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, number)

    async def _drain(self) -> None:
        """Read the remaining output, with a limit: a process outside the group may hold a pipe."""
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_DRAIN):
                    for pipe in self._pipes:
                        await pipe.ended.wait()
        finally:
            for pipe in self._pipes:
                pipe.close()
            self._reap_orphans()

    def _reap(self) -> tuple[int, Any]:
        """Return exit status and resource usage of a process that has ended or was killed."""
        _, status, usage = os.wait4(self._pid, 0)
        return status, usage

    def _reap_orphans(self) -> None:
        """Reap orphans of its group, if this program is the init process of a container."""
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-self._pid, os.WNOHANG)[0]:
                pass


class _Watch:
    """Detects the end of a process, without reaping it."""

    def __init__(self, pid: int) -> None:
        self._number = os.pidfd_open(pid)
        self._ended = asyncio.Event()

    def __enter__(self) -> Self:
        asyncio.get_running_loop().add_reader(self._number, self._end)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._number)
        os.close(self._number)

    @property
    def is_over(self) -> bool:
        """Return whether the process has ended."""
        return self._ended.is_set()

    async def wait(self, seconds: float | None) -> bool:
        """Wait for a time; return whether the process has ended."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ended.wait()
        return self.is_over

    def _end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._number)
        self._ended.set()


class _Pipe:
    """One stream of a process."""

    def __init__(self, sink: Sink) -> None:
        self.ended = asyncio.Event()
        self.reading, self.writing = os.pipe()
        os.set_blocking(self.reading, False)
        self._sink = sink

    def close_writing(self) -> None:
        os.close(self.writing)

    def follow(self) -> None:
        asyncio.get_running_loop().add_reader(self.reading, self._read)

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self.reading)
        os.close(self.reading)

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            data = os.read(self.reading, _CHUNK)
            if data:
                self._sink(data)
            else:
                asyncio.get_running_loop().remove_reader(self.reading)
                self.ended.set()


def _is_alive(group: int) -> bool:
    """Return whether a process group has a running process."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    for stat in _PROCESSES.glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # The process name, before the last bracket, may contain any bytes.
            text = stat.read_text(errors="replace")
            state, _, number = text.rpartition(")")[2].split()[:3]
            if int(number) == group and state not in _DEAD:
                return True
    return False


def _spawn(command: Sequence[str], environment: Mapping[str, str], pipes: Sequence[_Pipe]) -> int:
    actions: list[tuple[int, ...]] = [
        (os.POSIX_SPAWN_DUP2, pipe.writing, number) for number, pipe in enumerate(pipes, start=1)
    ]
    return os.posix_spawn(
        command[0],
        list(command),
        environment,
        file_actions=[(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0), *actions],
        setsid=True,
        setsigmask=[],
        setsigdef=_OWN_SIGNALS,
    )
