from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from reconciler.api.kinds import policy_named
from reconciler.api.meta import ANNOTATION_RETRY, Object
from reconciler.api.updaterequest import Outcome, Reason, RequestStatus, State
from reconciler.memory.kinds import REQUESTS
from reconciler.services.processing.patchwar import PatchWars
from tests.unit.services.conftest import Make, World

LIMIT, WINDOW = 3, 300.0
OWN = "system:serviceaccount:kyverno:writer"
BY_US = {"userInfo": {"username": OWN}}


@pytest.fixture
def world() -> World:
    return World(controller_users=(OWN,))


@pytest.fixture
def wars(world: World) -> PatchWars:
    world.lanes.wars = PatchWars(limit=LIMIT, window=WINDOW, clock=world.clock)
    return world.lanes.wars


@pytest.fixture
def run(world: World) -> Callable[..., Awaitable[RequestStatus]]:
    """Return a function that processes one request of a policy and returns its status."""
    count = iter(range(1, 10_000))

    async def one(policy, trigger, **spec):
        name = f"ur-{next(count)}"
        world.dispatcher.on_stored(await world.ask(policy, trigger, name=name, **spec))
        await world.settle()
        return await world.status(name)

    return one


def setter(make, value, name):
    return make.policy(name, patch={"data": {"color": value}})


@pytest.fixture
def target(world: World, make: type[Make]) -> Object:
    return world.cluster.add(make.object("Secret", "s", data={"color": "none"}))


@pytest.fixture
def trigger(world: World, make: type[Make]) -> Object:
    return world.cluster.add(make.object(name="t", data={"color": "red"}))


def nested(levels):
    return [nested(levels - 1)] if levels else []


@pytest.mark.parametrize(
    "value", [{"n": 2**70}, nested(300)], ids=["large integer", "deeply nested"]
)
async def test_a_value_that_cannot_be_written_may_be_removed(world, make, run, wars, value):
    policy = world.install(make.policy(json="- {op: remove, path: /data}"))
    target = world.cluster.add(make.object("Secret", "s", data=value))
    status = await run(policy, world.cluster.add(make.object(name="t")))
    assert status.state is State.COMPLETED
    assert "data" not in await world.read(target)


async def test_a_change_that_is_undone_again_and_again_is_paused(
    world, make, run, wars, target, trigger
):
    policy = world.install(setter(make, "red", "p"))
    for _ in range(LIMIT + 1):
        assert (await run(policy, trigger)).state is State.COMPLETED
        await world.edit(target, data={"color": "blue"})
    status = await run(policy, trigger)
    assert (status.state, status.reason) == (State.PENDING, Reason.PATCH_WAR)
    assert status.message == (
        "Secret a/s: /data/color was undone 3 times within 5m: check the other writer of that"
        " field; rule r of policy p pauses here until 12:05:00 UTC"
    )
    assert status.targets[0].outcome is Outcome.CONFLICT
    assert status.next_attempt == world.clock.now() + timedelta(seconds=WINDOW)
    assert (await world.read(target))["data"] == {"color": "blue"}
    assert wars.paused() == wars.begun == 1


async def test_an_element_of_a_list_is_compared_alone(world, make, run, wars, trigger):
    policy = world.install(make.policy(json="- {op: replace, path: /data/l/0/color, value: red}"))
    target = world.cluster.add(make.object("Secret", "s", data={"l": [{"color": "none"}, 0]}))
    for number in range(LIMIT + 1):
        assert (await run(policy, trigger)).state is State.COMPLETED
        await world.edit(target, data={"l": [{"color": "blue"}, number]})
    status = await run(policy, trigger)
    assert status.reason == Reason.PATCH_WAR
    assert "/data/l/0/color was undone 3 times" in status.message


async def test_a_request_in_a_pause_reads_no_target_and_continues_afterwards(
    world, make, run, wars, target, trigger
):
    policy = world.install(setter(make, "red", "p"))
    for _ in range(LIMIT + 2):
        await run(policy, trigger)
        await world.edit(target, data={"color": "blue"})
    reads = world.wire.calls["get Secret s"]
    assert (await run(policy, trigger)).reason == Reason.PATCH_WAR
    assert world.wire.calls["get Secret s"] == reads
    world.clock.tick(WINDOW + 1)
    await world.settle()
    assert (await world.read(target))["data"] == {"color": "red"}
    assert {(await world.status(f"ur-{n}")).state for n in range(1, LIMIT + 4)} == {
        State.COMPLETED
    }
    assert wars.paused() == 0


async def test_a_person_can_end_the_pause(world, make, run, wars, target, trigger):
    policy = world.install(setter(make, "red", "p"))
    for _ in range(LIMIT + 2):
        status = await run(policy, trigger)
        await world.edit(target, data={"color": "blue"})
    assert status.reason == Reason.PATCH_WAR
    request = await world.requests.get(f"ur-{LIMIT + 2}")
    stored = await world.cluster.get(REQUESTS, request.namespace, request.name)
    await world.edit(stored, annotations={ANNOTATION_RETRY: "now"})
    world.dispatcher.on_stored(await world.requests.get(request.name))
    await world.settle()
    assert (await world.status(request.name)).state is State.COMPLETED
    assert (await world.read(target))["data"] == {"color": "red"}


async def test_rules_that_undo_each_other_are_named(world, make, run, wars, target, trigger):
    red = world.install(setter(make, "red", "one"))
    blue = world.install(setter(make, "blue", "two"))
    status = None
    for _ in range(2 * LIMIT):
        await run(red, trigger)
        status = await run(blue, trigger)
    assert wars.begun == 1
    held = [await world.status(f"ur-{n}") for n in range(1, 4 * LIMIT + 1)]
    reported = {item.message for item in held if item.reason == Reason.PATCH_WAR}
    assert len(reported) == 1
    text = reported.pop()
    assert "check rule r of policy two;" in text
    assert "rule r of policy one pauses here" in text
    assert status.state is State.COMPLETED, "the other rule and its requests go on"


async def test_the_field_manager_that_owns_the_field_is_named(
    world, make, run, wars, target, trigger
):
    def managed(stamp, manager, name, **more):
        fields = {"f:data": {f"f:{name}": {}}}
        return {"manager": manager, "time": stamp, "fieldsV1": fields, **more}

    managers = [
        managed("2026-06-01T10:00:00Z", "painter", "color"),
        managed("2026-06-01T11:00:00Z", "scaler", "size"),
        managed("2026-06-01T11:30:00Z", "kube-retrofit", "color"),
        managed("2026-06-01T11:40:00Z", "kubelet", "color", subresource="status"),
    ]
    policy = world.install(setter(make, "red", "p"))
    for _ in range(LIMIT + 1):
        await run(policy, trigger)
        await world.edit(target, data={"color": "blue"})
    meta = (await world.read(target))["metadata"]
    await world.edit(target, metadata={**meta, "managedFields": managers})
    assert (
        "check manager painter, which wrote at 2026-06-01T10:00:00Z"
        in (await run(policy, trigger)).message
    )


async def test_many_writes_that_are_not_undone_are_not_a_patch_war(world, make, run, wars, target):
    name = "{{ request.object.metadata.name }}"
    policy = world.install(make.policy(patch={"data": {name: "x", "last": name}}))
    for n in range(10 * LIMIT):
        trigger = world.cluster.add(make.object(name=f"t{n}"))
        # Other writers change the target too, even the same field, but restore no value.
        await world.edit(target, labels={"n": str(n)}, data={"last": f"other {n}"})
        assert (await run(policy, trigger)).state is State.COMPLETED
    assert wars.begun == 0


async def test_a_trigger_that_alternates_is_not_a_patch_war(
    world, make, run, wars, target, trigger
):
    policy = world.install(setter(make, "{{ request.object.data.color }}", "p"))
    for n in range(10 * LIMIT):
        await world.edit(trigger, data={"color": "red" if n % 2 else "blue"})
        assert (await run(policy, trigger)).state is State.COMPLETED
    assert wars.begun == 0


async def test_repetitions_that_are_far_apart_are_not_a_patch_war(
    world, make, run, wars, target, trigger
):
    policy = world.install(setter(make, "red", "p"))
    for _ in range(5 * LIMIT):
        assert (await run(policy, trigger)).state is State.COMPLETED
        await world.edit(target, data={"color": "blue"})
        world.clock.tick(WINDOW / LIMIT + 1)
    assert wars.begun == 0


async def test_a_limit_of_zero_turns_the_detection_off(world, make, run, wars, target, trigger):
    wars.limit = 0
    policy = world.install(setter(make, "red", "p"))
    for _ in range(20):
        assert (await run(policy, trigger)).state is State.COMPLETED
        await world.edit(target, data={"color": "blue"})


async def test_other_targets_of_the_request_are_not_held_up(world, make, run, wars, trigger):
    named = make.policy(
        targets=[make.target("s"), make.target("other")], patch={"data": {"color": "red"}}
    )
    fought, other = (
        world.cluster.add(make.object("Secret", name, data={})) for name in ("s", "other")
    )
    policy = world.install(named)
    for _ in range(LIMIT + 1):
        await run(policy, trigger)
        await world.edit(fought, data={"color": "blue"})
    await world.edit(other, data={"color": "green"})
    status = await run(policy, trigger)
    assert status.reason == Reason.PATCH_WAR
    assert (await world.read(other))["data"] == {"color": "red"}


async def test_a_newer_rule_is_not_paused(world, make, run, wars, target, trigger):
    policy = world.install(setter(make, "red", "p"))
    for _ in range(LIMIT + 2):
        status = await run(policy, trigger)
        await world.edit(target, data={"color": "blue"})
    assert status.reason == Reason.PATCH_WAR
    changed = await world.edit(policy, spec=setter(make, "green", "p")["spec"])
    world.index.apply(changed)
    world.dispatcher.wake(policy_named("p"))
    await world.settle()
    assert (await world.read(target))["data"] == {"color": "green"}


async def test_a_rule_that_triggers_itself_is_paused(world, make, run, wars):
    one = world.cluster.add(make.object("Secret", "s", data={"n": "x"}))
    policy = world.install(
        make.policy(
            kinds=("Secret",),
            patch={"data": {"n": "{{ request.object.data.n }}x"}},
            skipBackgroundRequests=False,
        )
    )
    for _ in range(LIMIT):
        assert (await run(policy, one, user=BY_US)).state is State.COMPLETED
    status = await run(policy, one, user=BY_US)
    assert status.reason == Reason.PATCH_WAR
    assert "because of kube-retrofit's own writes, which lead back here: remove" in status.message
    assert (await world.read(one))["data"] == {"n": "x" + LIMIT * "x"}


async def test_two_rules_that_trigger_each_other_are_paused(world, make, run, wars):
    one, two = (world.cluster.add(make.object("Secret", n, data={"n": "x"})) for n in "ab")
    longer = {"data": {"n": "{{ request.object.data.n }}x"}}
    there, back = (
        world.install(
            make.policy(name, kinds=("Secret",), targets=[make.target(to)], patch=longer)
        )
        for name, to in (("there", "b"), ("back", "a"))
    )
    states = []
    for _ in range(LIMIT + 2):
        states += [
            (await run(there, one, user=BY_US)).reason,
            (await run(back, two, user=BY_US)).reason,
        ]
    assert states[: 2 * LIMIT] == ["Applied"] * 2 * LIMIT
    assert Reason.PATCH_WAR in states
    assert "lead back here by rule r of policy back:" in (await world.status("ur-7")).message


async def test_a_chain_without_return_is_not_a_loop(world, make, run, wars, target):
    policy = world.install(make.policy(patch={"data": {"n": "{{ request.object.data.n }}"}}))
    link = world.cluster.add(make.object(name="link", data={"n": "0"}))
    for n in range(10 * LIMIT):
        await world.edit(link, data={"n": str(n)})
        assert (await run(policy, link, user=BY_US)).state is State.COMPLETED
    assert wars.begun == 0


async def test_a_batch_counts_as_one_write_however_often_its_rules_undo_each_other(
    world, make, wars, target, trigger
):
    policies = [world.install(setter(make, value, value)) for value in ("red", "blue")]
    for n in range(40):
        await world.ask(policies[n % 2], trigger, name=f"ur-{n:02}")
    await world.dispatcher.resync()
    await world.settle()
    assert wars.begun == 0
    assert {(await world.status(f"ur-{n:02}")).state for n in range(40)} == {State.COMPLETED}


async def test_a_sweep_waits_as_a_whole_if_all_its_triggers_wait(
    world, make, run, wars, target, trigger
):
    policy = world.install(setter(make, "red", "p"))
    for _ in range(LIMIT + 2):
        await run(policy, trigger)
        await world.edit(target, data={"color": "blue"})
    status = await run(policy, policy, sweep=True)
    assert (status.state, status.reason) == (State.PENDING, Reason.PATCH_WAR)
    assert status.next_attempt is not None
    assert status.sweep.failed == 0
    world.clock.tick(WINDOW + 1)
    await world.settle()
    assert (await world.status(f"ur-{LIMIT + 3}")).state is State.COMPLETED


@pytest.mark.parametrize(("others", "paused"), [(5, True), (10, False)])
async def test_the_number_of_remembered_fields_is_bounded(
    world, make, run, wars, target, trigger, others, paused
):
    wars.remembered = 10
    policy = world.install(setter(make, "red", "p"))
    for _ in range(LIMIT + 1):
        await run(policy, trigger)
        await world.edit(target, data={"color": "blue"})
    await write_others(world, make, run, others)
    assert ((await run(policy, trigger)).reason == Reason.PATCH_WAR) is paused


@pytest.mark.parametrize(("others", "paused"), [(5, True), (10, False)])
async def test_the_number_of_remembered_laps_is_bounded(
    world, make, run, wars, target, others, paused
):
    wars.remembered = 10
    longer = {"data": {"color": "{{ request.object.data.color }}x"}}
    policy = world.install(make.policy(kinds=("Secret",), patch=longer))
    for _ in range(LIMIT):
        assert (await run(policy, target, user=BY_US)).state is State.COMPLETED
    await write_others(world, make, run, others, user=BY_US)
    assert ((await run(policy, target, user=BY_US)).reason == Reason.PATCH_WAR) is paused


async def write_others(world, make, run, count, **spec):
    """Let another rule write `count` fields of the target, each for a trigger of its own."""
    patch = {"data": {"{{ request.object.metadata.name }}": "x"}}
    policy = world.install(make.policy("other", patch=patch))
    for n in range(count):
        await run(policy, world.cluster.add(make.object(name=f"t{n}")), **spec)
