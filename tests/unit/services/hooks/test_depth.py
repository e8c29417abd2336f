"""Values that are nested too deeply for a parser or serializer disturb no other hook or object."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from typing_extensions import override

from reconciler.errors import EvaluationError
from reconciler.hooks.declared import HOOKS
from reconciler.services.hooks.service import Hooks
from reconciler.services.ports.watching import WatchEvent, WatchScope
from tests.skipping import SkippingLoop
from tests.unit.services.hooks.test_endings import SEEDS, create, hook
from tests.unit.services.hooks.world import LABELS, Ending, LabelsByJq, World, process, until

TOO_DEEP = 100_000
"""Levels that no Python compares: up to 3.11, a few hundred are too many, later 10,000."""
MADE = {"foreach": "contexts[?type=='Event']", "operations": [create("made")]}


def nested(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = {"a": value}
    return value


class DeepResults(LabelsByJq):
    """Evaluates each program to a value with this many levels."""

    def __init__(self, levels: int) -> None:
        super().__init__()
        self._levels = levels

    @override
    async def evaluate(
        self, program: str, inputs: Sequence[Any]
    ) -> list[list[Any] | EvaluationError]:
        return [[nested(self._levels)] for _ in inputs]


class DeepWorld(World):
    """A cluster in which the object ``seed-deep`` has too many levels."""

    @override
    async def follow(self, scope: WatchScope, since: str) -> AsyncGenerator[WatchEvent]:
        async for event in super().follow(scope, since):
            deep = (event.object.get("metadata") or {}).get("name") == "seed-deep"
            obj = {**event.object, "data": nested(TOO_DEEP)} if deep else event.object
            yield replace(event, object=obj)


def run(hooks: Hooks, world: World, seed: str) -> str:
    """Return what the only hook reports, some seconds after an object was created."""

    async def said() -> str:
        working = asyncio.create_task(hooks.run())
        await until(world.ready, Ending(), 30.0)
        world.create(seed, seed="y")
        await asyncio.sleep(5.0)
        assert not working.done()
        (account,) = (item.account for item in hooks.active.values())
        working.cancel()
        await asyncio.wait({working})
        return account.problem or account.failure or "; ".join(account.left_out.values())

    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        return runner.run(said())


@pytest.mark.parametrize("levels", [240, 249, 252, 254, 300])
def test_an_event_with_a_deep_result_is_delivered(levels: int) -> None:
    world = World()
    binding = {**SEEDS, "jqFilter": LABELS}
    world.cluster.create(HOOKS, hook(kubernetes=[binding], run=MADE))
    assert not run(process(world, Ending(), 1, 1 << 20, DeepResults(levels)), world, "seed-0")
    with asyncio.Runner() as runner:
        assert runner.run(world.made()) == {"made": 1}


@pytest.mark.parametrize("program", ["", LABELS], ids=["object", "result"])
def test_what_is_too_deep_to_be_compared_is_left_out(program: str) -> None:
    world = World() if program else DeepWorld()
    binding = {**SEEDS, "jqFilter": program} if program else SEEDS
    world.cluster.create(HOOKS, hook(kubernetes=[binding], run=MADE))
    hooks = process(world, Ending(), 1, 1 << 20, DeepResults(TOO_DEEP))
    said = run(hooks, world, "seed-deep")
    assert "seed-deep" in said
    assert "left out" in said
