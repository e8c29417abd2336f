"""One request for all attempts at one write, and attempts that need their own."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from typing_extensions import override

from reconciler.api.kinds import policy_named
from reconciler.api.meta import ref_of
from reconciler.api.updaterequest import RequestSpec, RequestStatus, State, TriggerRecord
from reconciler.errors import Unavailable
from reconciler.requests.draft import Draft
from reconciler.services.recording.joining import SharedRequests
from tests.stored import MemoryRequests
from tests.unit.services.conftest import Make, World


class Wire(MemoryRequests):
    """Request storage that counts calls; a test may delay creations, or let them fail."""

    def __init__(self, cluster):
        super().__init__(cluster, "kyverno")
        self.creates = 0
        self.gets = 0
        self.passes = asyncio.Event()
        self.passes.set()
        self.error = None

    @override
    async def create(self, name, labels, spec):
        self.creates += 1
        await self.passes.wait()
        if self.error is not None:
            raise self.error
        return await super().create(name, labels, spec)

    @override
    async def get(self, name):
        self.gets += 1
        return await super().get(name)


@pytest.fixture
def wire(world: World) -> Wire:
    return Wire(world.cluster)


@pytest.fixture
def replica(world: World, wire: Wire) -> Callable[[], SharedRequests]:
    def make():
        return SharedRequests(requests=wire, clock=world.clock)

    return make


@pytest.fixture
def attempt(world: World, make: type[Make]) -> Callable[[int], Draft]:
    policy, trigger = world.install(make.policy()), make.object()
    trigger["metadata"]["uid"] = "u"

    def draft(number):
        return Draft(name="ur-shared", alone=f"ur-{number}", labels={}, spec=spec)

    spec = RequestSpec(
        policy=policy_named("p"),
        rule="r",
        resource=ref_of(trigger),
        operation="UPDATE",
        policy_uid=policy["metadata"]["uid"],
        trigger=TriggerRecord(resource_version="7"),
    )
    return draft


async def names(wire):
    return sorted([item.name async for item in wire.waiting()])


async def test_all_attempts_share_one_request_and_one_call(wire, replica, attempt):
    shared = replica()
    versions = [await shared.store(attempt(number)) for number in range(20)]
    assert versions[0]
    assert not any(versions[1:])
    assert await names(wire) == ["ur-shared"]
    assert (wire.creates, wire.gets) == (1, 0)


async def test_concurrent_attempts_wait_for_the_first(wire, replica, attempt):
    shared = replica()
    wire.passes.clear()
    work = [asyncio.create_task(shared.store(attempt(number))) for number in range(20)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in work)
    wire.passes.set()
    await asyncio.gather(*work)
    assert wire.creates == 1


async def test_cancelling_the_first_attempt_does_not_stop_the_others(wire, replica, attempt):
    shared = replica()
    wire.passes.clear()
    first, second = (asyncio.create_task(shared.store(attempt(number))) for number in (1, 2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    wire.passes.set()
    await second
    assert await names(wire) == ["ur-shared"]


async def test_a_failed_create_fails_all_attempts(wire, replica, attempt):
    shared = replica()
    wire.error = Unavailable("no")
    ends = await asyncio.gather(
        *(shared.store(attempt(number)) for number in (1, 2)), return_exceptions=True
    )
    assert all(isinstance(end, Unavailable) for end in ends)
    wire.error = None
    assert await shared.store(attempt(3))


async def test_another_replica_joins_after_one_read(wire, replica, attempt):
    await replica().store(attempt(1))
    other = replica()
    for number in (2, 3, 4):
        assert not await other.store(attempt(number))
    assert (wire.creates, wire.gets) == (2, 1)


@pytest.mark.parametrize(
    "status",
    [
        RequestStatus(state=State.SKIP, reason="NotStored"),
        RequestStatus(state=State.COMPLETED),
        RequestStatus(reason="Unconfirmed"),
    ],
    ids=lambda status: status.reason or status.state.value,
)
async def test_ended_or_unconfirmed_requests_are_not_joined(world, wire, replica, attempt, status):
    shared = replica()
    await shared.store(attempt(1))
    await wire.write_status(await wire.get("ur-shared"), status)
    world.clock.tick(10)
    assert await shared.store(attempt(2))
    assert "ur-2" in await names(wire)
    # Later attempts join the new request, as earlier ones joined the first.
    assert not await shared.store(attempt(3))
    assert "ur-3" not in await names(wire)


async def test_a_request_held_for_another_reason_is_joined(world, wire, replica, attempt):
    shared = replica()
    await shared.store(attempt(1))
    held = RequestStatus(reason="Paused", message="the policy is paused")
    await wire.write_status(await wire.get("ur-shared"), held)
    world.clock.tick(10)
    assert not await shared.store(attempt(2))
    assert await names(wire) == ["ur-shared"]


async def test_a_request_is_read_again_for_joining_after_some_seconds(
    world, wire, replica, attempt
):
    shared = replica()
    await shared.store(attempt(1))
    for _ in range(3):
        world.clock.tick(4)
        await shared.store(attempt(2))
    assert wire.gets == 1


async def test_a_refused_write_that_is_sent_again_much_later_is_processed(
    world, make, wire, replica, attempt
):
    """Two attempts replace one version: the first is refused, the second is stored later."""
    target = world.cluster.add(make.object("Secret", "s"))
    trigger = make.object()
    trigger["metadata"]["uid"] = "u"
    stored = world.cluster.add(trigger)
    version = stored["metadata"]["resourceVersion"]

    def sent(number):
        draft = attempt(number)
        return replace(
            draft, spec=replace(draft.spec, trigger=TriggerRecord(resource_version=version))
        )

    shared = replica()
    await shared.store(sent(1))
    await world.dispatcher.resync()
    for _ in range(80):
        world.clock.tick(2)
        await world.settle()
    assert (await world.status("ur-shared")).reason == "NotStored"
    await shared.store(sent(2))
    await world.edit(stored, data={"v": "2"})
    await world.dispatcher.resync()
    await world.settle()
    assert (await world.status("ur-2")).state is State.COMPLETED
    assert (await world.read(target))["metadata"]["labels"] == {"done": "yes"}
