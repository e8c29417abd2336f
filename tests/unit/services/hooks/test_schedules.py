"""A schedule that is due again before its run has ended runs once more, not each time."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

from reconciler.api.meta import Object
from reconciler.api.updaterequest import State
from reconciler.hooks.declared import HOOKS
from tests.skipping import SkippingLoop
from tests.stored import MemoryRequests
from tests.unit.services.hooks.test_endings import hook
from tests.unit.services.hooks.world import Ending, World, process

EACH_SECOND = "* * * * * *"
HOURLY = "0 0 * * * *"


def blocked(*crontabs: str) -> Object:
    """Return a hook with schedules that fails until the object ``late`` exists."""
    late = {"kind": "ConfigMap", "name": "late", "mergePatch": {"data": {"a": "b"}}}
    found = hook(
        schedule=[{"name": text, "crontab": text, "queue": text[0]} for text in crontabs],
        run={"operations": [{"operation": "MergePatch", **late}]},
    )
    del found["spec"]["kubernetes"]
    return found


async def lived(world: World, term: int, play: Callable[[], Awaitable[None]]) -> None:
    """Let a process work on a world while something happens."""
    working = asyncio.create_task(process(world, Ending(), term, 1 << 20).run())
    await play()
    working.cancel()
    await asyncio.wait({working})


async def waiting(world: World) -> Counter[str]:
    """Return how many requests of each schedule wait."""
    requests = MemoryRequests(world.cluster, "kyverno")
    return Counter([item.spec.rule async for item in requests.waiting()])


async def completed(world: World) -> int:
    return (await world.states()).count(State.COMPLETED)


async def play_blocked(world: World) -> list[Counter[str]]:
    """Return what waits at each moment of some minutes."""
    found = []

    async def play() -> None:
        for _ in range(20):
            await asyncio.sleep(10)
            found.append(await waiting(world))

    await lived(world, 1, play)
    return found


def test_a_blocked_queue_keeps_one_request_of_each_schedule() -> None:
    world = World()
    world.cluster.create(HOOKS, blocked(EACH_SECOND, "*/2 * * * * *"))
    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        found = runner.run(play_blocked(world))
    assert {count for counter in found for count in counter.values()} == {1}


def test_a_schedule_that_was_due_behind_a_blocked_run_runs_once_more() -> None:
    world = World()
    world.cluster.create(HOOKS, blocked(HOURLY))

    async def blocked_for_two_hours() -> None:
        await asyncio.sleep(2 * 3600 + 60)
        assert await waiting(world) == Counter({HOURLY: 1})

    async def repaired() -> None:
        await asyncio.sleep(60)
        assert await completed(world) == 0
        world.create("late")
        await asyncio.sleep(120)
        # That of the first hour, and one for the next; also after a crash.
        assert await completed(world) == 2
        assert not await waiting(world)

    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        runner.run(lived(world, 1, blocked_for_two_hours))
        runner.run(lived(world, 2, repaired))
