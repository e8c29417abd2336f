"""Operations with Secrets: the Secrets of their plans are removed, wherever a process ends."""

import asyncio
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest
from typing_extensions import override

from reconciler.api.updaterequest import State
from reconciler.hooks.declared import HOOKS
from reconciler.installation import REPLACING
from reconciler.kube.secrets import SECRETS
from reconciler.memory.kinds import REQUESTS
from reconciler.services.hooks.service import Hooks
from reconciler.services.upkeep.retention import FinishedRequestCollector
from reconciler.services.upkeep.retries import Retries
from tests.skipping import SkippingLoop
from tests.stored import MemoryRequests
from tests.unit.services.hooks.world import (
    PLACE,
    Ending,
    LoopClock,
    World,
    has_ended,
    process,
    until,
)

MOST_WRITES = 60


def secret(name: str) -> dict[str, Any]:
    meta = {"name": name, "labels": {"made": name}}
    obj = {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": {"a": "b"}}
    return {"operation": "CreateOrUpdate", "object": obj}


HOOK = {
    "apiVersion": HOOKS.api_version,
    "kind": "Hook",
    "metadata": {"name": "once", "namespace": PLACE},
    "spec": {"onStartup": 1, "run": {"operations": [secret("one"), secret("two")]}},
}


class Later(LoopClock):
    """A clock that is an hour ahead."""

    @override
    def now(self) -> datetime:
        return super().now() + timedelta(hours=1)


async def secrets(world: World, namespace: str) -> list[str]:
    page = await world.cluster.list_page(SECRETS, namespace=namespace)
    return [item["metadata"]["name"] for item in page.items]


async def life(at: int) -> tuple[bool, list[str], list[str]]:
    """Return whether a process ended at this write, the Secrets made, and those of plans left."""
    world = World()
    world.cluster.serve(SECRETS)
    world.cluster.create(HOOKS, HOOK)

    async def done() -> bool:
        states = await world.states()
        return bool(states) and State.PENDING not in states

    for term, ending in enumerate((first := Ending(at=at), Ending()), start=1):
        working = asyncio.create_task(process(world, ending, term, 1 << 20).run())
        await until(done, ending)
        working.cancel()
        await asyncio.wait({working})
    requests = MemoryRequests(world.cluster, "kyverno")
    collector = FinishedRequestCollector(
        requests=requests, clock=Later(), retries=Retries(requests=requests, warn=pytest.fail)
    )
    await collector.resync()
    await collector.collect()
    left = await secrets(world, REPLACING.recorded)
    return has_ended(first), await secrets(world, PLACE), left


def test_no_secret_of_a_plan_is_left_wherever_a_process_ends() -> None:
    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        for at in range(MOST_WRITES):
            ended, made, left = runner.run(life(at))
            assert sorted(made) == ["one", "two"], f"ended at write {at}"
            assert left == [], f"ended at write {at}"
            if not ended:
                break
        else:
            pytest.fail("it writes more often than it has to")


class DeletedMeanwhile(MemoryRequests):
    """Requests that are deleted while the Secret of their plan is written."""

    def __init__(self, world: World, hooks: Hooks) -> None:
        super().__init__(world.cluster, "kyverno")
        self._world, self._hooks = world, hooks

    @override
    async def create_recorded(self, request: str, labels: Mapping[str, str], data: bytes) -> None:
        await super().create_recorded(request, labels, data)
        for item in (await self._world.cluster.list_page(REQUESTS)).items:
            self._world.cluster.delete(REQUESTS, "kyverno", item["metadata"]["name"])
            self._hooks.dispatcher.remove(item["metadata"]["name"])


async def _deleted() -> tuple[bool, list[str]]:
    world = World()
    world.cluster.serve(SECRETS)
    world.cluster.create(HOOKS, HOOK)
    hooks = process(world, Ending(), 1, 1 << 20)
    hooks.dispatcher.requests.requests = DeletedMeanwhile(world, hooks)
    working = asyncio.create_task(hooks.run())
    await asyncio.sleep(20.0)
    ended = working.done()
    working.cancel()
    await asyncio.wait({working})
    return ended, await secrets(world, REPLACING.recorded)


def test_a_request_can_be_deleted_while_its_plan_is_stored() -> None:
    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        assert runner.run(_deleted()) == (False, [])
