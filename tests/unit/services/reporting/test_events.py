"""Events: the objects that each outcome is reported on, and how often."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from reconciler.api.kinds import policy_named
from reconciler.api.meta import ObjectRef
from reconciler.api.updaterequest import Outcome, Reason, RequestStatus, TargetStatus
from reconciler.config import ControllerSettings
from reconciler.errors import Forbidden, Invalid
from reconciler.requests.background_drafts import aggregate_draft
from reconciler.requests.lifecycle import MAX_TARGETS, Retry
from reconciler.services.catalog.settings import SettingsHolder
from reconciler.services.processing.attempt import Attempt
from reconciler.services.reporting.events import EventRecorder
from reconciler.wiring.shared import success_events
from tests.calls import counted
from tests.stored import MemoryEvents
from tests.unit.services.conftest import Make, World


@pytest.fixture
def events() -> MemoryEvents:
    return MemoryEvents()


@pytest.fixture
def event_recorder(world: World, events: MemoryEvents) -> EventRecorder:
    event_recorder = EventRecorder(events=events, clock=world.clock)
    world.dispatcher.observe = event_recorder.observe
    return event_recorder


@pytest.fixture
def work(
    world: World, make: type[Make], event_recorder: EventRecorder
) -> Callable[..., Awaitable[None]]:
    """Return a function that runs a policy on new triggers with these names."""

    async def run(*triggers, name="p", **more):
        policy = make.policy(name, **more)
        stored = (
            await world.read(policy)
            if world.index.get(policy_named(name))
            else world.install(policy)
        )
        for item in triggers:
            trigger = world.cluster.add(make.object(name=item))
            world.dispatcher.on_stored(await world.ask(stored, trigger, name=f"ur-{item}"))
        await world.settle()

    return run


def reported(events, kind=None):
    return [
        (item.regarding["kind"], item.reason, item.note)
        for item in events.emitted
        if kind in {None, item.regarding["kind"]}
    ]


async def test_success_is_reported_only_if_enabled(world, make, events, event_recorder, work):
    world.cluster.add(make.object("Secret", "s"))
    await work("one")
    assert reported(events) == []
    event_recorder.wants_success = lambda _: True
    await work("two", name="q", patch={"metadata": {"labels": {"more": "yes"}}})
    assert sorted(reported(events)) == [
        ("ClusterPolicy", "PolicyApplied", "rule r: Secret a/s mutated"),
        ("ConfigMap", "PolicyApplied", "policy q, rule r: 1 target mutated"),
        ("Secret", "PolicyApplied", "mutated by policy q, rule r"),
    ]
    assert {item.severity for item in events.emitted} == {"Normal"}


@pytest.mark.parametrize(
    ("data", "number"),
    [
        ({}, 0),
        ({"generateSuccessEvents": "true"}, 3),
        ({"generateSuccessEvents": "true", "successEventActions": "None,Resource Mutated"}, 3),
        ({"generateSuccessEvents": "true", "successEventActions": "Resource Passed"}, 0),
        ({"generateSuccessEvents": "false", "successEventActions": "Resource Mutated"}, 0),
    ],
)
async def test_the_config_map_selects_the_actions_whose_success_is_reported(
    world, make, events, event_recorder, work, data, number
):
    live = SettingsHolder.of("kyverno")
    live.load(data)
    event_recorder.wants_success = success_events(ControllerSettings(), live)
    world.cluster.add(make.object("Secret", "s"))
    await work("one")
    assert len(reported(events)) == number


async def test_an_unchanged_target_causes_no_event(world, make, events, event_recorder, work):
    event_recorder.wants_success = lambda _: True
    world.cluster.add(make.object("Secret", "s", labels={"done": "yes"}))
    await work("one")
    assert reported(events) == []


async def test_a_failure_is_reported_on_policy_trigger_and_target(world, make, events, work):
    secret = world.cluster.add(make.object("Secret", "s"))

    def refuse(_before, _after):
        raise Invalid("field is immutable")

    world.wire.before_change = refuse
    await work("one")
    by_kind = {item.regarding["kind"]: item for item in events.emitted}
    assert set(by_kind) == {"ClusterPolicy", "ConfigMap", "Secret"}
    assert {item.severity for item in events.emitted} == {"Warning"}
    # The message may quote the Secret.
    assert not any("field is immutable" in item.note for item in events.emitted)
    assert all(Invalid.kind_of_failure in item.note for item in events.emitted)
    # kubectl describe selects Events by the uid.
    assert by_kind["Secret"].regarding["uid"] == secret["metadata"]["uid"]
    assert by_kind["ConfigMap"].regarding["uid"]
    assert by_kind["ClusterPolicy"].related["name"] == "s"
    assert by_kind["Secret"].related["kind"] == "ConfigMap"


async def test_a_target_that_does_not_exist_is_reported_on_policy_and_trigger(events, work):
    await work("one")
    assert {kind for kind, *_ in reported(events)} == {"ClusterPolicy", "ConfigMap"}


async def test_a_missing_right_is_reported_once(world, make, events, work):
    world.cluster.add(make.object("Secret", "s"))

    def refuse(_before, _after):
        raise Forbidden("no", permission="patch secrets in namespace a")

    world.wire.before_change = refuse
    await work("one")
    first = reported(events)
    assert len(first) == 3
    for _ in range(3):
        world.clock.tick(400)
        await world.settle()
    assert (await world.status("ur-one")).attempts > 2
    assert reported(events) == first


async def test_a_conflict_that_will_be_retried_causes_no_event(world, make, events, work):
    world.cluster.add(make.object("Secret", "s"))

    async def interfere(_before, _after):
        await world.edit(make.object("Secret", "s"), labels={"n": str(len(world.wire.calls))})
        world.wire.calls[str(len(world.wire.calls))] += 1

    world.wire.before_change = interfere
    await work("one")
    assert (await world.status("ur-one")).reason == "Conflict"
    assert reported(events) == []


async def test_failures_with_one_reason_share_one_event_of_the_policy(events, work):
    await work("one", "two", "three")
    groups = {item.group for item in events.emitted if item.regarding["name"] == "p"}
    assert groups == {"r TargetNotFound"}


async def test_the_events_of_one_policy_are_rate_limited(world, events, event_recorder, work):
    await work(*(f"c-{number}" for number in range(70)))
    assert len(reported(events, "ConfigMap")) == 50
    assert event_recorder.held_back == 20
    assert len(reported(events, "ClusterPolicy")) == 70  # which the port merges into one
    world.clock.tick(5)
    await work(*(f"later-{number}" for number in range(20)))
    assert len(reported(events, "ConfigMap")) == 60


async def test_the_rate_limits_of_many_policies_that_are_gone_are_forgotten(
    world, event_recorder, work
):
    """The oldest policy is forgotten first, here one that had used up its events."""
    seen = []
    world.dispatcher.observe = lambda *args: seen.append(args)
    await work("one")
    request, status, attempt = seen[-1]
    for _ in range(60):
        event_recorder.observe(request, status, attempt)
    before = event_recorder.held_back
    assert before
    for number in range(10_000):
        spec = replace(request.spec, policy=policy_named(f"gone-{number}"))
        event_recorder.observe(replace(request, spec=spec), status, attempt)
    event_recorder.observe(request, status, attempt)
    assert event_recorder.held_back == before


async def test_a_trigger_that_is_its_own_target_is_reported_once(
    world, make, events, event_recorder, work
):
    event_recorder.wants_success = lambda _: True
    own = {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "a", "name": "one"}
    await work("one", targets=[own])
    assert reported(events, "ConfigMap") == [
        ("ConfigMap", "PolicyApplied", "mutated by policy p, rule r")
    ]


async def test_a_sweep_reports_its_changes(world, make, events, event_recorder):
    event_recorder.wants_success = lambda _: True
    world.cluster.add(make.object("Secret", "s"))
    world.cluster.add(make.object(name="one"))
    world.swept.clear()
    policy = world.install(make.policy(on_change=True))
    world.dispatcher.on_stored(await world.ask(policy, policy, sweep=True))
    await world.settle()
    for facts in world.swept:
        event_recorder.swept(*facts)
    assert ("Secret", "PolicyApplied", "mutated by policy p, rule r") in reported(events)
    assert ("ConfigMap", "PolicyApplied", "policy p, rule r: 1 target mutated") in reported(events)


async def test_an_aggregate_request_is_reported_when_it_begins_and_when_it_ends(
    world, make, events, event_recorder
):
    world.sweeper = replace(world.sweeper, settle=60.0)
    world.dispatcher.sweep = world.sweeper.run
    policy = world.index.apply(world.install(make.policy()))
    draft = aggregate_draft(policy, policy.programs[0])
    await world.requests.create("sweep-1", draft.labels, draft.spec)
    world.dispatcher.on_stored(await world.requests.get("sweep-1"))
    await world.settle()
    world.clock.tick(60)
    await world.settle()
    begun, ended = reported(events)
    note = "rule r: too many requests wait, so sweep-1 stands for all triggers"
    assert begun == ("ClusterPolicy", "RecordingDiverted", note)
    note = "rule r: sweep-1 no longer stands for its triggers: no existing object matches"
    assert ended[:2] == ("ClusterPolicy", "RecordingResumed")
    assert ended[2].startswith(note)


def test_triggers_that_are_caught_up_are_reported_on_the_policy(events, event_recorder):
    event_recorder.caught_up(policy_named("a/p"), "uid", "r", 1)
    event_recorder.caught_up(policy_named("p"), "uid", "r", 3)
    assert reported(events) == [
        ("Policy", "CaughtUp", "rule r: caught up on 1 trigger not recorded before"),
        (
            "ClusterPolicy",
            "CaughtUp",
            "rule r: caught up on 3 triggers not recorded before",
        ),
    ]
    assert [item.regarding["uid"] for item in events.emitted] == ["uid", "uid"]


async def test_thousands_of_targets_are_not_compared_with_each_other(world, make, event_recorder):
    targets = tuple(
        TargetStatus(
            ref=ObjectRef(api_version="v1", kind="Secret", namespace="a", name=f"s-{number}"),
            outcome=Outcome.FAILED,
        )
        for number in range(2_000)
    )
    stored = world.install(make.policy())
    request = await world.ask(stored, make.object())
    request = replace(request, status=RequestStatus(targets=targets[:MAX_TARGETS]))
    retry = Retry(reason=Reason.FAILED, message="", retry_after=1.0)
    with counted(TargetStatus.__eq__) as calls:
        event_recorder.observe(
            request, request.status, Attempt(disposition=retry, targets=targets)
        )
    assert calls["__eq__"] < 3 * len(targets)
