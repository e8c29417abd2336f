"""Runs test files in sequence, or in parallel processes where that is faster."""

import asyncio
import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any, Final

from reconciler.cli.desk.suite.check import TestRun, run_test
from reconciler.cli.desk.suite.hookcheck import run_hook_test
from reconciler.cli.desk.suite.hookmodel import HookTest
from reconciler.cli.desk.suite.model import TestFile, read_tests
from reconciler.cli.desk.suite.selector import EVERY_ROW, Selector
from reconciler.clock import Clock
from reconciler.errors import RetrofitError

_PATIENCE: Final = 1.0
"""The estimated seconds of the remaining tests above which processes are started: loading the
program takes a process about half of that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRun:
    """The runs of the tests of a file.

    Attributes:
        broken: The error that ended the run early; empty where all tests were run.
    """

    path: Path
    runs: tuple[TestRun, ...] = ()
    broken: str = ""


Work = Callable[[Path], FileRun]


def run_files(
    paths: Sequence[Path], jobs: int | None, clock: Clock, work: Work
) -> Iterator[FileRun]:
    """Yield the runs of test files in order.

    Args:
        jobs: The number of processes; None for one per CPU, if the tests take long enough.
        work: `run_file` with the options of the command.
    """
    limit = _cpus() if jobs is None else jobs
    started = clock.monotonic()
    for done, path in enumerate(paths):
        left = len(paths) - done
        spent = clock.monotonic() - started
        pays = jobs is not None or (done and spent / done * left > _PATIENCE)
        if pays and min(limit, left) > 1:
            yield from _by_processes(work, paths[done:], min(limit, left))
            return
        yield work(path)


def run_file(
    path: Path,
    operation: str | None = None,
    selector: Selector = EVERY_ROW,
    *,
    runs_hooks: bool = False,
    cue: str = "",
) -> FileRun:
    """Return the run of a test file; errors of the file are part of the result.

    Args:
        operation: The operation of rows that name none; see `run_test`.
        runs_hooks: Whether tests may run executables.
        cue: See `run_test`.
    """

    def run(test: TestFile | HookTest) -> Coroutine[Any, Any, TestRun]:
        if isinstance(test, HookTest):
            return run_hook_test(test, selector, allowed=runs_hooks)
        return run_test(test, operation, selector, cue=cue)

    runs: list[TestRun] = []
    try:
        for item in read_tests(path):
            # One by one: an error leaves the runs before it.
            runs.append(asyncio.run(run(item)))  # noqa: PERF401
    except RetrofitError as error:
        place = "" if str(error).startswith(str(path)) else f"{path}: "
        return FileRun(path=path, runs=tuple(runs), broken=f"{place}{error}")
    return FileRun(path=path, runs=tuple(runs))


def _by_processes(work: Work, paths: Sequence[Path], count: int) -> Iterator[FileRun]:
    left = deque(paths)
    while left:
        for found in _until_one_ends(work, tuple(left), count):
            left.popleft()
            yield found
        if left:
            # Its own process crashed, or another one that broke the pool: run it alone to tell.
            yield _alone(work, left.popleft())


def _until_one_ends(work: Work, paths: Sequence[Path], count: int) -> Iterator[FileRun]:
    """Yield runs in order until a process crashes, which cancels the work of all others."""
    with _pool(count) as pool:
        waiting: list[Future[FileRun]] = [pool.submit(work, path) for path in paths]
        try:
            for future in waiting:
                found = _outcome(future)
                if found is None:
                    return
                yield found
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _alone(work: Work, path: Path) -> FileRun:
    with _pool(1) as pool:
        found = _outcome(pool.submit(work, path))
    return found or FileRun(path=path, broken=f"{path}: the process that ran it ended")


def _outcome(future: Future[FileRun]) -> FileRun | None:
    """Return the run, None where a process of the pool crashed before."""
    try:
        return future.result()
    except BrokenProcessPool:
        return None


def _pool(count: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(count, mp_context=_context(), initializer=_begin)


def _context() -> BaseContext:
    # Never fork: threads of the caller would be cut off at an arbitrary point in the child.
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


def _begin() -> None:
    # Ctrl-C reaches all processes; only the main process reports it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
