"""One process of a hook, from its start until nothing is left of it.

It leads a session and a process group of its own, so that what it starts ends with it.
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
"""Seconds that output may still come after the process has ended."""
# Python ignores these, and what is ignored would stay so.
_OWN_SIGNALS: Final = (signal.SIGPIPE, signal.SIGXFSZ)

_PROCESSES: Final = Path("/proc")
_DEAD: Final = frozenset("ZX")

Sink = Callable[[bytes], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a process ended.

    Attributes:
        code: As ``returncode`` says it: below zero the signal that ended it.
        late: Its time was up.
        left_behind: Processes that it had started were still there, and were killed.
        user: Seconds of a processor, of it and those that it waited for.
        system: Likewise, in the kernel.
        most_memory: Bytes of its resident memory, at most.
    """

    code: int
    late: bool
    left_behind: bool
    user: float
    system: float
    most_memory: int


class HookProcess:
    """A process that was started, and has to be waited for by `ended`."""

    def __init__(self, pid: int, pipes: Sequence["_Pipe"]) -> None:
        self._pid = pid
        self._pipes = pipes

    @classmethod
    def start(
        cls, command: Sequence[str], environment: Mapping[str, str], output: Sink, errors: Sink
    ) -> Self:
        """Start it, with nothing to read, and all that it prints handed over as it comes.

        Raises:
            Interrupted: The machine has no room for it.
            InvalidSetting: This is no Linux.
        """
        if not hasattr(os, "pidfd_open"):
            raise InvalidSetting("executables can be run on Linux only: use the image of hooks")
        pipes: list[_Pipe] = []
        try:
            pipes += (_Pipe(output), _Pipe(errors))
            pid = _spawn(command, environment, pipes)
        except OSError as error:
            raise Interrupted(f"no process can be started: {error.strerror}") from error
        finally:
            for pipe in pipes:
                pipe.close_writing()
        return cls(pid, pipes)

    async def ended(self, seconds: float | None, grace: float) -> Ended:
        """Wait for its end, and see to it.

        Whoever gives up waiting ends it as well.

        Args:
            seconds: After which it has to end; None for never.
            grace: Seconds that it has for its end when it is asked for it.
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
                left_behind = _is_alive(self._pid)
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
        """Send a signal to all of its group, if there is anybody."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, number)

    async def _drain(self) -> None:
        """Read what is left, unless somebody who left the group keeps the pipes open."""
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
        """Return how it ended and what it used; it has ended, or is about to."""
        _, status, usage = os.wait4(self._pid, 0)
        return status, usage

    def _reap_orphans(self) -> None:
        """Take in what it left behind, where this is the first process of a container."""
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-self._pid, os.WNOHANG)[0]:
                pass


class _Watch:
    """Tells when a process has ended, without taking in how."""

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
        """Return whether it has ended."""
        return self._ended.is_set()

    async def wait(self, seconds: float | None) -> bool:
        """Return whether it has ended within a time."""
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
        self._open = {self.reading, self.writing}

    def close_writing(self) -> None:
        self._close(self.writing)

    def follow(self) -> None:
        asyncio.get_running_loop().add_reader(self.reading, self._read)

    def close(self) -> None:
        if self.reading in self._open:
            asyncio.get_running_loop().remove_reader(self.reading)
            self._close(self.reading)

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            data = os.read(self.reading, _CHUNK)
            if data:
                self._sink(data)
            else:
                asyncio.get_running_loop().remove_reader(self.reading)
                self.ended.set()

    def _close(self, number: int) -> None:
        self._open.discard(number)
        os.close(number)


def _is_alive(group: int) -> bool:
    """Return whether a process group has a process that has not ended."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    for stat in _PROCESSES.glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # The name before the last bracket may hold anything.
            state, _, number = stat.read_text().rpartition(")")[2].split()[:3]
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
