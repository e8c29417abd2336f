"""Objects for which the jq filter of a binding fails."""

import asyncio
from collections.abc import Sequence
from typing import Any

from typing_extensions import override

from reconciler.errors import EvaluationError
from reconciler.hooks.declared import HOOKS
from tests.skipping import SkippingLoop
from tests.unit.services.hooks.test_endings import SEEDS, hook
from tests.unit.services.hooks.world import LABELS, Ending, LabelsByJq, World, process, until


class FailingAt(LabelsByJq):
    """Evaluates the jq program for the labels, and fails where they include ``odd``."""

    @override
    async def evaluate(
        self, program: str, inputs: Sequence[Any]
    ) -> list[list[Any] | EvaluationError]:
        found = await super().evaluate(program, inputs)
        return [
            EvaluationError("it fails").bare("no values")
            if "odd" in item["metadata"]["labels"]
            else result
            for item, result in zip(inputs, found, strict=True)
        ]


async def play() -> list[str]:
    """Return the messages of a Ready hook before and after two odd objects are deleted."""
    world = World()
    for name in ("odd-1", "odd-2"):
        world.create(name, seed="y", odd="y")
    world.create("even", seed="y")
    world.cluster.create(HOOKS, hook(kubernetes=[{**SEEDS, "jqFilter": LABELS}]))
    working = asyncio.create_task(process(world, Ending(), 1, 1 << 20, FailingAt()).run())
    messages: list[str] = []
    for name in ("odd-1", "odd-2", ""):
        # Statuses are written once a second.
        await asyncio.sleep(5)
        await until(world.ready, Ending())
        (stored,) = (await world.cluster.list_page(HOOKS)).items
        messages.append(stored["status"]["message"])
        if name:
            await world.delete(name)
    working.cancel()
    await asyncio.wait({working})
    return messages


def test_the_message_of_a_hook_names_an_object_at_which_its_filter_fails() -> None:
    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        first, second, last = runner.run(play())
    assert first == (
        "seeds: jqFilter fails at ConfigMap shop/odd-1, which is left out: no values (and 1 more)"
    )
    assert second.startswith("seeds: jqFilter fails at ConfigMap shop/odd-2")
    assert last == ""
