"""Requests wait while their hook is stored but not active, and end once it is gone."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from typing_extensions import override

from reconciler.api.meta import Object
from reconciler.api.updaterequest import State
from reconciler.errors import Interrupted
from reconciler.hooks.declared import HOOKS, is_executable
from reconciler.services.hooks.service import Hooks
from tests.skipping import SkippingLoop
from tests.unit.services.hooks.test_endings import NAME, SEEDS, create, hook
from tests.unit.services.hooks.world import (
    LABELS,
    PLACE,
    Ending,
    LabelsByJq,
    Objects,
    World,
    process,
    until,
)

LATE = {
    "operation": "MergePatch",
    "kind": "ConfigMap",
    "name": "late",
    "mergePatch": {"data": {"a": "b"}},
}


class Edited(Objects):
    """Hooks that are edited while a process runs."""

    def __init__(self, world: World) -> None:
        super().__init__(world.cluster, HOOKS, Ending())
        self._world = world
        self._edits: asyncio.Queue[tuple[str, Object]] = asyncio.Queue()
        self._generation = 1

    @override
    async def events(self) -> AsyncIterator[tuple[str, Object]]:
        while True:
            yield await self._edits.get()

    async def edit(self, spec: Mapping[str, Any], change: str = "MODIFIED") -> None:
        """Report the first hook with another spec, or as deleted."""
        obj = (await self.stored())[0]
        if change == "DELETED":
            self._world.cluster.delete(HOOKS, PLACE, obj["metadata"]["name"])
        self._generation += 1
        obj["metadata"]["generation"] = self._generation
        obj["spec"] = dict(spec)
        self._edits.put_nowait((change, obj))


def spec_of(name: str = "once", **spec: Any) -> dict[str, Any]:
    run = {"foreach": "contexts[?type=='Event']", "operations": [create(NAME), LATE]}
    made = hook(run=run, **spec)
    return {**made, "metadata": {**made["metadata"], "name": name}}


async def failing(world: World) -> tuple[Hooks, Edited, asyncio.Task[None]]:
    """Return a process whose first hook fails until the object ``late`` exists."""
    for name in ("once", "other"):
        world.cluster.create(HOOKS, spec_of(name))
    hooks, edited = process(world, Ending(), 1, 1), Edited(world)

    def runs_here(obj: Object) -> bool | None:
        return None if is_executable(obj) else "onStartup" not in obj["spec"]

    hooks.deps = replace(hooks.deps, objects=edited, runs_here=runs_here)
    working = asyncio.create_task(hooks.run())
    await until(world.ready, Ending())
    world.create("seed-0", seed="y")

    async def failed() -> bool:
        return any(item.account.failed for item in hooks.active.values())

    await until(failed, Ending())
    return hooks, edited, working


async def _edit(world: World, edit: Mapping[str, Any], change: str) -> tuple[list[State], str]:
    """Return the states of all requests a while after an edit, and after the hook is restored.

    Also returns what the other hook in the queue reports in between.
    """
    hooks, edited, working = await failing(world)
    await edited.edit(edit, change)
    world.create("late")
    await asyncio.sleep(60.0)
    states = await world.states()
    (other,) = (item for item in hooks.active.values() if item.declared.ref.name == "other")
    said = other.account.queues["main"].blocked

    await edited.edit(spec_of()["spec"])
    await asyncio.sleep(60.0)
    assert not working.done()
    working.cancel()
    await asyncio.wait({working})
    return states, said


def run(work: Callable[[World], Any]) -> tuple[World, Any]:
    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        world = World()
        return world, runner.run(work(world))


@pytest.mark.parametrize(
    "edit",
    [{"run": {}}, {**spec_of()["spec"], "onStartup": 1}],
    ids=["invalid", "not as its executable says"],
)
def test_requests_wait_until_an_edited_hook_is_restored(edit: Mapping[str, Any]) -> None:
    world, (states, said) = run(lambda world: _edit(world, edit, "MODIFIED"))
    assert set(states) == {State.PENDING}
    assert said.startswith("waits behind Hook shop/once: it is invalid, or")
    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        assert set(runner.run(world.states())) == {State.COMPLETED}
        assert runner.run(world.made()) == Counter({"seed-0-added": 2})


@pytest.mark.parametrize(
    ("edit", "change"),
    [({"executable": "once.sh"}, "MODIFIED"), ({}, "DELETED")],
    ids=["of another program", "deleted"],
)
def test_requests_end_if_their_hook_is_gone(edit: Mapping[str, Any], change: str) -> None:
    _, (states, said) = run(lambda world: _edit(world, edit, change))
    assert set(states) == {State.SKIP, State.COMPLETED}
    assert not said


class Killed(LabelsByJq):
    """A compiler that is killed at each program, until it is told not to be."""

    down = True

    @override
    async def compile(self, program: str, *, location: str) -> None:
        if self.down:
            raise Interrupted("the process for jq programs was ended by SIGKILL")


async def _killed(world: World) -> tuple[str, Counter[str]]:
    """Return what a hook reports while its program cannot be compiled, and what hooks make."""
    world.cluster.create(HOOKS, spec_of("once", kubernetes=[{**SEEDS, "jqFilter": LABELS}]))
    world.cluster.create(HOOKS, spec_of("other"))
    world.create("late")
    hooks = process(world, Ending(), 1, 1, jq := Killed())
    working = asyncio.create_task(hooks.run())
    await asyncio.sleep(20.0)
    assert [ref.name for ref in hooks.active] == ["other"]
    world.create("seed-0", seed="y")
    await asyncio.sleep(20.0)
    (obj, _) = (await world.cluster.list_page(HOOKS)).items
    jq.down = False
    await until(world.ready, Ending(), 60.0)
    world.create("seed-1", seed="y")
    await asyncio.sleep(20.0)
    assert await world.ready()
    working.cancel()
    await asyncio.wait({working})
    return obj["status"]["message"], await world.made()


def test_a_hook_whose_program_cannot_be_compiled_now_delays_no_other() -> None:
    _, (said, made) = run(_killed)
    assert said.startswith("its jq programs cannot be compiled: the process for jq")
    assert made == Counter({"seed-0-added": 1, "seed-1-added": 2})
