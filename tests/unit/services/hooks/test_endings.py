"""A process ends at each of its writes in turn: the next one loses nothing and doubles nothing."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from reconciler.api.updaterequest import State
from reconciler.hooks.declared import HOOKS
from tests.skipping import SkippingLoop
from tests.unit.services.hooks.world import PLACE, Ending, World, process

NAME = "{{ element.object.metadata.name }}-{{ to_lower(element.watchEvent) }}"
MADE = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": NAME, "labels": {"made": "y"}},
}
SEEDS = {
    "name": "seeds",
    "kind": "ConfigMap",
    "labelSelector": {"matchLabels": {"seed": "y"}},
    "executeHookOnEvent": ["Added", "Deleted"],
    "executeHookOnSynchronization": False,
}
MOST_WRITES = 90


def hook(**spec: Any) -> dict[str, Any]:
    run = {
        "foreach": "contexts[?type=='Event']",
        "operations": [{"operation": "Create", "object": MADE}],
    }
    meta = {"name": "once", "namespace": PLACE}
    return {
        "apiVersion": HOOKS.api_version,
        "kind": "Hook",
        "metadata": meta,
        "spec": {"kubernetes": [SEEDS], "run": run, **spec},
    }


async def until(holds: Callable[[], Awaitable[bool]], ending: Ending) -> None:
    """Wait until something holds, or the process has ended."""
    async with asyncio.timeout(300):
        while True:
            if ending.came.is_set() or await holds():
                return
            await asyncio.sleep(0.2)


async def lives(world: World, term: int, ending: Ending, wanted: set[str], most: int) -> str:
    """Have a process work until all is made, or it ends; return what its hook says."""
    hooks = process(world, ending, term, most)
    working = asyncio.create_task(hooks.run())

    async def done() -> bool:
        pending = State.PENDING in await world.states()
        return wanted <= await world.made() and not pending

    if term == 1:
        await until(world.ready, ending)
        for number in range(3):
            world.create(f"seed-{number}", seed="y")
    await until(done, ending)
    said = "".join(item.account.failure for item in hooks.active.values())
    working.cancel()
    await asyncio.wait({working})
    return said


async def life(at: int, most: int) -> tuple[bool, str, World, set[str]]:
    """Let a process end at a write, something happen meanwhile, and another one go on."""
    world = World()
    world.cluster.create(HOOKS, hook())
    ending = Ending(at=at)
    wanted = {f"seed-{number}-added" for number in range(3)}
    said = await lives(world, 1, ending, wanted, most)
    ended = ending.came.is_set()
    if "seed-1" in {name.rpartition("-")[0] for name in await world.made()} or not ended:
        await world.delete("seed-1")
        wanted.add("seed-1-deleted")
    world.create("seed-9", seed="y")
    wanted.add("seed-9-added")
    said += await lives(world, 2, Ending(), wanted, most)
    return ended, said, world, wanted


@pytest.mark.parametrize("most", [1, 1 << 20], ids=["one by one", "together"])
def test_each_event_makes_its_object_once_wherever_a_process_ends(most: int) -> None:
    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        for at in range(MOST_WRITES):
            ended, said, world, wanted = runner.run(life(at, most))
            assert not said, f"ended at write {at}"
            assert runner.run(world.made()) == wanted, f"ended at write {at}"
            states = set(runner.run(world.states()))
            assert states == {State.COMPLETED}, f"ended at write {at}"
            if not ended:
                break
        else:
            pytest.fail("it writes more often than there are events")


async def _missed() -> tuple[set[str], list[str]]:
    world = World()
    world.cluster.create(
        HOOKS, hook(run={"operations": [{"operation": "Create", "object": MADE}]})
    )
    await lives(world, 1, Ending(), {f"seed-{number}-added" for number in range(3)}, 1)
    return await world.made(), [event.reason for event in world.events.emitted]


def test_nothing_is_said_to_be_missed_while_nothing_is() -> None:
    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        made, said = runner.run(_missed())
    assert len(made) == 3
    assert said == []
