"""The `Jq` port: libjq in worker processes that are reused, and replaced when they end.

libjq is a C library that evaluates untrusted programs on untrusted objects. A worker has neither
the memory nor the environment of its parent, and its limits end it, not the parent.
`docs/design/0014-hooks.md` has the figures.
"""

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from reconciler.errors import EvaluationError, Interrupted, InvalidPolicy
from reconciler.hooks.programs import compilable
from reconciler.hooks.values import input_text, output_of
from reconciler.services.ports.jq import Jq

_SCRIPT: Final = Path(__file__).with_name("jqworker.py")
_HEAD: Final = 4
_MIB: Final = 1024 * 1024
_WALL: Final = 30.0
"""Seconds of wall-clock time for an answer, even if the worker got no processor time."""
_BATCH: Final = 64
_CHANCES: Final = 3
_PATIENCE: Final = 1.0
_NOT_STARTED: Final = "no process for jq programs can be started"
# Python ends with 1, libjq by SIGABRT; a recursion that fills the stack ends by SIGSEGV.
_OUT_OF_MEMORY: Final = frozenset({1, -signal.SIGABRT, -signal.SIGSEGV})


class _Ended(EvaluationError):
    """A program exceeded a limit, which ended its worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JqLimits:
    """The limits of a program, for each input.

    Attributes:
        seconds: Processor time.
        memory: Bytes of address space, in addition to those of the idle worker.
        answer: Characters of its results.
    """

    seconds: float = 2.0
    memory: int = 256 * _MIB
    answer: int = 8 * _MIB


class JqWorkers:
    """A pool of a few workers, which are started on first use."""

    def __init__(self, *, workers: int = 2, limits: JqLimits | None = None) -> None:
        self._limits = limits or JqLimits()
        self._free: asyncio.LifoQueue[_Worker] = asyncio.LifoQueue()
        self._all = [_Worker(self._limits) for _ in range(workers)]
        for worker in self._all:
            self._free.put_nowait(worker)

    async def compile(self, program: str, *, location: str) -> None:
        """Check that a program can be compiled.

        Raises:
            InvalidPolicy: It cannot be compiled.
        """
        async with self._worker() as worker:
            try:
                await worker.begin(compilable(program), ())
            except EvaluationError as error:
                raise InvalidPolicy(location, str(error)) from error

    async def evaluate(
        self, program: str, inputs: Sequence[Any]
    ) -> list[list[Any] | EvaluationError]:
        """Return the results for each input, or the error in their place.

        After the third input that ended a worker, the remaining inputs are not evaluated.

        Raises:
            Interrupted: A worker ended for another reason, or cannot be started.
        """
        found: list[list[Any] | EvaluationError] = []
        ended = 0
        written = [_written(item) for item in inputs]
        texts = [text for text in written if isinstance(text, str)]
        async with self._worker() as worker:
            while len(found) < len(texts):
                batch = texts[len(found) : len(found) + _BATCH]
                found += await _evaluated(worker, compilable(program), batch)
                ended += isinstance(found[-1], _Ended)
                if ended == _CHANCES:
                    found += [found[-1]] * (len(texts) - len(found))
        answers = iter(found)
        return [next(answers) if isinstance(text, str) else text for text in written]

    async def close(self) -> None:
        """Stop all workers; none of them may be in use."""
        for worker in self._all:
            await worker.stop()

    @asynccontextmanager
    async def _worker(self) -> AsyncIterator["_Worker"]:
        worker = await self._free.get()
        whole = False
        try:
            yield worker
            whole = True
        except (EvaluationError, InvalidPolicy):
            whole = True
            raise
        finally:
            try:
                # A caller that was cancelled leaves unread answers behind.
                if not whole:
                    await worker.stop(patience=False)
            finally:
                self._free.put_nowait(worker)


class BriefJq:
    """Starts a worker for one session at a time, and stops it when the session ends."""

    def __init__(self, limits: JqLimits | None = None) -> None:
        self._limits = limits
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Jq]:
        """Provide a worker, as soon as the previous session has ended."""
        async with self._turn:
            jq = JqWorkers(workers=1, limits=self._limits)
            try:
                yield jq
            finally:
                await jq.close()


def _written(value: Any) -> str | EvaluationError:
    try:
        return input_text(value)
    except EvaluationError as error:
        return error


async def _evaluated(
    worker: "_Worker", program: str, texts: Sequence[str]
) -> list[list[Any] | EvaluationError]:
    """Return the answers for the inputs, up to one that ended the worker."""
    try:
        await worker.begin(program, texts)
    except EvaluationError as error:
        return [error] * len(texts)
    found: list[list[Any] | EvaluationError] = []
    for _ in texts:
        try:
            answer = await worker.answer()
        except EvaluationError as error:
            return [*found, error]
        found.append(_results(answer))
    return found


class _Worker:
    """One worker process, which is started when it is needed."""

    def __init__(self, limits: JqLimits) -> None:
        self._limits = limits
        self._process: asyncio.subprocess.Process | None = None

    async def begin(self, program: str, texts: Sequence[str]) -> None:
        """Send a program and its inputs to the process.

        Raises:
            EvaluationError: The program cannot be compiled.
            Interrupted: The process cannot be started, or ended for another reason.
        """
        if self._process is None or self._process.returncode is not None:
            self._process = await self._start()
            await self._ready()
        body = orjson.dumps({"program": program, "inputs": texts})
        if self._process.stdin is not None:
            with contextlib.suppress(ConnectionError):
                self._process.stdin.write(len(body).to_bytes(_HEAD, "big") + body)
        answer = await self.answer()
        if "error" in answer:
            raise _failure(answer["error"], compiling=True)

    async def answer(self) -> dict[str, str]:
        """Return the next answer of the process.

        Raises:
            EvaluationError: The process ended by one of its limits.
            Interrupted: It ended for another reason, or did not answer in time.
        """
        process = self._process
        if process is None or process.stdout is None:
            raise Interrupted("the process for jq programs has ended")
        try:
            async with asyncio.timeout(_WALL):
                head = await process.stdout.readexactly(_HEAD)
                body = await process.stdout.readexactly(int.from_bytes(head, "big"))
        except TimeoutError:
            await self.stop(patience=False)
            raise Interrupted(f"a jq program gave no answer for {_WALL:g} s") from None
        except asyncio.IncompleteReadError:
            raise _ended(await self.stop(), self._limits) from None
        found: dict[str, str] = orjson.loads(body)
        return found

    async def stop(self, *, patience: bool = True) -> int:
        """Close the input of the process, at which it ends, and kill it if it does not.

        Returns its ``returncode``.

        Args:
            patience: Wait a moment before the kill.
        """
        process, self._process = self._process, None
        if process is None:
            return 0
        if process.stdin is not None:
            process.stdin.close()
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), _PATIENCE if patience else 0)
        finally:
            # A caller that is cancelled meanwhile must not leave it behind, either.
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
            code = await process.wait()
        return code

    async def _start(self) -> asyncio.subprocess.Process:
        limits = (self._limits.seconds, self._limits.memory, self._limits.answer)
        try:
            return await asyncio.create_subprocess_exec(
                sys.executable,
                "-I",
                str(_SCRIPT),
                *map(str, limits),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env={},
                cwd="/",
                close_fds=True,
            )
        except OSError as error:
            raise Interrupted(_NOT_STARTED) from error

    async def _ready(self) -> None:
        try:
            await self.answer()
        except (EvaluationError, Interrupted) as error:
            raise Interrupted(_NOT_STARTED) from error


def _results(answer: dict[str, str]) -> list[Any] | EvaluationError:
    if "error" in answer:
        return _failure(answer["error"])
    try:
        return output_of(answer["results"])
    except EvaluationError as error:
        return error


def _failure(text: str, *, compiling: bool = False) -> EvaluationError:
    what = "the jq program cannot be compiled" if compiling else "the jq program failed"
    lines = text.strip().splitlines()
    said = lines[0].removeprefix("jq: error: ").partition(" at <top-level>")[0] if lines else ""
    return EvaluationError(f"{what}: {said}").bare(what)


def _ended(code: int, limits: JqLimits) -> _Ended | Interrupted:
    """Return the error for the return code of a worker that ended."""
    if code == -signal.SIGPROF:
        needs = f"takes more than {limits.seconds:g} s"
    elif code in _OUT_OF_MEMORY:
        needs = f"needs more than {limits.memory // _MIB} MiB of memory"
    else:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"code {code}"
        return Interrupted(f"the process for jq programs was ended by {name}")
    text = f"the jq program {needs} for an input; narrow down what it goes through"
    return _Ended(text).bare(text)
