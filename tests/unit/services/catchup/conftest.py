"""Catch-up passes on an in-memory cluster, with a checkpoint that a test sets."""

from collections import Counter
from typing import Any

import pytest

from reconciler.api.kinds import policy_named
from reconciler.api.meta import Object, PolicyRef, policy_ref
from reconciler.api.updaterequest import Source, UpdateRequest, render_time
from reconciler.services.catalog.settings import SettingsHolder
from reconciler.services.catchup.passes import CatchUpPasses
from reconciler.services.catchup.recent_requests import RecentRequests
from reconciler.services.catchup.recovery import Loss
from reconciler.services.catchup.scope import CatchUpScope
from reconciler.services.catchup.search import PassResult, Search
from reconciler.services.ports.leases import Checkpoint
from reconciler.services.rollout.in_force import InForce
from reconciler.services.rollout.outages import Cause
from reconciler.services.sweeping.listing import ObjectLister
from tests.unit.services.configurations import MemoryCheckpoint
from tests.unit.services.conftest import World


class Chase:
    """A leader that searches a world for lost triggers."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.checkpoint = MemoryCheckpoint()
        self.settings = SettingsHolder.of("kyverno")
        self.held = False
        self.reported: list[PassResult] = []
        self.said: list[str] = []
        self.losses: list[Loss] = []
        self.waiting = Counter[PolicyRef]()
        self.restart()

    def restart(self, known: Checkpoint | None = None) -> None:
        world = self.world
        self.in_force = InForce(clock=world.clock)
        untouched = Checkpoint(version="1", confirmed=world.clock.now())
        self.in_force.recall(known or untouched, ())
        self.search = Search(
            lister=ObjectLister(kinds=world.cluster, reader=world.wire, page=2),
            processor=world.processor,
            scope=CatchUpScope(live=self.settings),
            recent=RecentRequests(),
            waiting=lambda: self.waiting,
        )
        self.passes = CatchUpPasses(
            index=world.index,
            policies=world.policies,
            checkpoint=self.checkpoint,
            search=self.search,
            clock=world.clock,
            interval=300.0,
            in_force=self.in_force,
            held=lambda: self.held,
            on_found=self.reported.append,
            lost=self._lose,
            warn=self.said.append,
        )

    async def _lose(self, loss: Loss) -> None:
        self.losses.append(loss)

    async def install(self, policy: Object, *, ready: bool = True) -> Object:
        """Store a policy as changed now, by default in force."""
        policy["metadata"]["managedFields"] = [self._entry("kubectl")]
        stored = self.world.install(policy)
        return await self.ready(stored) if ready else stored

    async def ready(self, policy: Object) -> Object:
        """Record in the policy's status that it is in force."""
        policies, meta = self.world.policies, policy["metadata"]
        status = {"ready": True, "mutateExisting": {"observedGeneration": meta["generation"]}}
        await policies.write_status(policy, status)
        found: Object = await policies.get(policy_ref(policy))
        self.world.index.apply(found)
        return found

    async def change(self, name: str, spec: Object) -> Object:
        """Change the spec of a policy; the new generation is in force at once."""
        policies = self.world.policies
        found = await policies.get(policy_named(name))
        meta = {**found["metadata"], "managedFields": [self._entry("kubectl")]}
        stored = await self.world.cluster.change(
            self.world.kind_of(found),
            found,
            {**found, "metadata": meta, "spec": {**found["spec"], **spec}},
        )
        self.world.index.apply(stored)
        return await self.ready(stored)

    def add(self, obj: Object, manager: str = "kubectl") -> Object:
        """Store an object that this field manager wrote now."""
        obj["metadata"]["managedFields"] = [self._entry(manager)]
        stored: Object = self.world.cluster.add(obj)
        return stored

    async def touch(self, obj: Object) -> None:
        """Change an object now as kubectl does."""
        meta = {**obj["metadata"], "managedFields": [self._entry("kubectl")]}
        changed = {**obj, "metadata": meta, "data": {"touched": "yes"}}
        await self.world.cluster.change(self.world.kind_of(obj), obj, changed)

    def outage(self, seconds: int, trigger: Object | None = None, **options: Any) -> None:
        """Record an outage of some seconds; the trigger is stored just before its end."""
        outages, clock = self.in_force.outages, self.world.clock
        outages.begin(options.pop("cause", Cause.MISSING), clock.now(), **options)
        clock.tick(seconds)
        if trigger is not None:
            self.add(trigger)
        outages.end(clock.now(), policy=options.get("policy", ""))

    def _entry(self, manager: str) -> Object:
        moment = render_time(self.world.clock.now().replace(microsecond=0))
        return {"manager": manager, "operation": "Update", "time": moment}

    async def pass_time(self, seconds: int) -> None:
        """Advance the clock and run the passes that are due each second."""
        for _ in range(seconds):
            self.world.clock.tick(1.0)
            await self.passes.look()

    async def requests(self) -> list[UpdateRequest]:
        found = [item async for item in self.world.requests.waiting()]
        return [item for item in found if item.spec.source is Source.CATCH_UP]

    async def names(self) -> list[str]:
        return sorted(item.spec.resource.name for item in await self.requests())


@pytest.fixture
def chase(world: World) -> Chase:
    return Chase(world)
