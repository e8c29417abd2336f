"""When work is done again, and what is said of it."""

import asyncio

import pytest

from reconciler.errors import Unavailable
from reconciler.services import jobs
from reconciler.services.jobs import SaysOnce, repeat


class Ended(Exception):
    """The test has seen enough."""


class Work:
    """Fails as it is told to, one time after the other, then ends the loop."""

    def __init__(self, *times):
        self.times = list(times)

    async def __call__(self):
        if not self.times:
            raise Ended
        if (error := self.times.pop(0)) is not None:
            raise error


@pytest.fixture
def pauses(monkeypatch):
    """Give the pauses that were made; none takes any time."""
    seen = []

    async def sleep(seconds):
        seen.append(seconds)

    monkeypatch.setattr(jobs.asyncio, "sleep", sleep)
    return seen


async def run(*times, **options):
    with pytest.raises(Ended):
        await repeat(Work(*times), **options)


def away(retry_after=None):
    return Unavailable("gone for lunch", retry_after=retry_after)


async def test_it_rests_between_two_times(pauses):
    await run(None, None, every=5.0)
    assert pauses == [5.0, 5.0]


async def test_the_first_time_may_have_to_wait(pauses):
    await run(None, every=5.0, at_once=False)
    assert pauses == [5.0, 5.0]


async def test_pauses_after_failures_double_and_begin_anew_after_a_success(pauses):
    await run(away(), away(), away(), None, away(), every=9.0, pauses=(1.0, 3.0))
    assert pauses == [1.0, 2.0, 3.0, 9.0, 1.0]


async def test_what_the_server_asks_for_comes_first(pauses):
    await run(away(retry_after=7.0), every=9.0, pauses=(1.0, 3.0))
    assert pauses == [7.0]


async def test_a_pause_is_no_longer_than_what_is_right_now(pauses):
    await run(away(), away(), away(), every=9.0, pauses=(1.0, 60.0), at_most=lambda: 1.5)
    assert pauses == [1.0, 1.5, 1.5]


async def test_a_failure_is_said_once_and_again_after_a_success(pauses):
    said = []
    once = SaysOnce(say=said.append)
    await run(away(), away(), None, away(), every=1.0, tell=once.tell, failing="no lists: ")
    assert said == ["no lists: gone for lunch"] * 2
    assert once.problem


async def test_another_failure_is_said_too():
    said = []
    once = SaysOnce(say=said.append)
    for problem in ("a", "a", "b", "", "b"):
        once.tell(problem)
    assert said == ["a", "b", "b"]
    assert once.problem == "b"


async def test_what_wakes_it_comes_before_its_time():
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


async def test_a_fault_of_ours_ends_it(pauses):
    with pytest.raises(ZeroDivisionError):
        await repeat(Work(ZeroDivisionError()), every=1.0)
    assert pauses == []
