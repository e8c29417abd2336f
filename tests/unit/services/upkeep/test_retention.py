import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from reconciler.api.meta import ANNOTATION_RETRY_FAILED
from reconciler.api.updaterequest import RequestStatus, State, UpdateRequest
from reconciler.config import ControllerSettings
from reconciler.errors import Forbidden, NotFound, Unavailable
from reconciler.requests.lifecycle import Retention, second
from reconciler.requests.naming import plan_name, recorded_name, retry_name
from reconciler.services.upkeep.retention import SETTLING, FinishedRequestCollector
from reconciler.services.upkeep.retries import Retries
from tests.skipping import SkippingLoop
from tests.unit.services.conftest import START, Make, World, make_object

POLICY = {"kind": "ClusterPolicy", "metadata": {"name": "p", "uid": "u", "generation": 1}}


@pytest.fixture
def collector(world: World) -> FinishedRequestCollector:
    retries = Retries(requests=world.requests, warn=pytest.fail)
    return FinishedRequestCollector(
        requests=world.requests, clock=world.clock, retries=retries, keep=100
    )


@pytest.fixture
def finished(
    world: World, make: type[Make], collector: FinishedRequestCollector
) -> Callable[..., Awaitable[UpdateRequest]]:
    """Return a function that stores a finished request, to be removed after some minutes."""

    async def store(name, minutes, *, policy="p", notice=True, **spec):
        stored = {
            "kind": "ClusterPolicy",
            "metadata": {"name": policy, "uid": "u", "generation": 1},
        }
        request = await world.ask(stored, make.object(), name=name, **spec)
        removal = second(START + timedelta(minutes=minutes))
        status = RequestStatus(state=State.COMPLETED, finished=START, remove_after=removal)
        request = await world.requests.write_status(request, status)
        if notice:
            collector.on_stored(request)
        return request

    return store


async def left(world):
    return [item.name async for item in world.requests.finished()]


async def test_requests_are_removed_once_their_time_has_passed(world, collector, finished):
    for name, minutes in (("ur-1", 1), ("ur-2", 2), ("ur-3", 3)):
        await finished(name, minutes)
    world.clock.tick(2 * 60 + SETTLING.total_seconds())
    await collector.collect()
    assert await left(world) == ["ur-2", "ur-3"]
    world.clock.tick(1)
    await collector.collect()
    assert await left(world) == ["ur-3"]


async def test_requests_without_retention_are_removed_some_seconds_after_their_end(
    world, collector, finished
):
    await finished("ur-1", 0)
    await finished("ur-2", 1)
    await collector.collect()
    assert await left(world) == ["ur-1", "ur-2"]
    world.clock.tick(SETTLING.total_seconds() + 1)
    await collector.collect()
    assert await left(world) == ["ur-2"]


async def test_requests_that_an_earlier_version_did_not_keep_are_removed(
    world, collector, finished
):
    request = await finished("ur-1", 1)
    former = replace(request.status, remove_after="now")
    collector.on_stored(await world.requests.write_status(request, former))
    await collector.collect()
    assert await left(world) == []


async def test_one_call_removes_all_requests_of_a_minute(world, collector, finished):
    calls = []
    remove = world.requests.remove

    async def record(**options):
        calls.append(options)
        await remove(**options)

    world.requests.remove = record
    for number in range(20):
        await finished(f"ur-{number}", 1)
    world.clock.tick(600)
    await collector.collect()
    await collector.collect()
    assert len(calls) == 1
    assert await left(world) == []


async def test_waiting_requests_are_kept(world, collector, make):
    stored = {"kind": "ClusterPolicy", "metadata": {"name": "p", "uid": "u", "generation": 1}}
    collector.on_stored(await world.ask(stored, make.object()))
    world.clock.tick(10**6)
    await collector.collect()
    assert [item.name async for item in world.requests.waiting()] == ["ur-1"]


async def test_requests_left_by_an_earlier_process_are_found_by_a_list(world, collector, finished):
    await finished("ur-1", 1, notice=False)
    await collector.resync()
    world.clock.tick(600)
    await collector.collect()
    assert await left(world) == []


async def test_the_newest_requests_of_each_policy_are_kept(world, collector, finished):
    collector.keep = 3
    for number in range(6):
        await finished(f"ur-{number}", number + 10)
        await finished(f"other-{number}", number + 10, policy="q" if number < 2 else "r")
    world.clock.tick(SETTLING.total_seconds())
    await collector.collect()
    kept = await left(world)
    assert [name for name in kept if name.startswith("ur")] == ["ur-3", "ur-4", "ur-5"]
    assert len(kept) == 3 + 2 + 3


async def test_requests_of_the_newest_minute_are_kept_above_the_limit(world, collector, finished):
    collector.keep = 3
    for number in range(5):
        await finished(f"ur-{number}", 10)
    await finished("older", 9)
    world.clock.tick(SETTLING.total_seconds())
    await collector.collect()
    assert await left(world) == [f"ur-{number}" for number in range(5)]


async def test_requests_above_the_limit_are_removed_seconds_after_the_last_of_them(
    world, collector, finished
):
    collector.keep = 1
    await finished("older", 9)
    await finished("newer", 10)
    world.clock.tick(SETTLING.total_seconds() - 1)
    await finished("late", 9)
    world.clock.tick(SETTLING.total_seconds() - 1)
    await collector.collect()
    assert await left(world) == ["late", "newer", "older"]
    world.clock.tick(1)
    await collector.collect()
    assert await left(world) == ["newer"]


async def test_requests_above_the_limit_are_kept_while_others_may_still_join_them(world, make):
    settings = ControllerSettings(retain_per_policy=1)
    collector = FinishedRequestCollector.of(settings, world.requests, world.clock, pytest.fail)
    retention = Retention.of(settings)
    for name, state in (("ur-1", State.COMPLETED), ("ur-2", State.FAILED)):
        request = await world.ask(POLICY, make.object(), name=name)
        removal = retention.remove_after(state, START)
        status = RequestStatus(state=state, finished=START, remove_after=removal)
        collector.on_stored(await world.requests.write_status(request, status))
    world.clock.tick(59)
    await collector.collect()
    assert await left(world) == ["ur-1", "ur-2"]
    world.clock.tick(1 + SETTLING.total_seconds())
    await collector.collect()
    assert await left(world) == ["ur-2"]


async def test_requests_that_cannot_be_removed_do_not_keep_the_others(world, collector, finished):
    for name, minutes in (("ur-1", 1), ("ur-2", 2), ("ur-3", 3)):
        await finished(name, minutes, policy="q" if name == "ur-1" else "p")
    orphan = await finished("ur-4", 4, recorded_secret="ur-4-recorded")
    await world.requests.create_recorded("ur-4", {}, b"{}")
    collector.on_deleted(orphan)
    refused = second(START + timedelta(minutes=1))
    remove = world.requests.remove

    async def refuse(*, remove_after, policy=""):
        if remove_after == refused:
            raise Forbidden("no", permission="deletecollection updaterequests.kyverno.io")
        await remove(remove_after=remove_after, policy=policy)

    world.requests.remove = refuse
    world.clock.tick(3 * 60 + SETTLING.total_seconds() + 1)
    for _ in range(2):
        with pytest.raises(Forbidden):
            await collector.collect()
    assert await left(world) == ["ur-1", "ur-4"]
    with pytest.raises(NotFound):
        await world.requests.read_recorded("ur-4")
    world.requests.remove = remove
    await collector.collect()
    assert await left(world) == ["ur-4"]


def test_a_failing_removal_is_reported_once(world):
    warnings, tries, tried = [], [], asyncio.Event()
    collector = FinishedRequestCollector(
        requests=world.requests,
        clock=world.clock,
        retries=Retries(requests=world.requests, warn=warnings.append),
    )

    async def refuse(**names):
        tries.append(names)
        if len(tries) == 3:
            tried.set()
        raise Forbidden("not allowed", permission="deletecollection updaterequests.kyverno.io")

    async def run():
        request = await world.ask(POLICY, make_object())
        status = RequestStatus(state=State.COMPLETED, finished=START, remove_after=second(START))
        collector.on_stored(await world.requests.write_status(request, status))
        world.clock.tick(60)
        world.requests.remove = refuse
        work = asyncio.create_task(collector.run())
        await tried.wait()
        work.cancel()

    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        runner.run(run())
    assert warnings == ["finished requests cannot be removed: not allowed"]


class TestRecordedSecrets:
    @pytest.fixture
    def recorded(
        self, world: World, finished: Callable[..., Awaitable[UpdateRequest]]
    ) -> Callable[..., Awaitable[UpdateRequest]]:
        async def store(name, minutes, **facts):
            await world.requests.create_recorded(name, {}, b"{}")
            return await finished(name, minutes, recorded_secret=f"{name}-recorded", **facts)

        return store

    @staticmethod
    async def secrets(world):
        kind = world.cluster.exact("v1", "Secret")
        return [item["metadata"]["name"] for item in (await world.cluster.list_page(kind)).items]

    async def test_secrets_are_removed_with_their_request(self, world, collector, recorded):
        await recorded("ur-1", 1)
        await recorded("ur-2", 9)
        world.clock.tick(300)
        await collector.collect()
        assert await self.secrets(world) == ["ur-2-recorded"]

    async def test_secrets_are_removed_if_the_deletion_is_observed_meanwhile(
        self, world, collector, recorded
    ):
        request = await recorded("ur-1", 1)
        remove = world.requests.remove

        async def remove_and_hear(**options):
            await remove(**options)
            collector.on_deleted(request)

        world.requests.remove = remove_and_hear
        world.clock.tick(300)
        await collector.collect()
        assert await self.secrets(world) == []

    async def test_secrets_are_removed_when_a_user_deletes_the_request(
        self, world, collector, recorded
    ):
        request = await recorded("ur-1", 9)
        kind = world.cluster.exact("kyverno.io/v2", "UpdateRequest")
        world.cluster.delete(kind, "kyverno", "ur-1")
        collector.on_deleted(request)
        await collector.collect()
        assert await self.secrets(world) == []

    async def test_secrets_of_a_request_deleted_before_its_end_are_removed(
        self, world, collector, recorded
    ):
        request = await recorded("ur-1", 9, notice=False)
        collector.on_deleted(replace(request, status=RequestStatus()))
        await collector.collect()
        assert await self.secrets(world) == []

    async def test_secrets_of_plans_are_removed_as_well(self, world, collector, finished):
        for name in ("hook-1", "hook-2"):
            await world.requests.create_recorded(plan_name(name), {}, b"[]")
            request = await finished(name, 1, notice=False)
            status = replace(request.status, plan_secret=recorded_name(plan_name(name)))
            request = await world.requests.write_status(request, status)
        collector.on_deleted(request)
        await collector.collect()
        assert await self.secrets(world) == [recorded_name(plan_name("hook-1"))]
        await collector.resync()
        world.clock.tick(300)
        await collector.collect()
        assert await self.secrets(world) == []

    async def test_a_request_that_names_a_foreign_secret_does_not_delete_it(
        self, world, collector, finished
    ):
        meta = {"name": "kube-retrofit-ca", "namespace": "kyverno"}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": meta}
        world.cluster.create(world.cluster.exact("v1", "Secret"), secret)
        await finished("ur-1", 1, recorded_secret="kube-retrofit-ca")
        deleted = await finished("ur-2", 9, recorded_secret="kube-retrofit-ca")
        collector.on_deleted(deleted)
        world.clock.tick(300)
        await collector.collect()
        assert await self.secrets(world) == ["kube-retrofit-ca"]

    async def test_an_error_during_removal_leaves_neither_request_nor_secret(
        self, world, collector, recorded
    ):
        await recorded("ur-1", 1)
        remove, failing = world.requests.remove, True

        async def fail_once(**options):
            if failing:
                raise Unavailable("no answer")
            await remove(**options)

        world.requests.remove = fail_once
        world.clock.tick(300)
        with pytest.raises(Unavailable):
            await collector.collect()
        failing = False
        await collector.collect()
        assert (await left(world), await self.secrets(world)) == ([], [])


async def test_a_requested_retry_is_stored_before_the_request_is_removed(
    world, collector, finished
):
    request = await finished("ur-1", 1, notice=False)
    await world.requests.write_status(request, replace(request.status, state=State.FAILED))
    await world.requests.annotate("ur-1", {ANNOTATION_RETRY_FAILED: "now"})
    await collector.resync()
    world.clock.tick(300)
    await collector.collect()
    assert await left(world) == []
    (again,) = [item async for item in world.requests.waiting()]
    assert again.name == retry_name(request.uid, sweep=False)


async def test_a_request_whose_retry_cannot_be_stored_yet_is_kept(world, collector, finished):
    request = await finished("ur-1", 1, notice=False)
    await finished("ur-2", 2)
    await world.requests.write_status(request, replace(request.status, state=State.FAILED))
    await world.requests.annotate("ur-1", {ANNOTATION_RETRY_FAILED: "now"})
    await collector.resync()
    create, said = world.requests.create, []

    async def fail(*_):
        raise Unavailable("no answer")

    world.requests.create, collector.retries.warn = fail, said.append
    world.clock.tick(300)
    await collector.collect()
    assert await left(world) == ["ur-1"]
    assert said == ["ur-1 cannot be retried yet: no answer"]
    world.requests.create = create
    await collector.collect()
    assert await left(world) == []
    assert len([item async for item in world.requests.waiting()]) == 1


async def test_requests_are_counted_before_they_are_removed(world, collector, finished):
    counted = []

    async def count():
        counted.extend(await left(world))
        # Another request ends while the figures are being written to the API server.
        if not counted[1:]:
            await finished("ur-2", (world.clock.now() - START) / timedelta(minutes=1))
        return True

    collector.before = count
    await finished("ur-1", 0)
    world.clock.tick(SETTLING.total_seconds() + 1)
    await collector.collect()
    assert (counted, await left(world)) == (["ur-1"], ["ur-2"])
    world.clock.tick(SETTLING.total_seconds() + 1)
    await collector.collect()
    assert (counted, await left(world)) == (["ur-1", "ur-2"], [])


async def test_requests_that_could_not_be_counted_are_removed_later(world, collector, finished):
    counts = [False, True]

    async def count():
        return counts.pop(0)

    collector.before = count
    await finished("ur-1", 0)
    world.clock.tick(SETTLING.total_seconds() + 1)
    await collector.collect()
    assert await left(world) == ["ur-1"]
    await collector.collect()
    assert await left(world) == []
