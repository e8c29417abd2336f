"""The `Jq` port: libjq in worker processes, which are kept, and replaced when they end.

libjq is a library in C that is given programs and objects of strangers. A worker has neither the
memory nor the environment of its parent, and its limits end it, not the parent.
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
"""Seconds that an answer may take in which the worker may have got no processor at all."""
_BATCH: Final = 64
_CHANCES: Final = 3
_PATIENCE: Final = 1.0
# Python ends with 1, libjq by SIGABRT; a recursion that fills the stack ends by SIGSEGV.
_OUT_OF_MEMORY: Final = frozenset({1, -signal.SIGABRT, -signal.SIGSEGV})


class _Ended(EvaluationError):
    """A program ended its worker, by a limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JqLimits:
    """What a program may take, for each input.

    Attributes:
        seconds: Of a processor.
        memory: Bytes of address space, beside what a worker has itself.
        answer: Characters of its results.
    """

    seconds: float = 2.0
    memory: int = 256 * _MIB
    answer: int = 8 * _MIB


class JqWorkers:
    """A few workers, started when they are needed first."""

    def __init__(self, *, workers: int = 2, limits: JqLimits | None = None) -> None:
        self._limits = limits or JqLimits()
        self._free: asyncio.LifoQueue[_Worker] = asyncio.LifoQueue()
        self._all = [_Worker(self._limits) for _ in range(workers)]
        for worker in self._all:
            self._free.put_nowait(worker)

    async def compile(self, program: str, *, location: str) -> None:
        """Look whether a program can be compiled.

        Raises:
            InvalidPolicy: It cannot.
        """
        async with self._worker() as worker:
            try:
                await worker.begin(compilable(program), ())
            except EvaluationError as error:
                raise InvalidPolicy(location, str(error)) from error

    async def evaluate(
        self, program: str, inputs: Sequence[Any]
    ) -> list[list[Any] | EvaluationError]:
        """Return for each input the results, or why there are none.

        After the third input that ended a worker the program gets no further one.

        Raises:
            Interrupted: A worker was ended by something else, or cannot be started.
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
        """End all workers; none of them may be at work."""
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
            # Whoever gave up in between leaves answers behind that belong to nobody.
            if not whole:
                await worker.stop(patience=False)
            self._free.put_nowait(worker)


class BriefJq:
    """A worker for one user at a time, who has it for as long as needed; none is kept."""

    def __init__(self, limits: JqLimits | None = None) -> None:
        self._limits = limits
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Jq]:
        """Give a worker, when whoever had one before has done with it."""
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
    """Return the answers for the first of the inputs: all, or those up to one that ended it."""
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
    """One process, which is there or is started."""

    def __init__(self, limits: JqLimits) -> None:
        self._limits = limits
        self._process: asyncio.subprocess.Process | None = None

    async def begin(self, program: str, texts: Sequence[str]) -> None:
        """Hand a program and its inputs over.

        Raises:
            EvaluationError: It cannot be compiled.
            Interrupted: There is no process that could do it.
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
        """Return the next answer.

        Raises:
            EvaluationError: The process ended instead, by its limits.
            Interrupted: It ended by something else, or nothing came.
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
        """Wait until the process is gone: it ends when nothing more can come, or is killed.

        Returns how it ended, as ``returncode`` of a process says it.

        Args:
            patience: Wait a moment before it is killed.
        """
        process, self._process = self._process, None
        if process is None:
            return 0
        if process.stdin is not None:
            process.stdin.close()
        try:
            return await asyncio.wait_for(process.wait(), _PATIENCE if patience else 0)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            return await process.wait()

    async def _start(self) -> asyncio.subprocess.Process:
        limits = (self._limits.seconds, self._limits.memory, self._limits.answer)
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

    async def _ready(self) -> None:
        try:
            await self.answer()
        except (EvaluationError, Interrupted) as error:
            raise Interrupted("no process for jq programs can be started") from error


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
    """Say why a worker ended, by its return code."""
    if code == -signal.SIGPROF:
        needs = f"takes more than {limits.seconds:g} s"
    elif code in _OUT_OF_MEMORY:
        needs = f"needs more than {limits.memory // _MIB} MiB of memory"
    else:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"code {code}"
        return Interrupted(f"the process for jq programs was ended by {name}")
    text = f"the jq program {needs} for an input; narrow down what it goes through"
    return _Ended(text).bare(text)
