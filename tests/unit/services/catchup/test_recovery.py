"""Recovery of triggers missed while policies were not in force, under any failure policy."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from reconciler.api.kinds import policy_named
from reconciler.api.updaterequest import TriggerRecord, render_time
from reconciler.errors import Forbidden
from reconciler.requests.naming import digest
from reconciler.services.ports.leases import AdmissionHeartbeat, Checkpoint
from reconciler.services.rollout.outages import Cause
from tests.unit.services.catchup.conftest import Chase
from tests.unit.services.conftest import Make

APPEND = {"data": {"seen": "{{ target.data.seen }} x"}}


def _refuse_lists(verb, kind):
    if verb == "list":
        raise Forbidden(f"list {kind} is not granted", permission=f"list {kind}")


def _refuse_pods(verb, kind):
    if kind == "Pod":
        _refuse_lists(verb, kind)


@pytest.fixture
def install(chase: Chase, make: type[Make]) -> Callable[..., Awaitable[str]]:
    """Return a function that stores a policy with these options, in force, and returns its uid."""

    async def run(name="p", **options):
        resources = {"names": ["t*"]} | options.pop("resources", {})
        stored = await chase.install(make.policy(name, resources=resources, **options))
        return stored["metadata"]["uid"]

    return run


@pytest.fixture
async def leading(chase: Chase, install: Callable[..., Awaitable[str]]) -> Chase:
    await install()
    chase.world.clock.tick(60)
    await chase.passes.begin()
    await chase.pass_time(10)
    assert await chase.names() == []
    return chase


async def test_a_change_within_an_outage_is_found_under_fail(leading, make):
    leading.add(make.object(name="t-before"))
    leading.world.clock.tick(10)
    leading.outage(3, make.object(name="t"))
    leading.world.clock.tick(10)
    await leading.pass_time(1)
    assert await leading.names() == ["t"]
    await leading.pass_time(600)
    assert await leading.names() == ["t"]
    assert leading.losses == []


async def test_an_outage_is_searched_five_seconds_after_its_end(leading, make):
    leading.outage(3, make.object(name="t"))
    await leading.pass_time(4)
    assert await leading.names() == []
    await leading.pass_time(1)
    assert await leading.names() == ["t"]


async def test_triggers_recorded_during_an_outage_are_not_found_again(leading, make):
    outages, clock = leading.in_force.outages, leading.world.clock
    outages.begin(Cause.MISSING, clock.now())
    clock.tick(3)
    stored = leading.add(make.object(name="t"))
    policy = await leading.world.policies.get(policy_named("p"))
    asked = await leading.world.ask(policy, stored, record=TriggerRecord(digest=digest(stored)))
    leading.passes.note(asked)
    outages.end(clock.now())
    await leading.pass_time(10)
    assert await leading.names() == []


async def test_a_request_removed_with_its_namespace_is_created_again(leading, make):
    outages, clock = leading.in_force.outages, leading.world.clock
    stored = leading.add(make.object(name="t"))
    policy = await leading.world.policies.get(policy_named("p"))
    asked = await leading.world.ask(policy, stored, record=TriggerRecord(digest=digest(stored)))
    leading.passes.note(asked)
    clock.tick(20)
    outages.begin(Cause.UNINSTALLING, clock.now())
    leading.passes.removed(asked)
    clock.tick(20)
    outages.end(clock.now())
    await leading.pass_time(10)
    assert await leading.names() == ["t"]


async def test_a_request_removed_with_its_policy_does_not_extend_an_outage(leading, make, install):
    outages, clock = leading.in_force.outages, leading.world.clock
    await install("other", resources={"names": ["s*"]})
    policy = await leading.world.policies.get(policy_named("other"))
    stored = leading.add(make.object(name="s"))
    asked = await leading.world.ask(policy, stored, record=TriggerRecord(digest=digest(stored)))
    leading.passes.note(asked)
    clock.tick(20)
    begun = clock.now()
    outages.begin(Cause.MISSING, begun)
    leading.world.forget("other")
    leading.passes.removed(asked)
    assert outages.earliest() == begun


async def test_changes_before_the_policy_existed_are_not_found(leading, make, install):
    outages, clock = leading.in_force.outages, leading.world.clock
    outages.begin(Cause.MISSING, clock.now())
    leading.add(make.object(name="s-early"))
    clock.tick(30)
    leading.add(make.object(name="s-just-before"))
    await install("young", resources={"names": ["s*"]})
    leading.add(make.object(name="s-late"))
    clock.tick(30)
    outages.end(clock.now())
    await leading.pass_time(10)
    assert await leading.names() == ["s-late"]


async def test_an_outage_of_one_policy_does_not_concern_other_policies(leading, make, install):
    uid = await install("other")
    await leading.pass_time(20)
    leading.outage(3, make.object(name="t"), policy=uid, cause=Cause.KIND)
    await leading.pass_time(10)
    assert [item.spec.policy.key for item in await leading.requests()] == ["other"]


async def test_an_outage_that_continues_is_searched_every_minute(leading, make):
    leading.in_force.outages.begin(Cause.MISSING, leading.world.clock.now())
    leading.add(make.object(name="t-1"))
    await leading.pass_time(70)
    assert await leading.names() == ["t-1"]
    leading.add(make.object(name="t-2"))
    await leading.pass_time(5)
    assert await leading.names() == ["t-1"]
    await leading.pass_time(60)
    assert await leading.names() == ["t-1", "t-2"]


async def test_the_next_leader_searches_an_outage(leading, make):
    leading.in_force.outages.begin(Cause.MISSING, leading.world.clock.now())
    leading.add(make.object(name="t"))
    await leading.pass_time(2)
    leading.world.clock.tick(3600)
    leading.world.restart()
    leading.restart(known=leading.checkpoint.current)
    await leading.passes.begin()
    leading.in_force.settle(leading.world.clock.now(), ())
    await leading.pass_time(10)
    assert await leading.names() == ["t"]


async def test_the_checkpoint_is_not_written_without_an_outage(leading):
    before = leading.checkpoint.current
    await leading.pass_time(200)
    assert leading.checkpoint.current is before


class TestWhatCannotBeFound:
    async def test_losses_of_an_appending_rule_are_counted_by_changed_objects(
        self, chase, install, make
    ):
        await install("appends", patch=APPEND)
        chase.world.clock.tick(60)
        await chase.passes.begin()
        await chase.pass_time(10)
        chase.add(make.object(name="t-before"))
        chase.world.clock.tick(10)
        chase.outage(3, make.object(name="t-1"))
        chase.add(make.object(name="other"))
        await chase.pass_time(10)
        assert await chase.names() == []
        (loss,) = chase.losses
        assert (loss.policy.key, loss.outage.cause) == ("appends", Cause.MISSING)
        assert loss.outage.until - loss.outage.since == timedelta(seconds=3)
        (rule,) = loss.rules
        assert (rule.name, rule.objects) == ("r", 1)
        assert "how often it runs" in rule.why

    async def test_consecutive_outages_count_each_object_once(self, chase, install, make):
        await install("appends", patch=APPEND)
        await chase.passes.begin()
        await chase.pass_time(10)
        chase.outage(3, make.object(name="t-1"))
        chase.world.clock.tick(1)
        chase.outage(3, make.object(name="t-2"))
        await chase.pass_time(20)
        chase.outage(1, make.object(name="t-3"))
        await chase.pass_time(10)
        counted = [rule.objects for loss in chase.losses for rule in loss.rules]
        assert sum(counted) == 3

    async def test_a_reported_loss_is_not_reported_again_for_a_later_outage(
        self, chase, install, make
    ):
        await install("appends", patch=APPEND)
        await chase.passes.begin()
        await chase.pass_time(10)
        outages, clock = chase.in_force.outages, chase.world.clock
        begun = clock.now()
        clock.tick(5)
        chase.add(make.object(name="t-1"))
        outages.add(Cause.MISSING, begun, clock.now())
        await chase.pass_time(6)
        outages.add(Cause.CHANGED, clock.now() - timedelta(seconds=5), clock.now())
        await chase.pass_time(10)
        assert [rule.objects for loss in chase.losses for rule in loss.rules] == [1]

    async def test_no_loss_is_reported_if_no_object_changed(self, chase, install):
        await install("appends", patch=APPEND)
        await chase.passes.begin()
        await chase.pass_time(10)
        chase.outage(3)
        await chase.pass_time(10)
        assert chase.losses == []

    @pytest.mark.parametrize("interval", [300.0, 0.0])
    async def test_recorded_triggers_are_not_counted_however_many_follow(
        self, chase, install, make, interval
    ):
        chase.passes.interval = interval
        uid = await install("appends", patch=APPEND)
        policy = await chase.world.policies.get(policy_named("appends"))
        chase.world.clock.tick(60)
        await chase.passes.begin()
        await chase.pass_time(10)
        chase.in_force.outages.begin(Cause.KIND, chase.world.clock.now(), policy=uid)
        stored = chase.add(make.object(name="t"))
        chase.passes.note(
            await chase.world.ask(policy, stored, record=TriggerRecord(digest=digest(stored)))
        )
        await chase.pass_time(900)
        other = await chase.world.ask(policy, make.object(name="t-2"), name="ur-2")
        for _ in range(1500):
            chase.passes.note(other)
        chase.in_force.outages.end(chase.world.clock.now(), policy=uid)
        await chase.pass_time(10)
        assert chase.losses == []

    async def test_created_objects_are_distinguished_from_changed_ones(self, chase, install, make):
        await install("creates", resources={"operations": ["CREATE"]})
        await chase.passes.begin()
        stored = chase.add(make.object(name="t-old"))
        await chase.pass_time(20)
        chase.outage(2, make.object(name="t-new"))
        await chase.touch(stored)
        await chase.pass_time(10)
        assert [item.objects for loss in chase.losses for item in loss.rules] == [1]

    async def test_no_loss_is_reported_for_the_time_before_a_policy_existed(self, chase, install):
        await chase.passes.begin()
        chase.outage(3)
        chase.world.clock.tick(2)
        await install("deletes", resources={"operations": ["DELETE"]})
        await chase.pass_time(10)
        assert chase.losses == []

    async def test_lost_deletions_are_reported_without_a_number(self, chase, install):
        await install("deletes", resources={"operations": ["DELETE"]})
        await chase.passes.begin()
        await chase.pass_time(10)
        chase.outage(1)
        await chase.pass_time(10)
        (loss,) = chase.losses
        assert [item.objects for item in loss.rules] == [None]

    async def test_losses_of_a_kind_that_cannot_be_listed_are_reported_without_a_number(
        self, chase, install, make
    ):
        await install("appends", patch=APPEND)
        await chase.passes.begin()
        await chase.pass_time(10)
        chase.world.wire.before_read = _refuse_lists
        chase.outage(1, make.object(name="t"))
        await chase.pass_time(10)
        (loss,) = chase.losses
        (rule,) = loss.rules
        assert rule.objects is None
        assert "how often it runs" in rule.why
        assert rule.why.endswith("cannot be listed: list ConfigMap is not granted")

    async def test_a_rule_that_could_be_caught_up_is_reported_if_its_kind_is_not_listed(
        self, leading, make
    ):
        leading.world.wire.before_read = _refuse_lists
        leading.outage(1, make.object(name="t"))
        await leading.pass_time(10)
        (loss,) = leading.losses
        assert [(rule.name, rule.objects) for rule in loss.rules] == [("r", None)]
        assert loss.rules[0].why == ("configmaps cannot be listed: list ConfigMap is not granted")

    async def test_losses_are_counted_although_the_kind_of_another_policy_is_not_listed(
        self, chase, install, make
    ):
        await install("pods", resources={"kinds": ["Pod"]})
        await install("appends", patch=APPEND)
        await chase.passes.begin()
        await chase.pass_time(10)
        chase.world.wire.before_read = _refuse_pods
        chase.outage(1, make.object(name="t"))
        await chase.pass_time(10)
        counted = {loss.policy.key: loss.rules[0].objects for loss in chase.losses}
        assert counted == {"appends": 1, "pods": None}


class TestWhileNoAdmissionServerWasThere:
    @pytest.fixture
    async def appends(self, chase: Chase, install: Callable[..., Awaitable[str]]) -> Chase:
        await install("ignores", patch=APPEND, spec={"failurePolicy": "Ignore"})
        await install("fails", patch=APPEND)
        chase.world.clock.tick(60)
        await chase.passes.begin()
        for number in range(8):
            chase.checkpoint.last = AdmissionHeartbeat(renewed=str(number))
            await chase.pass_time(8)
        return chase

    async def test_triggers_lost_by_a_rule_under_ignore_are_counted(self, appends, make):
        appends.add(make.object(name="t-1"))
        await appends.pass_time(12)
        appends.add(make.object(name="t-2"))
        appends.checkpoint.last = AdmissionHeartbeat(missed="once")
        await appends.pass_time(30)
        (loss,) = appends.losses
        assert (loss.policy.key, loss.outage.cause) == ("ignores", Cause.UNRECORDED)
        assert [item.objects for item in loss.rules] == [2]
        assert appends.in_force.outages.earliest() is None

    async def test_triggers_lost_right_after_the_first_leader_began_are_counted(
        self, chase, install, make
    ):
        await install("ignores", patch=APPEND, spec={"failurePolicy": "Ignore"})
        await chase.passes.begin()
        await chase.pass_time(4)
        chase.add(make.object(name="t-1"))
        chase.checkpoint.last = AdmissionHeartbeat(missed="once")
        await chase.pass_time(30)
        assert [item.objects for loss in chase.losses for item in loss.rules] == [1]

    async def test_losses_are_counted_every_minute_while_the_gap_lasts(self, appends, make):
        for number in range(24):
            appends.checkpoint.last = AdmissionHeartbeat(missed=str(number))
            appends.add(make.object(name=f"t-{number}"))
            await appends.pass_time(5)
        await appends.pass_time(30)
        assert 1 <= len(appends.losses) <= 4
        counted = [item.objects for loss in appends.losses for item in loss.rules]
        assert sum(counted) >= 24

    async def test_losses_before_the_current_leader_are_reported_without_a_number(
        self, appends, make
    ):
        done = appends.world.clock.now()
        appends.checkpoint.current = replace(appends.checkpoint.current, done=done)
        appends.world.clock.tick(30)
        appends.add(make.object(name="t"))
        appends.checkpoint.last = AdmissionHeartbeat(missed=render_time(appends.world.clock.now()))
        appends.world.restart()
        appends.restart(known=appends.checkpoint.current)
        await appends.passes.begin()
        await appends.pass_time(30)
        # Some requests of that time may have been removed, so the number is unknown.
        assert [item.objects for loss in appends.losses for item in loss.rules] == [None]


async def test_a_first_checkpoint_has_no_outage(chase):
    assert chase.checkpoint.current == Checkpoint()
