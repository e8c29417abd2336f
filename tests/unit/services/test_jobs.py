"""Repeated work: the pauses between runs, and reports of failures."""

import asyncio
from itertools import pairwise

import pytest

from reconciler.errors import Interrupted, Unavailable
from reconciler.services.jobs import WarnsOnce, repeat
from tests.skipping import SkippingLoop


class Ended(Exception):
    """Raised to end the loop once a test has seen enough."""


class Work:
    """Work that raises these errors run by run, None for a success, then ends the loop."""

    def __init__(self, *times):
        self.times = list(times)
        self.done_at = []

    async def __call__(self):
        self.done_at.append(asyncio.get_running_loop().time())
        if not self.times:
            raise Ended
        if (error := self.times.pop(0)) is not None:
            raise error


def pauses_of(*times, ends=Ended, **options):
    """Return the seconds from the start to the first run, and from each run to the next."""
    work = Work(*times)

    async def run():
        work.done_at.append(asyncio.get_running_loop().time())
        await repeat(work, **options)

    with asyncio.Runner(loop_factory=SkippingLoop) as runner, pytest.raises(ends):
        runner.run(run())
    return [round(after - before, 1) for before, after in pairwise(work.done_at)]


def away(retry_after=None):
    return Unavailable("gone for lunch", retry_after=retry_after)


def test_repeated_work_pauses_between_runs():
    assert pauses_of(None, None, every=5.0) == [0.0, 5.0, 5.0]


def test_the_first_run_can_be_delayed():
    assert pauses_of(None, every=5.0, at_once=False) == [5.0, 5.0]


def test_pauses_after_failures_double_and_start_over_after_a_success():
    pauses = pauses_of(away(), away(), away(), None, away(), every=9.0, pauses=(1.0, 3.0))
    assert pauses == [0.0, 1.0, 2.0, 3.0, 9.0, 1.0]


def test_a_retry_after_from_the_server_takes_precedence():
    assert pauses_of(away(retry_after=7.0), every=9.0, pauses=(1.0, 3.0)) == [0.0, 7.0]


def test_interrupted_work_is_retried():
    ended = Interrupted("a process was ended by SIGKILL")
    assert pauses_of(ended, ended, every=9.0, pauses=(1.0, 3.0)) == [0.0, 1.0, 2.0]


def test_a_pause_is_capped_by_the_current_maximum():
    pauses = pauses_of(away(), away(), away(), pauses=(1.0, 60.0), at_most=lambda: 1.5)
    assert pauses == [0.0, 1.0, 1.5, 1.5]


def test_a_failure_is_reported_once_and_again_after_a_success():
    said = []
    once = WarnsOnce(warn=said.append)
    pauses_of(away(), away(), None, away(), every=1.0, tell=once.tell, failing="no lists: ")
    assert said == ["no lists: gone for lunch"] * 2
    assert once.problem


async def test_a_different_failure_is_reported_as_well():
    said = []
    once = WarnsOnce(warn=said.append)
    for problem in ("a", "a", "b", "", "b"):
        once.tell(problem)
    assert said == ["a", "b", "b"]
    assert once.problem == "b"


async def test_a_wake_up_starts_the_next_run_early():
    woken, times = asyncio.Event(), []

    async def work():
        woken.clear()
        times.append(1)
        if len(times) > 2:
            raise Ended

    task = asyncio.create_task(repeat(work, woken=woken))
    async with asyncio.timeout(5):
        for number in (1, 2):
            while len(times) < number:  # noqa: ASYNC110
                await asyncio.sleep(0)
            woken.set()
        with pytest.raises(Ended):
            await task


def test_an_internal_error_ends_the_loop():
    assert pauses_of(ZeroDivisionError(), ends=ZeroDivisionError, every=1.0) == [0.0]
