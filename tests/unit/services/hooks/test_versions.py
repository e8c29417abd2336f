"""A binding without apiVersion whose kind is served in another version later."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace

from typing_extensions import override

from reconciler.api.meta import CONFIG_MAPS, Kind
from reconciler.errors import NoKindMatch
from reconciler.hooks.declared import HOOKS
from reconciler.memory.cluster import MemoryCluster
from reconciler.services.ports.watching import WatchEvent, WatchScope
from tests.skipping import SkippingLoop
from tests.unit.services.hooks.test_endings import SEEDS, hook
from tests.unit.services.hooks.world import Ending, World, process, until

OLD = replace(CONFIG_MAPS, version="v0")


class Versions(MemoryCluster):
    """Discovery that knows one version of ConfigMaps."""

    version = OLD

    @override
    async def named(self, api_version: str, name: str) -> Kind | None:
        return self.version


class Upgraded(World):
    """A cluster whose ConfigMaps are served in another version at some time."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster.serve(OLD)
        self.discovery = Versions()

    async def upgrade(self) -> None:
        self.discovery.version = CONFIG_MAPS
        await self.forget()

    @override
    async def follow(self, scope: WatchScope, since: str) -> AsyncGenerator[WatchEvent]:
        if scope.kind != self.discovery.version:
            raise NoKindMatch("the cluster does not serve configmaps")
        async for event in super().follow(scope, since):
            yield event


async def play() -> set[str]:
    """Return what the hook creates for an object that is created after the upgrade."""
    world = Upgraded()
    world.cluster.create(HOOKS, hook(kubernetes=[SEEDS]))
    hooks = process(world, Ending(), 1, 1 << 20)
    informer = replace(hooks.deps.informer, kinds=world.discovery)
    hooks.deps = replace(hooks.deps, informer=informer)
    working = asyncio.create_task(hooks.run())
    await until(world.ready, Ending(), 60.0)
    await world.upgrade()
    # Statuses are written once a second.
    await asyncio.sleep(5)
    await until(world.ready, Ending(), 60.0)
    world.create("late", seed="y")

    async def done() -> bool:
        return bool(await world.made())

    await until(done, Ending(), 60.0)
    working.cancel()
    await asyncio.wait({working})
    return set(await world.made())


def test_a_kind_is_followed_in_the_version_in_which_it_is_served_now() -> None:
    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        assert runner.run(play()) == {"late-added"}
