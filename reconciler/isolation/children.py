"""Evaluates in child processes, each forked for one evaluation.

The child has everything that the evaluation needs, because it is a copy of the parent: only the
result is transferred. `docs/design/0007-long-evaluation.md` has the reasons and the costs.
"""

import asyncio
import contextlib
import os
import pickle
import signal
import warnings
from collections.abc import Callable
from typing import Final, Self, TypeVar

from reconciler.errors import EvaluationError, Interrupted
from reconciler.isolation import child
from reconciler.isolation.limits import Limits
from reconciler.services.processing.fairness import FairGate

T = TypeVar("T")

_TOGETHER: Final = 2
_SHARE: Final = 1
_CHUNK: Final = 64 * 1024
_MIB: Final = 1024 * 1024


class ChildProcesses:
    """Evaluates in child processes: two at a time, and one for each tenant."""

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._gate = FairGate(_TOGETHER, share=_SHARE)

    async def evaluate(self, work: Callable[[], T], tenant: str) -> T:
        """Return the result of a pure function, evaluated without blocking the event loop.

        Raises:
            EvaluationError: It needs too much memory, or its result is too large.
            Interrupted: The child was killed, or took too long.
        """
        async with self._gate.enter(tenant):
            running = _Child.fork(work, self._limits)
            try:
                async with asyncio.timeout(self._limits.seconds):
                    answer = await running.answer()
            except TimeoutError:
                running.kill()
                said = f"evaluating the rule took longer than {self._limits.seconds:g} s"
                raise Interrupted(said) from None
            except BaseException:
                running.kill()
                raise
            finally:
                status = running.reap()
        kind, data = answer[:1], answer[1:]
        if kind == child.VALUE and status == 0:
            value: T = pickle.loads(data)  # noqa: S301 - made by ourselves, a moment ago
            return value
        raise _error(kind, data, status, self._limits)


class _Child:
    """One child process, from the fork until it is reaped."""

    def __init__(self, pid: int, pipe: int, most: int) -> None:
        self._pid = pid
        self._pipe = pipe
        self._most = most

    @classmethod
    def fork(cls, work: Callable[[], object], limits: Limits) -> Self:
        try:
            reading, writing = os.pipe()
        except OSError as error:
            raise _not_started(error) from error
        # Until the child has reset the parent's signal handlers, no signal may reach them.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            pid = _fork()
            if pid == 0:
                child.live(work, writing, limits)
        except OSError as error:
            os.close(reading)
            raise _not_started(error) from error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            os.close(writing)
        os.set_blocking(reading, False)
        return cls(pid, reading, limits.answer + 1)

    async def answer(self) -> bytes:
        """Return the output of the child, read until it ends or writes too much."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        found = bytearray()

        def read() -> None:
            with contextlib.suppress(BlockingIOError):
                chunk = os.read(self._pipe, _CHUNK)
                found.extend(chunk)
                if (not chunk or len(found) > self._most) and not done.done():
                    done.set_result(None)

        loop.add_reader(self._pipe, read)
        try:
            await done
        finally:
            loop.remove_reader(self._pipe)
        if len(found) > self._most:
            self.kill()
        return bytes(found)

    def kill(self) -> None:
        os.kill(self._pid, signal.SIGKILL)

    def reap(self) -> int:
        """Wait for the child, which is about to end; return its status from ``os.waitpid``."""
        os.close(self._pipe)
        return os.waitpid(self._pid, 0)[1]


def _fork() -> int:
    with warnings.catch_warnings():
        # Python warns of locks that other threads hold; `child` does not use any.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _not_started(error: OSError) -> Interrupted:
    return Interrupted(f"no process can be started: {error.strerror}")


def _error(kind: bytes, data: bytes, status: int, limits: Limits) -> Exception:
    cure = "narrow down what its expressions or its foreach work through"
    if kind == child.OUT_OF_MEMORY:
        text = f"evaluating the rule needs more than {limits.memory // _MIB} MiB of memory; {cure}"
        return EvaluationError(text).bare(text)
    if kind == child.TOO_LARGE:
        text = f"the result of the rule for one object is larger than {limits.answer // _MIB} MiB"
        return EvaluationError(text).bare(text)
    if kind == child.FAULT:
        return RuntimeError(f"evaluating failed: {data.decode(errors='replace')}")
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        return Interrupted(f"the process that evaluated the rule was ended by {name}")
    return Interrupted(f"the process that evaluated the rule ended with {status}")
