from datetime import timedelta

import pytest

from reconciler.api.kinds import policy_named
from reconciler.api.meta import ANNOTATION_SERVICE_ACCOUNT
from reconciler.api.updaterequest import TriggerRecord
from reconciler.errors import Forbidden, Overloaded, Unavailable, Unreadable
from reconciler.requests.naming import digest
from reconciler.services.ports.leases import AdmissionHeartbeat
from reconciler.services.rollout.webhook_rules import selectors
from tests.unit.services.catchup.conftest import Chase
from tests.unit.services.conftest import Make

IGNORE = {"failurePolicy": "Ignore"}
MISSED = AdmissionHeartbeat(renewed="b", missed="b")


@pytest.fixture
async def leading(chase: Chase, make: type[Make]) -> Chase:
    """Return a leader with the rule ``r`` on ConfigMaps whose names start with ``t``."""
    await chase.install(make.policy(spec=IGNORE, resources={"names": ["t*"]}))
    chase.world.clock.tick(60)
    await chase.passes.begin()
    await chase.pass_time(10)
    assert await chase.names() == []
    return chase


def trigger(make, name="t", **content):
    return make.object(name=name, **content)


async def test_an_unrecorded_change_is_found_by_the_next_pass(leading, make):
    leading.add(trigger(make))
    leading.add(make.object(name="other"))
    await leading.pass_time(200)
    assert await leading.names() == []
    await leading.pass_time(110)
    (request,) = await leading.requests()
    assert (request.spec.resource.name, request.spec.rule) == ("t", "r")
    assert (request.spec.operation, request.spec.sweep) == ("", False)
    assert sum(leading.reported[0].recorded.values()) == 1


async def test_an_unrecorded_change_is_found_only_once(leading, make):
    leading.add(trigger(make))
    await leading.pass_time(1500)
    assert await leading.names() == ["t"]
    assert len(leading.reported) == 1


async def test_a_recorded_change_is_not_found_again(leading, make):
    policy = leading.world.policies
    stored = leading.add(trigger(make))
    asked = await leading.world.ask(
        await policy.get(policy_named("p")), stored, record=TriggerRecord(digest=digest(stored))
    )
    leading.passes.note(asked)
    await leading.pass_time(310)
    assert await leading.names() == []


async def test_a_pass_follows_soon_after_a_gap(leading, make):
    leading.add(trigger(make))
    leading.checkpoint.last = MISSED
    await leading.pass_time(15)
    assert await leading.names() == ["t"]


async def test_continuous_losses_do_not_increase_the_number_of_passes(leading, make):
    before = leading.passes.passes
    for number in range(120):
        leading.checkpoint.last = AdmissionHeartbeat(missed=str(number))
        leading.add(trigger(make, f"t-{number}"))
        await leading.pass_time(5)
    assert leading.passes.passes - before <= 2
    assert len(await leading.names()) > 50
    await leading.pass_time(15)
    assert len(await leading.names()) == 120


@pytest.mark.parametrize("changed", [False, True])
async def test_two_changes_in_one_second_are_distinguished_after_a_gap(leading, make, changed):
    stored = leading.add(trigger(make, data={"v": "1"}))
    asked = await leading.world.ask(
        await leading.world.policies.get(policy_named("p")),
        stored,
        record=TriggerRecord(digest=digest(stored)),
    )
    leading.passes.note(asked)
    if changed:
        await leading.world.edit(stored, data={"v": "2"})
    leading.checkpoint.last = MISSED
    await leading.pass_time(15)
    assert await leading.names() == (["t"] if changed else [])


async def test_a_change_shortly_before_a_pass_is_left_to_the_next_pass(leading, make):
    leading.checkpoint.last = MISSED
    before = leading.passes.passes
    await leading.pass_time(6)
    leading.add(trigger(make))
    await leading.pass_time(4)
    assert leading.passes.passes == before + 1
    assert await leading.names() == []
    await leading.pass_time(310)
    assert await leading.names() == ["t"]


async def test_own_writes_and_writes_of_kubelets_are_not_found(leading, make):
    leading.add(trigger(make), manager="kube-retrofit")
    leading.add(trigger(make, "t-kubelet"), manager="kubelet")
    await leading.pass_time(310)
    assert await leading.names() == []


async def test_passes_continue_after_a_restart_where_the_last_one_ended(leading, make):
    leading.add(trigger(make))
    await leading.pass_time(20)
    done = leading.checkpoint.current.done
    leading.world.restart()
    leading.restart()
    leading.world.clock.tick(3600)
    await leading.passes.begin()
    await leading.pass_time(6)
    assert await leading.names() == ["t"]
    assert leading.checkpoint.current.done >= done
    await leading.pass_time(300)
    assert leading.checkpoint.current.done > done + timedelta(hours=1)


async def test_a_new_leader_knows_all_stored_requests_however_many_there_are(leading, make):
    policy = await leading.world.policies.get(policy_named("p"))
    stored = leading.add(trigger(make))
    await leading.world.ask(
        policy, stored, name="ur-0", record=TriggerRecord(digest=digest(stored))
    )
    for number in range(1, 1100):
        await leading.world.ask(policy, make.object(name="other"), name=f"ur-{number}")
    leading.world.restart()
    leading.restart()
    leading.world.clock.tick(3600)
    await leading.passes.begin()
    await leading.pass_time(10)
    assert await leading.names() == []


async def test_a_failed_pass_is_repeated_over_the_same_time(leading, make):
    leading.add(trigger(make))
    before = leading.checkpoint.current.done

    def refuse(verb, kind):
        if verb == "list":
            raise Unavailable("away")

    leading.world.wire.before_read = refuse
    with pytest.raises(Unavailable):
        await leading.pass_time(310)
    assert leading.checkpoint.current.done == before
    leading.world.clock.tick(3600)
    leading.world.wire.before_read = lambda *_: None
    await leading.pass_time(1)
    assert await leading.names() == ["t"]


async def test_a_kind_that_may_not_be_listed_does_not_keep_others_from_being_searched(chase, make):
    await chase.install(make.policy("a", spec=IGNORE, kinds=("Secret",)))
    await chase.install(make.policy("b", spec=IGNORE))

    def refuse(verb, kind):
        if (verb, kind) == ("list", "Secret"):
            raise Forbidden("no", permission="list secrets")

    chase.world.wire.before_read = refuse
    await chase.passes.begin()
    chase.world.clock.tick(60)
    chase.add(make.object(name="t"))
    chase.checkpoint.last = MISSED
    await chase.pass_time(15)
    assert await chase.names() == ["t"]
    assert chase.said == ["secrets: no"]


async def test_a_kind_that_is_unavailable_holds_the_checkpoint_but_no_other_kind(chase, make):
    await chase.install(make.policy("a", spec=IGNORE, kinds=("Secret",)))
    await chase.install(make.policy("b", spec=IGNORE))
    await chase.passes.begin()
    await chase.pass_time(20)
    before = chase.checkpoint.current.done

    def refuse(verb, kind):
        if (verb, kind) == ("list", "Secret"):
            raise Unavailable("away")

    chase.world.wire.before_read = refuse
    chase.add(make.object(name="t"))
    with pytest.raises(Unavailable):
        await chase.pass_time(310)
    assert await chase.names() == ["t"]
    assert chase.checkpoint.current.done == before


async def test_one_list_serves_all_rules_of_a_kind(chase, make):
    for number in range(5):
        await chase.install(make.policy(f"p{number}", spec=IGNORE))
    await chase.passes.begin()
    await chase.pass_time(20)
    chase.world.wire.calls.clear()
    await chase.pass_time(300)
    assert chase.world.wire.calls == {"list": 1}


async def test_rules_that_cannot_be_caught_up_are_skipped(chase, make):
    append = {"data": {"l": "{{ target.data.l }} x"}}
    await chase.install(make.policy(spec=IGNORE, patch=append))
    await chase.passes.begin()
    chase.add(make.object(name="t"))
    await chase.pass_time(310)
    assert await chase.names() == []
    assert not chase.world.wire.calls["list"]


async def test_preconditions_are_evaluated_on_the_whole_object(chase, make):
    wanted = [{"key": "{{ request.object.data.v }}", "operator": "Equals", "value": "go"}]
    await chase.install(make.policy(spec=IGNORE, preconditions={"all": wanted}))
    await chase.passes.begin()
    chase.world.clock.tick(30)
    chase.add(make.object(name="yes", data={"v": "go"}))
    chase.add(make.object(name="no", data={"v": "stay"}))
    chase.add(make.object(name="fails"))
    await chase.pass_time(310)
    # As at admission: an undecided trigger is recorded, and its request fails with a message.
    assert await chase.names() == ["fails", "yes"]


async def test_objects_for_preconditions_are_read_as_the_account_of_the_policy(chase, make):
    wanted = [{"key": "{{ request.object.data.v }}", "operator": "Equals", "value": "go"}]
    policy = make.policy(spec=IGNORE, preconditions={"all": wanted})
    policy["metadata"]["annotations"] = {ANNOTATION_SERVICE_ACCOUNT: "a/bot"}
    await chase.install(policy)
    await chase.passes.begin()
    chase.world.clock.tick(30)
    chase.add(make.object(name="no", data={"v": "stay"}))
    await chase.pass_time(310)
    assert await chase.names() == []
    # The list serves all policies; the object is read as the account of the policy.
    assert set(chase.world.wire.users) == {" list ConfigMap", "a:bot get ConfigMap"}


@pytest.mark.parametrize(
    "error",
    [
        Forbidden("no", permission="get configmaps in namespace a"),
        Unavailable("service shop.a does not answer"),
    ],
)
async def test_a_context_entry_that_cannot_be_read_does_not_stop_a_pass(chase, make, error):
    entry = {"name": "e", "configMap": {"name": "c", "namespace": "a"}}
    wanted = [{"key": "{{ e.data.v }}", "operator": "Equals", "value": "go"}]
    policy = make.policy(spec=IGNORE, context=[entry], preconditions={"all": wanted})
    await chase.install(policy)
    await chase.install(make.policy("other", spec=IGNORE, kinds=("Service",)))
    await chase.passes.begin()
    chase.world.clock.tick(30)

    async def refuse(_load):
        raise error

    chase.world.loader.load = refuse
    chase.add(make.object(name="t"))
    chase.add(make.object("Service", "s"))
    await chase.pass_time(310)
    # The status of its request reports the error.
    assert await chase.names() == ["s", "t"]


async def test_an_object_that_cannot_be_read_does_not_stop_a_pass(chase, make):
    wanted = [{"key": "{{ request.object.data.v }}", "operator": "Equals", "value": "go"}]
    await chase.install(make.policy(spec=IGNORE, preconditions={"all": wanted}))
    await chase.passes.begin()
    chase.world.clock.tick(30)

    def refuse(verb, _kind):
        if verb == "get":
            raise Unreadable("the object is nested deeper than 500 levels")

    chase.world.wire.before_read = refuse
    chase.add(make.object(name="t"))
    before = chase.passes.passes
    await chase.pass_time(310)
    assert chase.passes.passes > before
    assert await chase.names() == ["t"]


class TestTheBeginningOfAPolicy:
    @pytest.mark.parametrize("failure_policy", ["Fail", "Ignore"])
    async def test_changes_before_a_new_policy_is_in_force_are_found_afterwards(
        self, chase, make, failure_policy
    ):
        await chase.passes.begin()
        await chase.pass_time(100)
        chase.add(make.object(name="before"))
        policy = await chase.install(
            make.policy(spec={"failurePolicy": failure_policy}), ready=False
        )
        chase.add(make.object(name="between"))
        # The policy may take any time to be in force.
        await chase.pass_time(1000)
        assert await chase.names() == []
        await chase.ready(policy)
        await chase.pass_time(6)
        assert await chase.names() == []
        await chase.pass_time(2)
        assert await chase.names() == ["between"]
        chase.add(make.object(name="after"))
        await chase.pass_time(310)
        recorded = ["after", "between"] if failure_policy == "Ignore" else ["between"]
        assert await chase.names() == recorded

    async def test_changes_before_a_new_policy_is_in_force_are_left_to_its_sweep(
        self, chase, make
    ):
        await chase.passes.begin()
        policy = await chase.install(make.policy(on_change=True), ready=False)
        chase.add(make.object(name="between"))
        await chase.ready(policy)
        await chase.pass_time(20)
        assert await chase.names() == []

    async def test_the_beginning_of_a_policy_survives_a_change_of_leader(self, chase, make):
        await chase.passes.begin()
        await chase.pass_time(10)
        policy = await chase.install(make.policy(), ready=False)
        chase.add(make.object(name="between"))
        await chase.pass_time(1000)
        assert chase.checkpoint.current.done <= chase.world.clock.now() - timedelta(seconds=1000)
        await chase.ready(policy)
        chase.world.restart()
        chase.restart()
        await chase.passes.begin()
        await chase.pass_time(10)
        assert await chase.names() == ["between"]

    @pytest.mark.parametrize("served", [False, True])
    async def test_a_policy_that_does_not_become_ready_does_not_hold_the_checkpoint(
        self, chase, make, served
    ):
        await chase.passes.begin()
        await chase.pass_time(10)
        # The controller may not work as its account, for instance.
        await chase.install(make.policy(), ready=False)
        chase.add(make.object(name="between"))
        policies = chase.world.index.policies()
        if not served:
            chase.in_force.resolve(policies, dict.fromkeys(selectors(policies), ()))
        chase.in_force.settle(chase.world.clock.now(), policies)
        await chase.pass_time(1000)
        assert await chase.names() == (["between"] if served else [])
        reached = chase.checkpoint.current.done
        assert reached > chase.world.clock.now() - timedelta(seconds=310)
        # The outage of the policy is stored, so the next leader knows from when to search.
        chase.world.restart()
        chase.restart(known=chase.checkpoint.current)
        await chase.passes.begin()
        chase.in_force.settle(chase.world.clock.now(), policies)
        await chase.pass_time(20)
        assert await chase.names() == ["between"]

    async def test_a_policy_is_not_waited_for_while_kyverno_is_at_work(self, chase, make):
        await chase.passes.begin()
        chase.held = True
        await chase.install(make.policy(), ready=False)
        await chase.pass_time(1000)
        reached = chase.checkpoint.current.done
        assert reached > chase.world.clock.now() - timedelta(seconds=310)


class TestAChangedPolicy:
    @pytest.fixture
    async def changed(self, leading: Chase, make: type[Make]) -> Chase:
        """Return a leader whose rule matched t* before and matches t* and u* now."""
        leading.add(trigger(make, "t-before"))
        leading.add(trigger(make, "u-before"))
        await leading.pass_time(30)
        rule = make.policy(resources={"names": ["t*", "u*"]})["spec"]
        await leading.change("p", rule)
        await leading.pass_time(2)
        return leading

    async def test_earlier_losses_are_found_only_for_the_rules_before_the_change(
        self, changed, make
    ):
        changed.add(trigger(make, "u-after"))
        await changed.pass_time(310)
        assert await changed.names() == ["t-before", "u-after"]

    async def test_the_previous_version_is_forgotten_once_its_time_was_searched(
        self, leading, make
    ):
        leading.add(make.object("Secret", "t"))
        await leading.change("p", make.policy(kinds=("Secret",))["spec"])
        listed = leading.world.wire.users
        listed.clear()
        await leading.pass_time(310)
        assert {*listed} >= {" list ConfigMap", " list Secret"}
        await leading.pass_time(310)
        listed.clear()
        await leading.pass_time(700)
        assert {*listed} == {" list Secret"}


class TestWhatTheSettingsLeaveOut:
    async def test_filtered_and_unselected_objects_are_not_found(self, leading, make):
        leading.settings.load(
            {
                "resourceFilters": "[ConfigMap,a,t-filtered]",
                "webhooks": '{"objectSelector": {"matchLabels": {"ask": "me"}}}',
            }
        )
        leading.add(trigger(make, "t-filtered", labels={"ask": "me"}))
        leading.add(trigger(make, "t-bare"))
        leading.add(trigger(make, "t-asked", labels={"ask": "me"}))
        await leading.pass_time(310)
        assert await leading.names() == ["t-asked"]

    async def test_with_excluded_users_only_passes_after_a_gap_find_changes(self, leading, make):
        leading.settings.load({"excludeUsernames": "robot"})
        leading.add(trigger(make))
        leading.checkpoint.last = AdmissionHeartbeat(renewed="again")
        await leading.pass_time(310)
        assert await leading.names() == []
        # No admission server is alive: the checkpoint stays until a server reports a gap.
        done = leading.checkpoint.current.done
        leading.add(trigger(make, "t-2"))
        await leading.pass_time(1000)
        assert leading.checkpoint.current.done == done
        leading.checkpoint.last = MISSED
        await leading.pass_time(15)
        assert "t-2" in await leading.names()

    async def test_with_match_conditions_in_the_settings_nothing_is_found(self, leading, make):
        condition = '[{"name": "c", "expression": "true"}]'
        leading.settings.load({"matchConditions": condition})
        leading.add(trigger(make))
        await leading.pass_time(310)
        assert await leading.names() == []


async def test_changes_made_while_kyverno_is_at_work_are_not_found(leading, make):
    leading.held = True
    leading.add(trigger(make))
    await leading.pass_time(700)
    leading.held = False
    await leading.pass_time(310)
    assert await leading.names() == []


async def test_a_pass_stores_no_requests_at_the_waiting_limit(leading, make):
    leading.add(trigger(make))
    leading.waiting[policy_named("p")] = 1000
    with pytest.raises(Overloaded, match="1000 catch-up requests of policy p are already waiting"):
        await leading.pass_time(310)
    leading.waiting[policy_named("p")] = 999
    await leading.pass_time(1)
    assert await leading.names() == ["t"]


async def test_a_policy_at_the_waiting_limit_does_not_keep_the_others(leading, make):
    await leading.install(make.policy("q", spec=IGNORE))
    await leading.pass_time(310)
    leading.add(trigger(make))
    leading.waiting[policy_named("p")] = 1000
    with pytest.raises(Overloaded):
        await leading.pass_time(310)
    (request,) = await leading.requests()
    assert request.spec.policy == policy_named("q")
    del leading.waiting[policy_named("p")]
    await leading.pass_time(1)
    assert len(await leading.requests()) == 2


async def test_the_waiting_requests_of_all_policies_together_are_limited(leading, make):
    leading.waiting.update({policy_named(f"other-{number}"): 999 for number in range(11)})
    leading.add(trigger(make))
    with pytest.raises(Overloaded, match="already waiting"):
        await leading.pass_time(310)
    assert await leading.names() == []


async def test_an_interval_of_zero_leaves_only_the_search_after_an_outage(leading, make):
    leading.passes.interval = 0.0
    leading.add(trigger(make))
    leading.checkpoint.last = MISSED
    await leading.pass_time(400)
    assert await leading.names() == []
    leading.outage(seconds=3, trigger=trigger(make, "t-2"))
    await leading.pass_time(10)
    assert await leading.names() == ["t-2"]
