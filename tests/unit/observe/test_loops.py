"""A loop of a process that ends takes the process with it, and says why."""

import asyncio

import pytest

from reconciler.errors import Unavailable
from reconciler.observe.loops import LoopEnded, forever, run_loops


async def waits():
    await asyncio.Event().wait()


async def breaks():
    await asyncio.sleep(0)
    raise KeyError("a fault")


async def ends():
    await asyncio.sleep(0)


async def gives_up():
    await asyncio.sleep(0)
    raise Unavailable("no answer for a minute")


async def test_a_fault_names_the_loop():
    with pytest.raises(
        LoopEnded, match=r"gauges ended because of a bug in kube-retrofit \(KeyError\)"
    ):
        await forever("gauges", breaks())


async def test_a_loop_that_just_ends_is_a_fault_too():
    with pytest.raises(LoopEnded, match="gauges ended: a bug in kube-retrofit"):
        await forever("gauges", ends())


async def test_a_loop_that_cannot_go_on_says_it_in_its_own_words():
    with pytest.raises(Unavailable, match="no answer for a minute"):
        await forever("gauges", gives_up())


async def test_one_that_ends_stops_the_others():
    stopped = asyncio.Event()

    async def other():
        try:
            await waits()
        finally:
            stopped.set()

    with pytest.raises(LoopEnded, match="gauges"):
        await run_loops({"other": other(), "gauges": breaks()})
    assert stopped.is_set()


async def test_a_cancellation_reports_no_fault():
    running = asyncio.create_task(run_loops({"a": waits(), "b": waits()}))
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
