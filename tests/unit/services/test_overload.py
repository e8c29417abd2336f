"""Estimates of the backlog, aggregate requests for diverted triggers, and their rounds."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from typing_extensions import override

from reconciler.api.meta import Object
from reconciler.api.updaterequest import RequestStatus, Source, State, UpdateRequest
from reconciler.clock import SystemClock
from reconciler.config import ProcessSettings
from reconciler.engine.program import CompiledPolicy, Program
from reconciler.errors import Conflict, Forbidden, Unavailable
from reconciler.memory.kinds import REQUESTS
from reconciler.requests.lifecycle import Defer, Done, Retry
from reconciler.requests.overload import Backlog, Thresholds, holders
from reconciler.services.catalog.settings import SettingsHolder
from reconciler.services.processing.backlog_publisher import BacklogPublisher
from reconciler.services.recording.backlog import BacklogEstimate, thresholds_of
from reconciler.services.recording.diversion import Diversion
from reconciler.services.sweeping.sweeper import Sweeper
from tests.holding import holds
from tests.stored import MemoryRequests
from tests.unit.services.conftest import Make, World

EACH = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "namespace": "{{ request.object.metadata.namespace }}",
    "name": "{{ request.object.metadata.name }}",
}


class Watched(MemoryRequests):
    """Requests that count raised sequences; a test may run a step before one."""

    def __init__(self, cluster):
        super().__init__(cluster, "kyverno")
        self.raises = 0
        self.before = None

    @override
    async def raise_sequence(self, request):
        self.raises += 1
        await asyncio.sleep(0)
        if self.before is not None:
            step, self.before = self.before, None
            await step()
        return await super().raise_sequence(request)


class PassingClock(SystemClock):
    """A clock on which every pause has already passed."""

    def __init__(self) -> None:
        self.moment = 0.0

    @override
    def monotonic(self) -> float:
        self.moment += 1.0
        return self.moment


@pytest.fixture
def requests(world: World) -> Watched:
    return Watched(world.cluster)


@pytest.fixture
def diversion(requests: Watched) -> Diversion:
    return Diversion(requests=requests, clock=PassingClock())


@pytest.fixture
def policy(world: World, make: type[Make]) -> Object:
    """A policy whose triggers are their own targets."""
    return world.install(make.policy(targets=[EACH]))


@pytest.fixture
def rule(world: World, policy: Object) -> tuple[CompiledPolicy, Program]:
    compiled = world.index.apply(policy)
    assert isinstance(compiled, CompiledPolicy)
    return compiled, compiled.programs[0]


@pytest.fixture
def edit(world: World, make: type[Make], policy: Object) -> Callable[..., Awaitable[None]]:
    """Return a function that changes the rule of the policy."""

    async def change(**changes):
        spec = make.policy(**changes)["spec"]
        world.index.apply(await world.edit(policy, spec=spec))

    return change


async def stored(requests: MemoryRequests) -> list[UpdateRequest]:
    return [item async for item in requests.waiting()]


class TestEstimate:
    def estimate(self, limit=10, hard=20):
        return BacklogEstimate(thresholds=lambda: Thresholds(limit=limit, hard=hard))

    def store(self, estimate, *versions):
        for version in versions:
            estimate.begin()
            estimate.end(str(version))

    def test_requests_that_are_being_stored_count(self):
        estimate = self.estimate()
        for _ in range(10):
            estimate.begin()
        assert estimate.waiting == 10
        assert estimate.turn()
        estimate.end("")
        assert estimate.waiting == 9

    def test_requests_that_the_leader_has_seen_are_not_counted_twice(self):
        estimate = self.estimate()
        self.store(estimate, 101, 103, 105)
        estimate.update(Backlog(waiting=7, seen=103))
        assert estimate.waiting == 8

    def test_requests_reported_before_their_create_returns_are_not_counted_twice(self):
        estimate = self.estimate()
        estimate.begin()
        estimate.update(Backlog(waiting=1, seen=101))
        estimate.end("101")
        assert estimate.waiting == 1

    def test_the_estimate_keeps_counting_without_reports_of_a_leader(self):
        estimate = self.estimate()
        estimate.update(Backlog(waiting=6, seen=100))
        self.store(estimate, 101, 102, 103, 104)
        assert estimate.turn()

    def test_subscribers_are_notified_when_diversion_starts_and_ends(self):
        estimate, reported = self.estimate(), []
        estimate.turned.subscribe(lambda item: reported.append((item.diverting, item.waiting)))
        for waiting in (9, 10, 12, 8, 7, 9):
            estimate.update(Backlog(waiting=waiting))
        assert reported == [(True, 10), (False, 7)]

    def test_the_estimate_is_full_at_the_hard_limit(self):
        estimate = self.estimate()
        estimate.update(Backlog(waiting=20))
        assert estimate.full


class TestShares:
    """A namespace may take half of the limits, a policy three quarters."""

    THRESHOLDS = Thresholds(limit=20, hard=40, namespace=50, policy=75)

    @pytest.fixture
    def estimate(self) -> BacklogEstimate:
        return BacklogEstimate(thresholds=lambda: self.THRESHOLDS)

    def test_a_flood_in_one_namespace_does_not_affect_other_namespaces(self, estimate):
        flood, other = holders("all", "flood"), holders("all", "other")
        estimate.update(Backlog(waiting=10, of={"namespace/flood": 10, "policy/all": 10}))
        assert estimate.is_over(flood)
        assert not estimate.is_over(other)
        assert not estimate.turn()
        estimate.update(Backlog(waiting=20, of={"namespace/flood": 20, "policy/all": 20}))
        assert estimate.full_for(flood) == "namespace/flood"
        assert estimate.full_for(other) == ""
        assert not estimate.full

    def test_the_share_of_a_policy_applies_across_namespaces(self, estimate):
        estimate.update(Backlog(waiting=30, of={"policy/all": 30}))
        assert estimate.full_for(holders("all", "any")) == "policy/all"
        assert estimate.full_for(holders("another", "any")) == ""

    def test_own_requests_count_until_the_leader_reports_them(self, estimate):
        mine = holders("p", "a")
        for version in range(101, 111):
            estimate.begin(mine)
            estimate.end(str(version), mine)
        assert estimate.is_over(mine)
        assert estimate.held("namespace/a") == 10
        estimate.update(Backlog(waiting=10, seen=110, of={"namespace/a": 10}))
        assert estimate.held("namespace/a") == 10
        estimate.begin(mine)
        estimate.end("", mine)
        assert estimate.held("namespace/a") == 10

    def test_diversion_ends_below_four_fifths_of_a_share(self, estimate):
        mine = holders("p", "a")
        for waiting, over in ((9, False), (10, True), (8, True), (7, False), (9, False)):
            estimate.update(Backlog(waiting=waiting, of={"namespace/a": waiting}))
            assert estimate.is_over(mine) is over

    def test_a_change_of_the_large_holders_outdates_a_report(self):
        reported = Backlog(waiting=10, of={"namespace/a": 5})
        assert Backlog(waiting=10, of={"namespace/b": 5}).outdates(reported, 0, self.THRESHOLDS)
        assert not Backlog(waiting=10, of={"namespace/a": 6}).outdates(
            reported, 0, self.THRESHOLDS
        )

    async def test_the_leader_reports_the_largest_holders(self, world, make):
        store = MemoryStore()
        backlog_publisher = BacklogPublisher(
            store=store,
            dispatcher=world.dispatcher,
            thresholds=lambda: self.THRESHOLDS,
            warn=print,
        )
        policy = world.install(make.policy())
        trigger = world.cluster.add(make.object(data={"v": "1"}))
        for number in range(3):
            await world.ask(policy, trigger, name=f"ur-{number}")
        await world.dispatcher.resync()
        await backlog_publisher.look()
        place, name = trigger["metadata"]["namespace"], policy["metadata"]["name"]
        assert store.kept.of == {f"namespace/{place}": 3, f"policy/{name}": 3}
        world.dispatcher.on_deleted("ur-0")
        world.dispatcher.on_deleted("ur-1")
        assert dict(world.dispatcher.known.held_by) == {
            f"namespace/{place}": 1,
            f"policy/{name}": 1,
        }


def test_the_config_map_takes_precedence_over_the_flag():
    live = SettingsHolder.of("kyverno")
    thresholds = thresholds_of(ProcessSettings(waiting_limit=7, hard_limit=9), live)
    shares = {"namespace": 50, "policy": 75}
    assert thresholds() == Thresholds(limit=7, hard=9, **shares)
    live.load({"updateRequestThreshold": "1000"})
    assert thresholds() == Thresholds(limit=1000, hard=9, **shares)
    live.load({})
    assert thresholds() == Thresholds(limit=7, hard=9, **shares)


class MemoryStore:
    """Stores the backlog in memory; writes raise `fault`."""

    def __init__(self, kept=None):
        self.kept = kept or Backlog()
        self.writes = 0
        self.fault = None

    async def read(self):
        return self.kept

    async def write(self, backlog):
        self.writes += 1
        if self.fault is not None:
            raise self.fault
        self.kept = backlog


class TestTelling:
    def backlog_publisher(self, world, store, said):
        return BacklogPublisher(
            store=store,
            dispatcher=world.dispatcher,
            thresholds=lambda: Thresholds(limit=20, hard=50),
            warn=said.append,
        )

    async def test_nothing_is_reported_before_all_is_listed(self, world):
        store = MemoryStore()
        backlog_publisher = self.backlog_publisher(world, store, [])
        await backlog_publisher.look()
        assert store.writes == 0
        await world.dispatcher.resync()
        await backlog_publisher.look()
        assert store.writes == 1

    async def test_a_new_leader_keeps_the_newest_version_that_was_seen(self, world):
        store = MemoryStore(Backlog(waiting=5, seen=10**6))
        await world.dispatcher.resync()
        await self.backlog_publisher(world, store, []).look()
        assert store.kept == Backlog(waiting=0, seen=10**6)

    async def test_the_backlog_is_reported_again_only_after_a_large_enough_change(
        self, world, make
    ):
        store = MemoryStore()
        backlog_publisher = self.backlog_publisher(world, store, [])
        await world.dispatcher.resync()
        await backlog_publisher.look()
        policy = world.install(make.policy())
        trigger = world.cluster.add(make.object(data={"v": "1"}))
        world.dispatcher.on_stored(await world.ask(policy, trigger, name="ur-1"))
        await backlog_publisher.look()
        assert store.writes == 1
        world.dispatcher.on_stored(await world.ask(policy, trigger, name="ur-2"))
        await backlog_publisher.look()
        assert store.writes == 2
        assert store.kept.waiting == 2
        assert store.kept.seen == int((await world.requests.get("ur-2")).resource_version)

    async def test_a_request_whose_handler_is_late_counts_if_a_newer_event_counts_as_seen(
        self, world, make
    ):
        store = MemoryStore()
        await world.dispatcher.resync()
        policy = world.install(make.policy())
        trigger = world.cluster.add(make.object(data={"v": "1"}))
        late = await world.ask(policy, trigger, name="ur-1")
        world.dispatcher.on_stored(await world.ask(policy, trigger, name="ur-2"))

        async def handle():
            for _ in range(5):
                await asyncio.sleep(0)
            world.dispatcher.on_stored(late)

        handler = asyncio.create_task(handle())
        await self.backlog_publisher(world, store, []).look()
        await handler
        assert store.kept.seen > int(late.resource_version)
        assert store.kept.waiting == 2

    async def test_a_failed_report_is_logged_once_and_retried(self, world):
        store, said = MemoryStore(), []
        store.fault = Forbidden("patch leases", permission="patch leases")
        backlog_publisher = self.backlog_publisher(world, store, said)
        await world.dispatcher.resync()
        await backlog_publisher.look()
        await backlog_publisher.look()
        assert said == ["cannot publish the number of waiting requests: patch leases"]
        store.fault = None
        await backlog_publisher.look()
        assert backlog_publisher.problem == ""


class TestDiversion:
    async def test_the_first_diverted_trigger_creates_the_aggregate_request(
        self, requests, diversion, rule
    ):
        await diversion.divert(*rule)
        (aggregate,) = await stored(requests)
        assert (aggregate.spec.source, aggregate.spec.sweep) == (Source.CATCH_UP, True)
        assert aggregate.spec.sequence == 1
        assert requests.raises == 0

    async def test_simultaneous_triggers_share_one_write(self, requests, diversion, rule):
        await diversion.divert(*rule)
        await asyncio.gather(*(diversion.divert(*rule) for _ in range(100)))
        (aggregate,) = await stored(requests)
        assert aggregate.spec.sequence == 2
        assert requests.raises == 1

    async def test_a_trigger_that_arrives_during_a_write_causes_another_write(
        self, requests, diversion, rule
    ):
        await diversion.divert(*rule)
        late = []

        async def another():
            late.append(asyncio.create_task(diversion.divert(*rule)))
            await asyncio.sleep(0)

        requests.before = another
        await diversion.divert(*rule)
        await late[0]
        (aggregate,) = await stored(requests)
        assert aggregate.spec.sequence == 3

    async def test_replicas_share_one_aggregate_request(self, world, requests, rule):
        replicas = [Diversion(requests=requests, clock=PassingClock()) for _ in range(3)]
        for _ in range(2):
            await asyncio.gather(*(item.divert(*rule) for item in replicas))
        (aggregate,) = await stored(requests)
        assert aggregate.spec.sequence == 6

    async def test_an_aggregate_request_that_ends_during_a_diversion_is_replaced(
        self, requests, diversion, rule
    ):
        await diversion.divert(*rule)
        (first,) = await stored(requests)

        async def end():
            await requests.write_status(first, RequestStatus(state=State.COMPLETED))

        requests.before = end
        await diversion.divert(*rule)
        (second,) = await stored(requests)
        assert second.name != first.name
        assert second.spec.sequence == 1
        await diversion.divert(*rule)
        assert [item.spec.sequence for item in await stored(requests)] == [2]

    async def test_a_new_replica_finds_the_current_aggregate_request(
        self, requests, diversion, rule
    ):
        for _ in range(2):
            await diversion.divert(*rule)
            (aggregate,) = await stored(requests)
            await requests.write_status(aggregate, RequestStatus(state=State.COMPLETED))
        await diversion.divert(*rule)
        await Diversion(requests=requests, clock=PassingClock()).divert(*rule)
        assert [item.spec.sequence for item in await stored(requests)] == [2]

    async def test_a_deleted_aggregate_request_is_created_again(
        self, world, requests, diversion, rule
    ):
        await diversion.divert(*rule)
        (aggregate,) = await stored(requests)
        world.cluster.delete(REQUESTS, "kyverno", aggregate.name)
        await diversion.divert(*rule)
        assert [item.spec.sequence for item in await stored(requests)] == [1]

    async def test_a_failed_write_fails_all_waiting_callers_and_is_not_remembered(
        self, world, requests, diversion, rule
    ):
        async def broken():
            raise Unavailable("no answer")

        await diversion.divert(*rule)
        requests.before = broken
        ends = await asyncio.gather(
            *(diversion.divert(*rule) for _ in range(3)), return_exceptions=True
        )
        assert [str(item) for item in ends] == ["no answer"] * 3
        await diversion.divert(*rule)
        assert [item.spec.sequence for item in await stored(requests)] == [2]

    async def test_the_rules_of_a_deleted_policy_are_forgotten(
        self, world, requests, diversion, rule
    ):
        policy, program = rule
        await diversion.divert(replace(policy, uid="gone"), program)
        (aggregate,) = await stored(requests)
        world.cluster.delete(REQUESTS, "kyverno", aggregate.name)
        assert holds(diversion, "gone")
        diversion.clock.moment += 3600
        await diversion.divert(policy, program)
        assert not holds(diversion, "gone")


class TestRounds:
    @pytest.fixture
    def sweeper(self, world: World) -> Sweeper:
        return replace(world.sweeper, settle=60.0, page=2, parallel=2)

    @pytest.fixture
    async def aggregate(
        self,
        world: World,
        requests: Watched,
        diversion: Diversion,
        rule: tuple[CompiledPolicy, Program],
        make: type[Make],
    ) -> UpdateRequest:
        """An aggregate request for three triggers."""
        for name in ("1", "2", "3"):
            world.cluster.add(make.object("ConfigMap", name, "a"))
        await diversion.divert(*rule)
        (aggregate,) = await stored(requests)
        return aggregate

    async def done(self, world):
        kind = world.cluster.exact("v1", "ConfigMap")
        page = await world.cluster.list_page(kind, labels="done=yes")
        return {obj["metadata"]["name"] for obj in page.items}

    async def test_no_object_is_listed_before_the_last_trigger_has_settled(
        self, world, sweeper, aggregate
    ):
        _, ended = await sweeper.run(aggregate)
        assert isinstance(ended.disposition, Defer)
        assert ended.disposition.reason == "Settling"
        assert (ended.disposition.until - world.clock.now()).total_seconds() == 60
        assert await self.done(world) == set()
        world.clock.tick(59)
        assert isinstance((await sweeper.run(aggregate))[1].disposition, Defer)
        world.clock.tick(1)
        _, ended = await sweeper.run(aggregate)
        assert ended.disposition == Done()
        assert await self.done(world) == {"1", "2", "3"}
        assert ended.sweep.sequence == 1

    async def test_a_trigger_that_arrives_during_a_round_causes_another_round(
        self, world, sweeper, aggregate, diversion, rule, make
    ):
        await sweeper.run(aggregate)
        world.clock.tick(60)
        late = []

        async def arrive(verb, _kind):
            if verb == "list" and not late:
                late.append("4")
                await diversion.divert(*rule)

        world.wire.before_read = arrive
        request, ended = await sweeper.run(aggregate)
        assert isinstance(ended.disposition, Defer)
        assert ended.sweep.sequence == 0
        world.cluster.add(make.object("ConfigMap", "4", "a"))
        world.clock.tick(60)
        request = replace(request, status=replace(request.status, sweep=ended.sweep))
        _, ended = await sweeper.run(request)
        assert ended.disposition == Done()
        assert await self.done(world) == {"1", "2", "3", "4"}

    async def test_a_trigger_of_a_second_overload_settles_although_the_name_is_the_same(
        self, world, sweeper, aggregate, diversion, rule, make
    ):
        await sweeper.run(aggregate)
        world.clock.tick(60)
        await sweeper.run(aggregate)
        world.cluster.delete(REQUESTS, "kyverno", aggregate.name)
        world.clock.tick(600)
        await diversion.divert(*rule)
        second = await world.requests.get(aggregate.name)
        assert second.spec.sequence == aggregate.spec.sequence
        _, ended = await sweeper.run(second)
        assert isinstance(ended.disposition, Defer)
        assert ended.disposition.reason == "Settling"
        world.cluster.add(make.object("ConfigMap", "4", "a"))
        world.clock.tick(60)
        _, ended = await sweeper.run(second)
        assert ended.disposition == Done()
        assert await self.done(world) == {"1", "2", "3", "4"}

    async def test_a_round_does_not_complete_a_request_that_replaced_its_own(
        self, world, sweeper, aggregate, diversion, rule
    ):
        await sweeper.run(aggregate)
        world.clock.tick(60)

        async def replace_it(verb, _kind):
            if verb == "list":
                world.wire.before_read = lambda *_: None
                world.cluster.delete(REQUESTS, "kyverno", aggregate.name)
                await diversion.divert(*rule)

        world.wire.before_read = replace_it
        request, ended = await sweeper.run(aggregate)
        assert isinstance(ended.disposition, Retry)
        assert request.uid == aggregate.uid

    async def test_a_trigger_that_arrives_at_the_end_prevents_completion(
        self, world, sweeper, aggregate, diversion, rule
    ):
        await sweeper.run(aggregate)
        world.clock.tick(60)
        request, ended = await sweeper.run(aggregate)
        assert ended.disposition == Done()
        await diversion.divert(*rule)
        with pytest.raises(Conflict):
            await world.requests.write_status(request, RequestStatus(state=State.COMPLETED))

    async def test_a_round_resumed_after_a_restart_does_not_cover_later_triggers(
        self, world, sweeper, aggregate, diversion, rule
    ):
        await sweeper.run(aggregate)
        world.clock.tick(60)
        _, ended = await sweeper.run(aggregate)
        begun = replace(ended.sweep, cursor="", done=0)
        request = replace(aggregate, status=RequestStatus(sweep=begun))
        await diversion.divert(*rule)
        fresh = replace(world.sweeper, settle=60.0, page=2, parallel=2)
        _, ended = await fresh.run(request)
        assert isinstance(ended.disposition, Defer)

    async def test_progress_is_written_while_triggers_raise_the_sequence(
        self, world, sweeper, aggregate, diversion, rule
    ):
        await sweeper.run(aggregate)
        world.clock.tick(60)
        raised = []

        async def arrive(_before, _after):
            world.clock.tick(1)
            if len(raised) < 3:
                raised.append(1)
                await diversion.divert(*rule)

        world.wire.before_change = arrive
        request, _ = await sweeper.run(aggregate)
        assert request.status.sweep is not None
        assert request.status.sweep.done > 0

    async def test_the_round_applies_a_newer_generation_of_the_policy(
        self, world, sweeper, aggregate, edit
    ):
        await edit(targets=[EACH], patch={"metadata": {"labels": {"done": "yes", "new": "yes"}}})
        await sweeper.run(aggregate)
        world.clock.tick(60)
        _, ended = await sweeper.run(aggregate)
        assert ended.disposition == Done()
        assert await self.done(world) == {"1", "2", "3"}
        assert ended.sweep.generation == aggregate.spec.policy_generation + 1

    async def test_a_rule_that_cannot_be_rebuilt_is_applied_in_its_last_rebuildable_version(
        self, world, sweeper, aggregate, edit
    ):
        await edit(targets=[EACH], patch={"metadata": {"labels": {"done": "no"}}})
        await edit(targets=[EACH], patch={"metadata": {"labels": {"done": "yes"}}})
        await edit(targets=[{**EACH, "name": "{{ request.oldObject.data.a }}"}])
        await edit(targets=[EACH], resources={"operations": ["CREATE"]})
        await sweeper.run(aggregate)
        world.clock.tick(60)
        _, ended = await sweeper.run(aggregate)
        assert ended.disposition == Done()
        assert await self.done(world) == {"1", "2", "3"}

    async def test_a_round_without_an_earlier_version_waits_until_the_rule_is_changed_back(
        self, world, make, policy, aggregate, edit
    ):
        await edit(targets=[EACH], resources={"operations": ["CREATE"]})
        world.restart()
        world.index.apply(await world.read(policy))
        sweeper = replace(world.sweeper, settle=60.0)
        _, ended = await sweeper.run(aggregate)
        assert isinstance(ended.disposition, Defer)
        assert ended.disposition.reason == "RuleChanged"
        assert "depends on the operation" in ended.disposition.message
        assert "change the rule back" in ended.disposition.message
        await edit(targets=[EACH])
        await sweeper.run(aggregate)
        world.clock.tick(60)
        _, ended = await sweeper.run(aggregate)
        assert ended.disposition == Done()
        assert await self.done(world) == {"1", "2", "3"}

    async def test_child_requests_of_a_round_are_applied_with_the_earlier_rule(
        self, world, sweeper, aggregate, requests, edit
    ):
        world.cluster.forbid("patch", "configmaps")
        world.cluster.forbid("update", "configmaps")
        await sweeper.run(aggregate)
        world.clock.tick(60)
        await sweeper.run(aggregate)
        children = [item for item in await stored(requests) if not item.spec.sweep]
        world.cluster.permit("patch", "configmaps")
        await edit(targets=[EACH], resources={"operations": ["CREATE"]})
        for child in children:
            world.dispatcher.on_stored(child)
        await world.settle()
        assert await self.done(world) == {"1", "2", "3"}

    async def test_a_recreated_policy_has_no_earlier_rules(self, world, make, policy):
        world.index.apply(await world.edit(policy, spec=make.policy(targets=[EACH])["spec"]))
        world.remove(policy)
        again = world.cluster.add(make.policy(targets=[EACH]))
        world.index.apply(again)
        uids = [item["metadata"]["uid"] for item in (policy, again)]
        assert [world.index.as_it_was(uid, "r") for uid in uids] == [None, None]

    async def test_a_failing_trigger_keeps_one_child_request_through_all_rounds(
        self, world, sweeper, aggregate, requests, diversion, rule
    ):
        world.cluster.forbid("patch", "configmaps")
        world.cluster.forbid("update", "configmaps")
        await sweeper.run(aggregate)
        for _ in range(2):
            world.clock.tick(60)
            await sweeper.run(aggregate)
        children = [item for item in await stored(requests) if not item.spec.sweep]
        assert len(children) == 3
        assert {item.spec.sequence for item in children} == {0}

    async def test_a_trigger_that_fails_again_in_a_later_overload_gets_a_new_child_request(
        self, world, sweeper, aggregate, requests, diversion, rule
    ):
        world.cluster.forbid("patch", "configmaps")
        world.cluster.forbid("update", "configmaps")
        overload = aggregate
        for _ in range(3):
            await sweeper.run(overload)
            world.clock.tick(60)
            await sweeper.run(overload)
            children = [item for item in await stored(requests) if not item.spec.sweep]
            assert len(children) == 3
            for child in children:
                await requests.write_status(child, RequestStatus(state=State.FAILED))
            world.cluster.delete(REQUESTS, "kyverno", overload.name)
            await diversion.divert(*rule)
            overload = await requests.get(overload.name)

    async def test_an_aggregate_request_retries_as_a_whole_if_too_many_triggers_would_fail(
        self, world, sweeper, aggregate, requests
    ):
        sweeper = replace(sweeper, children=1)
        world.cluster.forbid("patch", "configmaps")
        world.cluster.forbid("update", "configmaps")
        await sweeper.run(aggregate)
        world.clock.tick(60)
        _, ended = await sweeper.run(aggregate)
        assert isinstance(ended.disposition, Retry)
        assert ended.disposition.missing_permission
        assert not [item for item in await stored(requests) if not item.spec.sweep]
