"""The figures of policies: exact over a restart, at most one write per change."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from reconciler.api.meta import Object
from reconciler.api.policystatus import blank_progress
from reconciler.api.updaterequest import State
from reconciler.errors import Unavailable
from reconciler.requests.lifecycle import FINAL
from reconciler.requests.limits import PAUSED
from reconciler.services.reporting.policy_status import Progress
from tests.filters import parse_filters
from tests.unit.services.conftest import World


@pytest.fixture
def writes(world: World, monkeypatch: pytest.MonkeyPatch) -> list[Object]:
    """Return a list that collects the figures that are written to policies from now on."""
    written: list[Object] = []
    write = world.policies.write_status

    async def counted(policy: Object, status: Object) -> None:
        await write(policy, status)
        written.append(status["mutateExisting"])

    monkeypatch.setattr(world.policies, "write_status", counted)
    return written


@pytest.fixture
def lead(world: World, writes: list[Object]) -> Callable[[], Progress]:
    """Return a function that starts the progress of a leader, as observer of the dispatcher."""

    def begin():
        progress = Progress(
            index=world.index,
            policies=world.policies,
            clock=world.clock,
            waiting=world.dispatcher.known.unended,
            filters=lambda: world.filters,
            warn=pytest.fail,
        )
        progress.begin()
        world.dispatcher.observe = lambda request, status, _: progress.observe(request, status)
        return progress

    return begin


@pytest.fixture
def progress(lead: Callable[[], Progress]) -> Progress:
    return lead()


@pytest.fixture
def in_force(world: World) -> Callable[..., Awaitable[Object]]:
    """Return a function that stores a policy whose newest generation is in force."""

    async def run(progress, policy):
        stored = world.install(policy)
        return await observe_generation(world, progress, stored)

    return run


async def observe_generation(world, progress, policy):
    """Write the status of a new generation, as the rollout does; return the policy."""
    stored = await world.read(policy)
    known = {"observedGeneration": stored["metadata"]["generation"], **blank_progress()}
    status = {"mutateExisting": {key: item for key, item in known.items() if item is not None}}
    kind = replace(world.cluster.exact("kyverno.io/v1", stored["kind"]), subresource="status")
    stored = await world.cluster.change(kind, stored, {**stored, "status": status})
    world.index.apply(stored)
    return stored


async def figures(world, progress, policy):
    """Flush, apply the stored policy, and return the figures of its status."""
    await progress.flush()
    stored = await world.read(policy)
    world.index.apply(stored)
    return stored["status"]["mutateExisting"]


async def work(world, policy, *triggers, **more):
    for trigger in triggers:
        name = f"ur-{trigger['metadata']['name']}"
        world.dispatcher.on_stored(await world.ask(policy, trigger, name=name, **more))
    await world.settle()


def triggers(world, make, *names):
    return [world.cluster.add(make.object(name=name)) for name in names]


async def test_figures_of_requests_are_added_up(world, make, progress, in_force):
    policy = await in_force(progress, make.policy())
    world.cluster.add(make.object("Secret", "s"))
    await work(world, policy, *triggers(world, make, "one", "two"))
    shown = await figures(world, progress, policy)
    assert (shown["triggers"], shown["patched"], shown["unchanged"]) == (2, 1, 1)
    assert (shown["pending"], shown["failed"]) == (0, 0)
    assert shown["lastRun"].startswith("2026-06-01T12:00:00")
    assert shown["message"] == "1 patched, 1 unchanged after 2 triggers"


async def test_unchanged_figures_are_not_written(world, make, progress, in_force, writes):
    policy = await in_force(progress, make.policy())
    for _ in range(3):
        await figures(world, progress, policy)
    assert len(writes) == 1  # the zeros, with the reason


async def test_figures_are_written_once_the_watch_delivers_a_concurrent_edit(
    world, make, progress, in_force
):
    policy = await in_force(progress, make.policy())
    world.cluster.add(make.object("Secret", "s"))
    await figures(world, progress, policy)
    await work(world, policy, *triggers(world, make, "one"))
    edited = await world.edit(policy, labels={"team": "a"})
    assert not await progress.flush()
    world.index.apply(edited)
    assert await progress.flush()
    assert (await figures(world, progress, policy))["triggers"] == 1


async def test_figures_that_the_api_server_did_not_take_are_reported_as_not_written(
    world, make, progress, in_force
):
    policy = await in_force(progress, make.policy())
    world.cluster.add(make.object("Secret", "s"))
    await figures(world, progress, policy)
    await work(world, policy, *triggers(world, make, "one"))
    write = world.policies.write_status

    async def fail(*_):
        raise Unavailable("no answer")

    world.policies.write_status = fail
    progress.warn = lambda _: None
    assert not await progress.flush()
    world.policies.write_status = write
    assert await progress.flush()
    assert (await figures(world, progress, policy))["triggers"] == 1


async def test_a_policy_that_is_not_in_force_yet_shows_no_figures(world, make, progress, writes):
    world.install(make.policy())
    await progress.flush()
    assert writes == []


async def test_requests_that_ended_before_the_policy_was_in_force_count(
    world, make, progress, in_force
):
    policy = world.install(make.policy())
    world.cluster.add(make.object("Secret", "s"))
    await work(world, policy, *triggers(world, make, "one"))
    await observe_generation(world, progress, policy)
    assert (await figures(world, progress, policy))["patched"] == 1


async def test_the_figures_of_a_new_generation_start_at_zero(world, make, progress, in_force):
    policy = await in_force(progress, make.policy())
    world.cluster.add(make.object("Secret", "s"))
    await work(world, policy, *triggers(world, make, "one"))
    await figures(world, progress, policy)
    patch = {"metadata": {"labels": {"done": "again"}}}
    stored = await world.edit(policy, spec=make.policy(patch=patch)["spec"])
    world.index.apply(stored)
    await work(world, stored, *triggers(world, make, "two", "three"))
    await observe_generation(world, progress, stored)
    shown = await figures(world, progress, stored)
    assert (shown["observedGeneration"], shown["patched"], shown["triggers"]) == (2, 1, 2)


class TestRestart:
    async def test_figures_continue_after_a_restart(self, world, make, lead, in_force):
        progress = lead()
        policy = await in_force(progress, make.policy())
        world.cluster.add(make.object("Secret", "s"))
        await work(world, policy, *triggers(world, make, "one", "two"))
        before = await figures(world, progress, policy)
        # No finished request is left to count.
        await world.requests.remove(remove_after=(await world.status("ur-one")).remove_after)
        world.clock.tick(1)
        progress = await self.restart(world, policy, lead)
        assert await figures(world, progress, policy) == before
        await work(world, policy, *triggers(world, make, "three"))
        assert (await figures(world, progress, policy))["triggers"] == 3

    async def test_unwritten_figures_are_recovered(self, world, make, lead, in_force):
        progress = lead()
        policy = await in_force(progress, make.policy())
        world.cluster.add(make.object("Secret", "s"))
        await work(world, policy, *triggers(world, make, "one"))
        await figures(world, progress, policy)
        world.clock.tick(1)
        await work(world, policy, *triggers(world, make, "two"))
        world.clock.tick(1)
        progress = await self.restart(world, policy, lead)
        shown = await figures(world, progress, policy)
        assert (shown["triggers"], shown["unchanged"]) == (2, 1)

    async def test_requests_that_are_listed_again_count_once(self, world, make, lead, in_force):
        policy = await in_force(lead(), make.policy())
        world.cluster.add(make.object("Secret", "s"))
        await work(world, policy, *triggers(world, make, "one"))
        world.clock.tick(1)
        progress = await self.restart(world, policy, lead)
        async for request in world.requests.finished():
            progress.on_recovered(request)
        assert (await figures(world, progress, policy))["triggers"] == 1

    async def test_a_waiting_request_counts_once(self, world, make, lead, in_force):
        progress = lead()
        targets = [make.target(), make.target("hidden") | {"kind": "Pod"}]
        policy = await in_force(progress, make.policy(targets=targets))
        world.cluster.add(make.object("Secret", "s"))
        world.cluster.add(make.object("Pod", "hidden"))
        world.cluster.forbid("get", "pods")
        await work(world, policy, *triggers(world, make, "one"))
        shown = await figures(world, progress, policy)
        assert (shown["patched"], shown["pending"], shown["triggers"]) == (1, 1, 0)
        assert shown["running"]["patched"] == 1
        (missing,) = shown["missingPermissions"]
        assert missing == "get pods in namespace a"
        assert shown["message"] == f"1 request waits for a right: {missing}"
        progress = await self.restart(world, policy, lead)
        await world.dispatcher.resync()
        assert (await figures(world, progress, policy))["patched"] == 1
        world.cluster.permit("get", "pods")
        world.clock.tick(3600)
        await world.settle()
        shown = await figures(world, progress, policy)
        assert (shown["patched"], shown["pending"], shown["triggers"]) == (2, 0, 1)
        assert "running" not in shown
        assert "missingPermissions" not in shown
        assert shown["message"] == "2 patched after 1 trigger"

    async def restart(self, world, policy, lead):
        world.restart()
        stored = await world.read(policy)
        world.index.apply(stored)
        progress = lead()
        async for request in world.requests.finished():
            progress.on_recovered(request)
        return progress


class TestWhyZero:
    async def shown(self, world, progress, policy):
        return (await figures(world, progress, policy))["message"]

    async def test_no_trigger_came(self, world, make, progress, in_force):
        policy = await in_force(progress, make.policy())
        assert "no trigger yet: only new requests count" in await self.shown(
            world, progress, policy
        )

    async def test_resource_filters_leave_out_the_matched_kind(
        self, world, make, progress, in_force
    ):
        world.filters = parse_filters(resources="[ConfigMap,*,*]")
        policy = await in_force(progress, make.policy())
        assert await self.shown(world, progress, policy) == (
            "nothing ever fires it: resourceFilters leave out ConfigMap ([ConfigMap,*,*])"
        )

    async def test_operations_never_fire_on_a_policy_update(self, world, make, progress, in_force):
        resources = {"operations": ["CREATE"]}
        policy = await in_force(progress, make.policy(on_change=True, resources=resources))
        message = await self.shown(world, progress, policy)
        assert "a filter that lists operations never fires on a policy update" in message

    async def test_no_object_matches(self, world, make, progress, in_force):
        policy = await in_force(progress, make.policy(on_change=True))
        assert "no objects of the matched kinds exist" in await self.shown(world, progress, policy)
        policy = await in_force(
            progress, make.policy("q", on_change=True, resources={"names": ["no"]})
        )
        triggers(world, make, "one", "two")
        await work(world, policy, policy, sweep=True)
        message = await self.shown(world, progress, policy)
        assert message.startswith("no object matches: 2 existing objects looked at")

    async def test_no_target_found(self, world, make, progress, in_force):
        targets = [make.target("none-*")]
        policy = await in_force(progress, make.policy(targets=targets))
        await work(world, policy, *triggers(world, make, "one"))
        assert (await self.shown(world, progress, policy)).startswith("no target found")

    async def test_every_target_is_already_as_required(self, world, make, progress, in_force):
        policy = await in_force(progress, make.policy())
        world.cluster.add(make.object("Secret", "s", labels={"done": "yes"}))
        await work(world, policy, *triggers(world, make, "one"))
        message = await self.shown(world, progress, policy)
        assert (
            message == "1 target unchanged: as the rules require, or the API server kept no change"
        )

    async def test_the_trigger_does_not_meet_the_preconditions(
        self, world, make, progress, in_force
    ):
        condition = {"key": "{{ request.object.metadata.name }}", "operator": "Equals"}
        conditions = {"all": [condition | {"value": "no"}]}
        policy = await in_force(progress, make.policy(preconditions=conditions))
        await work(world, policy, *triggers(world, make, "one"))
        message = await self.shown(world, progress, policy)
        assert message.startswith("1 trigger came and fired nothing, the last because")

    async def test_every_rule_has_its_own_reason(self, world, make, progress, in_force):
        policy = make.policy(on_change=True)
        first = policy["spec"]["rules"][0]
        policy["spec"]["rules"].append(make.policy()["spec"]["rules"][0] | {"name": "other"})
        assert first["name"] == "r"
        policy = await in_force(progress, policy)
        message = await self.shown(world, progress, policy)
        assert message.startswith("rule r: no object matches")
        assert "; rule other: no trigger yet" in message


async def test_the_figures_include_the_progress_of_a_sweep(
    world, make, progress, in_force, writes
):
    policy = await in_force(progress, make.policy(on_change=True))
    world.cluster.add(make.object("Secret", "s"))
    triggers(world, make, *(f"t-{number}" for number in range(20)))
    await work(world, policy, policy, sweep=True)
    shown = await figures(world, progress, policy)
    assert (shown["triggers"], shown["existing"], shown["patched"]) == (20, 20, 1)
    status = await world.status("ur-p")
    assert (status.state, status.sweep.matched) == (State.COMPLETED, 20)
    assert status.state in FINAL


async def test_the_message_explains_an_aggregate_request_by_too_many_waiting_ones(
    world, make, progress, in_force
):
    policy = await in_force(progress, make.policy())
    await work(world, policy, policy, sweep=True, sequence=1)
    shown = await figures(world, progress, policy)
    assert shown["pending"] == 1
    assert shown["message"] == (
        "too many requests wait, so one stands for all triggers of a rule; 0 of ? existing objects"
        " looked at"
    )


async def test_a_failed_request_is_shown_with_rule_trigger_and_target(
    world, make, progress, in_force
):
    policy = await in_force(progress, make.policy())
    await work(world, policy, *triggers(world, make, "one"))  # the Secret does not exist
    shown = await figures(world, progress, policy)
    assert (shown["triggers"], shown["failed"]) == (1, 1)
    assert shown["lastError"].startswith("rule r, trigger ConfigMap a/one: Secret a/s: not found")


async def test_a_request_that_is_held_back_is_no_error_and_says_why_it_waits(
    world, make, progress, in_force
):
    policy = await in_force(progress, make.policy())
    await work(world, policy, *triggers(world, make, "one"))  # the Secret does not exist
    error = (await figures(world, progress, policy))["lastError"]
    paused = await world.edit(await world.read(policy), annotations={PAUSED: "true"})
    world.index.apply(paused)
    await work(world, policy, *triggers(world, make, "two", "three"))
    shown = await figures(world, progress, policy)
    assert shown["message"] == f"2 requests wait: the policy is paused: annotation {PAUSED}"
    assert shown["lastError"] == error
    await world.edit(await world.read(policy), annotations={PAUSED: "false"})
    world.index.apply(await world.read(policy))
    world.cluster.add(make.object("Secret", "s"))
    world.dispatcher.wake()
    await world.settle()
    shown = await figures(world, progress, policy)
    assert shown["message"].startswith("1 patched, 1 unchanged, 1 failed after")
    assert shown["message"].endswith(f"; last error: {error}")


async def test_requests_of_an_earlier_policy_with_the_same_name_do_not_count(
    world, make, progress, in_force
):
    policy = await in_force(progress, make.policy())
    await work(world, policy, *triggers(world, make, "one"), policy_uid="another")
    assert (await figures(world, progress, policy))["triggers"] == 0


async def test_the_figures_of_a_recreated_policy_start_at_zero(world, make, progress, in_force):
    policy = await in_force(progress, make.policy())
    world.cluster.add(make.object("Secret", "s"))
    stored = await world.edit(policy, spec=make.policy(on_change=True)["spec"])
    world.index.apply(stored)
    await observe_generation(world, progress, stored)
    late, trigger = triggers(world, make, "late", "one")
    request = await world.ask(stored, late, name="ur-late")
    world.remove(policy)
    world.forget("p")
    world.dispatcher.on_stored(request)  # ends, because its policy is gone
    await world.settle()
    assert (await world.status("ur-late")).reason == "PolicyGone"
    policy = await in_force(progress, make.policy())
    await work(world, policy, trigger)
    shown = await figures(world, progress, policy)
    assert (shown["observedGeneration"], shown["triggers"], shown["patched"]) == (1, 1, 1)
