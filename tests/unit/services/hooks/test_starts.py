"""Runs at the start come in their order, before anything else that a start records."""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from typing_extensions import override

from reconciler.api.meta import Object
from reconciler.api.updaterequest import RequestSpec
from reconciler.errors import Denied
from reconciler.hooks.declared import HOOKS, DeclaredHook, compile_hook
from tests.skipping import SkippingLoop
from tests.stored import MemoryRequests
from tests.unit.services.hooks.test_endings import create, hook
from tests.unit.services.hooks.world import Ending, World, process, until

MAPS = {"name": "maps", "kind": "ConfigMap"}


def starting(name: str, order: int, kind: str = "", **spec: Any) -> dict[str, Any]:
    """Return a hook that creates an object for each of its contexts."""
    made = hook(run={"operations": [create(f"{name}-{{{{ to_lower(element.binding) }}}}")]})
    bound = {"kubernetes": [{**MAPS, "kind": kind}]} if kind else {}
    spec = {"run": made["spec"]["run"], "onStartup": order, **bound, **spec}
    return {**made, "metadata": {**made["metadata"], "name": name}, "spec": spec}


async def slowly(hook: Object) -> DeclaredHook:
    await asyncio.sleep(1.0)
    return compile_hook(hook)


class Refusing(MemoryRequests):
    """Requests of which those of one hook cannot be stored."""

    @override
    async def create(self, name: str, labels: Mapping[str, str], spec: RequestSpec) -> str:
        if spec.policy.name == "refused":
            raise Denied("exceeded quota", status=403)
        return await super().create(name, labels, spec)


def made_by(found: Collection[dict[str, Any]], wanted: Collection[str]) -> list[str]:
    async def one() -> list[str]:
        world = World()
        for item in found:
            world.cluster.create(HOOKS, item)
        hooks = process(world, Ending(), 1, 1)
        recorder = replace(hooks.deps.recorder, requests=Refusing(world.cluster, "kyverno"))
        hooks.deps = replace(hooks.deps, compile=slowly, recorder=recorder)
        working = asyncio.create_task(hooks.run())

        async def done() -> bool:
            return set(wanted) <= set(await world.made())

        await until(done, Ending(), 60.0)
        working.cancel()
        await asyncio.wait({working})
        return await world.made_in_order()

    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        return runner.run(one())


def test_existing_objects_come_after_the_runs_at_the_start_of_all_hooks() -> None:
    wanted = [*(f"hook-{number}-onstartup" for number in range(9)), "hook-0-maps"]
    found = [starting(f"hook-{number}", number) for number in range(1, 9)]
    assert made_by([*found, starting("hook-0", 0, "ConfigMap")], wanted) == wanted


def test_a_run_at_the_start_that_cannot_be_stored_stops_no_other_hook() -> None:
    found = [starting("refused", 0), starting("other", 1, "ConfigMap")]
    wanted = ["other-onstartup", "other-maps"]
    assert made_by(found, wanted) == wanted


def test_a_run_at_the_start_does_not_wait_for_a_kind_that_it_may_install() -> None:
    assert made_by([starting("a", 1, "Gadget")], ["a-onstartup"]) == ["a-onstartup"]
