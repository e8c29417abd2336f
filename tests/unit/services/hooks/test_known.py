"""Requests end only once their hook is known to be deleted, not while that cannot be read."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from typing_extensions import override

from reconciler.api.meta import Object, PolicyRef
from reconciler.api.updaterequest import Reason, State
from reconciler.errors import Forbidden, NoKindMatch
from reconciler.hooks.declared import HOOKS
from tests.skipping import SkippingLoop
from tests.stored import MemoryRequests
from tests.unit.services.hooks.test_endings import NAME, create, hook
from tests.unit.services.hooks.world import Ending, Objects, World, process, until

PAUSE = 200.0


class Unreadable(Objects):
    """Hooks that can be read for a while, then not, and their watch reports each as deleted."""

    problem: Exception | None = None

    def __init__(self, world: World) -> None:
        super().__init__(world.cluster, HOOKS, Ending())
        self._edits: asyncio.Queue[tuple[str, Object]] = asyncio.Queue()

    @override
    async def events(self) -> AsyncIterator[tuple[str, Object]]:
        while True:
            yield await self._edits.get()

    @override
    async def find(self, ref: PolicyRef) -> Object | None:
        if self.problem is not None:
            raise self.problem
        return await super().find(ref)

    async def report(self, change: str) -> None:
        """Report a change of the first hook."""
        self._edits.put_nowait((change, (await self.stored())[0]))


def failing() -> Object:
    """Return a hook that fails until the object ``late`` exists."""
    late = {"kind": "ConfigMap", "name": "late", "mergePatch": {"data": {"a": "b"}}}
    operations = [create(NAME), {"operation": "MergePatch", **late}]
    return hook(run={"foreach": "contexts[?type=='Event']", "operations": operations})


async def _lost(problem: Exception) -> tuple[World, list[str], list[str]]:
    """Let a hook become unreadable while its run waits, and come back.

    Returns what its requests said meanwhile.
    """
    world = World()
    world.cluster.create(HOOKS, failing())
    hooks, objects = process(world, Ending(), 1, 1), Unreadable(world)
    hooks.deps = replace(hooks.deps, objects=objects)
    hooks.dispatcher.find = objects.find
    working = asyncio.create_task(hooks.run())
    await until(world.ready, Ending())
    for number in range(2):
        world.create(f"seed-{number}", seed="y")
    await asyncio.sleep(20.0)

    objects.problem = problem
    await objects.report("DELETED")
    await asyncio.sleep(PAUSE)
    said = [item.status async for item in MemoryRequests(world.cluster, "kyverno").waiting()]
    objects.problem = None
    world.create("late")
    await objects.report("ADDED")
    await asyncio.sleep(PAUSE)
    working.cancel()
    await asyncio.wait({working})
    return world, [item.message for item in said], [item.reason for item in said if item.reason]


@pytest.mark.parametrize(
    "problem",
    [
        Forbidden("hooks is forbidden", permission="list hooks"),
        NoKindMatch("the cluster does not serve hooks", status=404),
    ],
    ids=["no right", "not served"],
)
def test_requests_wait_while_it_is_unknown_whether_their_hook_exists(problem: Exception) -> None:
    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        world, said, reasons = runner.run(_lost(problem))
        assert said[0].startswith("it is not known whether Hook shop/once still exists: ")
        assert str(problem) in said[0]
        assert reasons == [Reason.FAILED]
        assert runner.run(world.made()) == Counter({"seed-0-added": 1, "seed-1-added": 1})
        assert set(runner.run(world.states())) == {State.COMPLETED}
