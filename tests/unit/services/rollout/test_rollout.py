import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from reconciler.api.kinds import policy_named
from reconciler.api.meta import ANNOTATION_RUN, Object
from reconciler.api.updaterequest import RequestSpec, Source
from reconciler.errors import AlreadyExists, Conflict, Denied, Forbidden, NotInstalled, Unavailable
from reconciler.requests.limits import PAUSED
from reconciler.requests.naming import run_name, sweep_name
from reconciler.services.rollout.rollout import Rollout
from reconciler.services.rollout.webhook_config import (
    MUTATING_CONFIGURATION,
    POLICY_CONFIGURATION,
    RESOURCE_CONFIGURATION,
)
from tests.unit.services.configurations import new_webhook_writer
from tests.unit.services.conftest import World


@pytest.fixture
def log() -> list[str]:
    return []


@pytest.fixture
def rollout(world: World, log: list[str], monkeypatch: pytest.MonkeyPatch) -> Rollout:
    create, write = world.requests.create, world.policies.write_status

    async def create_logged(name: str, labels: dict[str, str], spec: RequestSpec) -> None:
        log.append(f"sweep {spec.policy} {spec.rule}")
        await create(name, labels, spec)

    async def write_logged(policy: Object, status: Object) -> None:
        await write(policy, status)
        log.append(f"status {policy['metadata']['name']}")

    monkeypatch.setattr(world.requests, "create", create_logged)
    monkeypatch.setattr(world.policies, "write_status", write_logged)
    return Rollout(
        index=world.index,
        policies=world.policies,
        requests=world.requests,
        webhook_writer=new_webhook_writer(world, log=log),
        warn=log.append,
        on_caveat=lambda policy, caveat: log.append(f"{caveat.reason} {policy.key} {caveat}"),
    )


@pytest.fixture
def store(world: World, rollout: Rollout) -> Callable[..., Awaitable[Object]]:
    """Return a function that stores a new or changed policy and applies it to the policy store."""

    async def run(policy):
        try:
            stored = world.cluster.add(policy)
        except AlreadyExists:
            stored = await world.edit(policy, spec=policy["spec"])
        world.index.apply(stored)
        return stored

    return run


@pytest.fixture
def seen(world: World, rollout: Rollout) -> Callable[..., Awaitable[Object]]:
    """Return a function that applies the stored policy to the policy store."""

    async def run(policy):
        stored = await world.read(policy)
        world.index.apply(stored)
        return stored

    return run


def ready(policy):
    (condition,) = policy["status"]["conditions"]
    return condition


async def test_webhooks_are_written_before_the_sweep_and_the_ready_status(
    world, make, rollout, store, log
):
    policy = await store(make.policy(on_change=True))
    await rollout.reconcile()
    assert log == [
        f"configuration {RESOURCE_CONFIGURATION}",
        f"configuration {MUTATING_CONFIGURATION}",
        f"configuration {POLICY_CONFIGURATION}",
        "sweep p r",
        "status p",
    ]
    assert rollout.webhook_writer.cluster.webhooks.kinds() == {"configmaps"}
    stored = await world.read(policy)
    assert {key: ready(stored)[key] for key in ("type", "status", "reason")} == {
        "type": "Ready",
        "status": "True",
        "reason": "Succeeded",
    }
    assert stored["status"]["ready"] is True
    assert stored["status"]["rulecount"]["mutate"] == 1
    assert stored["status"]["mutateExisting"]["observedGeneration"] == 1


async def test_a_sweep_is_one_request_per_rule_and_generation(world, make, rollout, store):
    policy = await store(make.policy(on_change=True))
    await rollout.reconcile()
    name = sweep_name(policy["metadata"]["uid"], 1, "r")
    spec = (await world.requests.get(name)).spec
    assert (spec.policy.key, spec.rule, spec.sweep, spec.source) == (
        "p",
        "r",
        True,
        Source.POLICY_CHANGE,
    )
    assert (spec.policy_uid, spec.policy_generation) == (policy["metadata"]["uid"], 1)
    assert (spec.resource.kind, spec.resource.name) == ("ClusterPolicy", "p")


async def test_only_rules_with_mutate_existing_on_policy_update_are_swept(
    make, rollout, store, log
):
    await store(make.policy())
    await rollout.reconcile()
    assert not [line for line in log if line.startswith("sweep")]


async def test_a_policy_is_swept_again_only_if_it_changed(make, rollout, store, seen, log):
    policy = await store(make.policy(on_change=True))
    await rollout.reconcile()
    await seen(policy)
    log.clear()
    await rollout.reconcile()
    assert log == []
    changed = make.policy(on_change=True, patch={"metadata": {"labels": {"more": "yes"}}})
    await store(changed)
    await rollout.reconcile()
    # The address of the webhook depends on the generation.
    assert log == [f"configuration {RESOURCE_CONFIGURATION}", "sweep p r", "status p"]


async def test_the_condition_carries_the_observed_generation(world, make, rollout, store, seen):
    policy = await store(make.policy())
    await rollout.reconcile()
    stored = await seen(policy)
    assert ready(stored)["observedGeneration"] == stored["metadata"]["generation"]
    broken = await store({**make.policy(), "spec": {"rules": [{"name": "r", "match": {}}]}})
    await rollout.reconcile()
    said = ready(await seen(broken))
    assert (said["status"], said["observedGeneration"]) == (
        "False",
        broken["metadata"]["generation"],
    )


async def test_a_condition_without_a_generation_is_not_written_repeatedly(
    world, make, rollout, store, log
):
    stored = await store(make.policy())
    await rollout.reconcile()
    reported = await world.read(stored)
    del ready(reported)["observedGeneration"]
    world.index.apply(
        {**reported, "metadata": {**reported["metadata"], "resourceVersion": "1000"}}
    )
    log.clear()
    await rollout.reconcile()
    assert log == []


async def test_a_new_value_of_the_run_annotation_runs_every_rule_once(
    world, make, rollout, store, seen, log
):
    policy = await store(make.policy())
    await rollout.reconcile()
    for value in ("one", "two"):
        log.clear()
        await world.edit(policy, annotations={ANNOTATION_RUN: value})
        await seen(policy)
        await rollout.reconcile()
        assert log == ["sweep p r", "status p"]
        stored = await seen(policy)
        last = stored["status"]["mutateExisting"]["manualRun"]
        assert last == {"value": value, "refused": []}
        await rollout.reconcile()
        assert log == ["sweep p r", "status p"]
    spec = (await world.requests.get(run_name(policy["metadata"]["uid"], "two", "r"))).spec
    assert (spec.source, spec.sweep) == (Source.MANUAL, True)


async def test_a_new_policy_with_the_run_annotation_is_swept_once(make, rollout, store, log):
    policy = make.policy(on_change=True)
    await store(
        {**policy, "metadata": {**policy["metadata"], "annotations": {ANNOTATION_RUN: "x"}}}
    )
    await rollout.reconcile()
    assert [line for line in log if line.startswith("sweep")] == ["sweep p r"]


async def test_a_rule_that_cannot_run_manually_is_named(world, make, rollout, store, log):
    policy = make.policy(resources={"operations": ["CREATE"]})
    stored = await store(
        {**policy, "metadata": {**policy["metadata"], "annotations": {ANNOTATION_RUN: "x"}}}
    )
    await rollout.reconcile()
    assert not [line for line in log if line.startswith("sweep")]
    status = (await world.read(stored))["status"]
    (refused,) = status["mutateExisting"]["manualRun"]["refused"]
    assert refused.startswith("rule r: every filter of its match lists operations")
    assert any("cannot run now in full" in line for line in log)


async def test_a_new_kind_updates_the_configuration_before_the_status(
    make, rollout, store, seen, log
):
    policy = await store(make.policy())
    await rollout.reconcile()
    await seen(policy)
    log.clear()
    await store(make.policy("q", kinds=("Pod",)))
    await rollout.reconcile()
    assert log == [f"configuration {RESOURCE_CONFIGURATION}", "status q"]
    assert rollout.webhook_writer.cluster.webhooks.kinds() == {
        "configmaps",
        "pods",
        "pods/ephemeralcontainers",
    }


async def test_a_deleted_policy_is_removed_from_the_configuration(
    world, make, rollout, store, log
):
    policy = await store(make.policy())
    await rollout.reconcile()
    world.remove(policy)
    world.forget("p")
    log.clear()
    await rollout.reconcile()
    assert log == [f"configuration {RESOURCE_CONFIGURATION}"]
    assert rollout.webhook_writer.cluster.webhooks.stored[RESOURCE_CONFIGURATION]["webhooks"] == []


class TestInvalid:
    async def test_an_invalid_policy_reports_the_reason_in_its_status(
        self, world, make, rollout, store
    ):
        policy = await store(make.policy(spec={"nonsense": 1}))
        await rollout.reconcile()
        stored = await world.read(policy)
        condition = ready(stored)
        assert (condition["status"], condition["reason"]) == ("False", "Failed")
        assert "spec.nonsense" in condition["message"]
        assert stored["status"]["ready"] is False

    async def test_an_invalid_policy_does_not_affect_other_policies(
        self, world, make, rollout, store
    ):
        await store(make.policy("a", spec={"nonsense": 1}))
        good = await store(make.policy("b"))
        await rollout.reconcile()
        assert ready(await world.read(good))["status"] == "True"

    async def test_a_repaired_policy_is_ready_and_swept(
        self, world, make, rollout, store, seen, log
    ):
        policy = await store(make.policy(on_change=True))
        await rollout.reconcile()
        await store(make.policy(on_change=True, spec={"nonsense": 1}))
        await rollout.reconcile()
        assert ready(await seen(policy))["status"] == "False"
        log.clear()
        await store(make.policy(on_change=True))
        await rollout.reconcile()
        assert "sweep p r" in log
        assert ready(await world.read(policy))["status"] == "True"


class TestStatus:
    async def test_an_edited_status_is_restored(self, world, make, rollout, store, seen, log):
        policy = await store(make.policy())
        await rollout.reconcile()
        stored = await seen(policy)
        kind = replace(world.cluster.exact("kyverno.io/v1", "ClusterPolicy"), subresource="status")
        broken = {**stored, "status": {**stored["status"], "conditions": []}}
        await world.cluster.change(kind, stored, broken)
        await seen(policy)
        log.clear()
        await rollout.reconcile()
        assert log == ["status p"]
        assert ready(await world.read(policy))["status"] == "True"

    async def test_the_transition_time_changes_only_with_the_condition(
        self, world, make, rollout, store, seen
    ):
        policy = await store(make.policy())
        await rollout.reconcile()
        first = ready(await seen(policy))["lastTransitionTime"]
        world.clock.tick(60)
        await store(make.policy(patch={"metadata": {"labels": {"other": "yes"}}}))
        await rollout.reconcile()
        assert ready(await seen(policy))["lastTransitionTime"] == first
        world.clock.tick(60)
        await store(make.policy(spec={"nonsense": 1}))
        await rollout.reconcile()
        assert ready(await seen(policy))["lastTransitionTime"] > first

    async def test_a_policy_that_changed_since_it_was_read_is_skipped(
        self, world, make, rollout, store
    ):
        first = await store(make.policy("a"))
        other = await store(make.policy("b"))
        await world.edit(first, labels={"by": "somebody"})
        await rollout.reconcile()
        assert "status" not in await world.read(first)
        assert ready(await world.read(other))["status"] == "True"

    async def test_an_error_at_one_policy_does_not_affect_other_policies(
        self, world, make, rollout, store
    ):
        await store(make.policy("a"))
        good = await store(make.policy("b"))
        write = world.policies.write_status

        async def fail(policy, status):
            if policy["metadata"]["name"] == "a":
                raise Unavailable("no answer")
            await write(policy, status)

        world.policies.write_status = fail
        with pytest.raises(Unavailable):
            await rollout.reconcile()
        assert ready(await world.read(good))["status"] == "True"

    @pytest.mark.parametrize("known", [False, True], ids=["new", "edited"])
    async def test_a_sweep_that_may_not_be_recorded_is_in_the_status_until_it_is(
        self, world, make, rollout, store, seen, known
    ):
        policy, create = make.policy("a", on_change=True), world.requests.create
        if known:
            await store(policy)
            await rollout.reconcile()
            policy = await seen(policy)
            policy["spec"]["rules"][0]["name"] = "renamed"
        stored = await store(policy)

        async def refuse(*_):
            raise Denied("exceeded quota: objects", status=403)

        world.requests.create = refuse
        with pytest.raises(Denied):
            await rollout.reconcile()
        condition = ready(await world.read(stored))
        assert (condition["status"], condition["reason"]) == ("False", "Failed")
        assert condition["observedGeneration"] == stored["metadata"]["generation"]
        assert condition["message"] == "exceeded quota: objects"
        world.requests.create = create
        await seen(stored)
        await rollout.reconcile()
        assert ready(await world.read(stored))["status"] == "True"
        assert len([item async for item in world.requests.waiting()]) == 1 + known


class TestConfiguration:
    async def test_a_configuration_that_may_not_be_written_is_in_the_status_of_new_policies(
        self, world, make, rollout, store, seen
    ):
        old = await store(make.policy("old"))
        await rollout.reconcile()
        await seen(old)
        new, written = await store(make.policy("new", kinds=("Pod",))), rollout.webhook_writer
        replace = written.cluster.webhooks.replace

        async def refuse(*_):
            raise Forbidden("no update", permission="update webhooks")

        written.cluster.webhooks.replace = refuse
        with pytest.raises(Forbidden):
            await rollout.reconcile()
        assert ready(await world.read(old))["status"] == "True"
        condition = ready(await world.read(new))
        assert (condition["status"], condition["message"]) == ("False", "no update")
        written.cluster.webhooks.replace = replace
        await seen(new)
        await rollout.reconcile()
        assert ready(await world.read(new))["status"] == "True"

    async def test_an_edited_configuration_is_restored_and_reported(
        self, world, make, rollout, store, seen, log
    ):
        policy = await store(make.policy())
        await rollout.reconcile()
        await seen(policy)
        wanted = rollout.webhook_writer.cluster.webhooks.stored[RESOURCE_CONFIGURATION]["webhooks"]
        rollout.webhook_writer.cluster.webhooks.edit(RESOURCE_CONFIGURATION, webhooks=[])
        log.clear()
        await rollout.reconcile()
        assert log == [f"configuration {RESOURCE_CONFIGURATION}", "status p"]
        assert (
            rollout.webhook_writer.cluster.webhooks.stored[RESOURCE_CONFIGURATION]["webhooks"]
            == wanted
        )
        broken = ready(await seen(policy))
        assert (broken["status"], broken["reason"]) == ("False", "WebhookChanged")
        assert "was changed by kubectl-edit: it is being restored" in broken["message"]
        world.clock.tick(1)
        await rollout.reconcile()
        assert ready(await seen(policy))["status"] == "False"
        world.clock.tick(1)
        await rollout.reconcile()
        assert ready(await seen(policy))["status"] == "True"

    @pytest.mark.parametrize("deleted", [False, True])
    async def test_rules_without_targets_are_not_ready_without_the_mutating_webhook(
        self, world, make, rollout, store, seen, deleted
    ):
        changes = await store(make.policy("changes", targets=[]))
        records = await store(make.policy("records"))
        await rollout.reconcile()
        for policy in (changes, records):
            await seen(policy)
        webhooks = rollout.webhook_writer.cluster.webhooks
        wanted = webhooks.stored[MUTATING_CONFIGURATION]["webhooks"]
        if deleted:
            del webhooks.stored[MUTATING_CONFIGURATION]
        else:
            webhooks.edit(MUTATING_CONFIGURATION, webhooks=[])
        await rollout.reconcile()
        assert webhooks.stored[MUTATING_CONFIGURATION]["webhooks"] == wanted
        broken = ready(await seen(changes))
        reason = "WebhookMissing" if deleted else "WebhookChanged"
        assert (broken["status"], broken["reason"]) == ("False", reason)
        assert broken["message"].startswith(f"the {MUTATING_CONFIGURATION} was ")
        assert broken["message"].endswith("objects written in the meantime are not changed")
        assert ready(await seen(records))["status"] == "True"
        # No trigger of a rule with targets was lost.
        assert not rollout.webhook_writer.in_force.outages.is_open()
        world.clock.tick(2)
        await rollout.reconcile()
        assert ready(await seen(changes))["status"] == "True"

    async def test_an_edited_trigger_webhook_leaves_rules_without_targets_ready(
        self, make, rollout, store, seen
    ):
        changes = await store(make.policy("changes", targets=[]))
        await rollout.reconcile()
        await seen(changes)
        rollout.webhook_writer.cluster.webhooks.edit(RESOURCE_CONFIGURATION, webhooks=[])
        await rollout.reconcile()
        assert ready(await seen(changes))["status"] == "True"

    async def test_a_changed_ca_is_written_to_the_configurations(
        self, make, rollout, store, seen, log
    ):
        policy = await store(make.policy())
        await rollout.reconcile()
        await seen(policy)
        log.clear()
        rollout.webhook_writer.cluster.authority.bundle = b"another"
        await rollout.reconcile()
        assert log == [
            f"configuration {RESOURCE_CONFIGURATION}",
            f"configuration {POLICY_CONFIGURATION}",
        ]

    async def test_policies_are_not_ready_without_a_ca(self, world, make, rollout, store, log):
        policy = await store(make.policy())
        rollout.webhook_writer.cluster.authority.bundle = None
        with pytest.raises(NotInstalled, match="start retrofit-admission"):
            await rollout.reconcile()
        assert log == ["status p"]
        condition = ready(await world.read(policy))
        assert (condition["status"], condition["reason"]) == ("False", "NoCertificateAuthority")

    async def test_a_policy_that_is_not_ready_says_whether_it_is_held_back(
        self, world, make, rollout, store, seen
    ):
        policy = await store(make.policy(kinds=("Widget",)))
        for paused in ("true", "false"):
            world.index.apply(await world.edit(policy, annotations={PAUSED: paused}))
            await rollout.reconcile()
            stored = await seen(policy)
            assert ready(stored)["reason"] == "KindNotServed"
            said = stored["status"].get("mutateExisting", {}).get("heldBack")
            assert bool(said) is (paused == "true")

    async def test_a_kind_that_is_not_served_does_not_hold_up_the_policy(
        self, world, make, rollout, store
    ):
        policy = await store(make.policy(kinds=("Widget", "ConfigMap")))
        await rollout.reconcile()
        assert rollout.webhook_writer.cluster.webhooks.kinds() == {"configmaps"}
        assert ready(await world.read(policy))["status"] == "True"

    async def test_a_configuration_created_by_another_client_is_a_conflict(self, rollout):
        async def absent(_name):
            return None

        for name in (RESOURCE_CONFIGURATION, POLICY_CONFIGURATION):
            rollout.webhook_writer.cluster.webhooks.stored[name] = {"metadata": {"name": name}}
        rollout.webhook_writer.cluster.webhooks.get = absent
        with pytest.raises(Conflict, match="another client"):
            await rollout.reconcile()


class TestLoading:
    async def test_a_leader_registers_policies_that_were_stored_before_it_started(
        self, world, make, rollout, log
    ):
        world.cluster.add(make.policy("p"))
        await rollout.load()
        await rollout.reconcile()
        assert rollout.webhook_writer.cluster.webhooks.kinds() == {"configmaps"}
        assert "status p" in log

    async def test_a_deletion_that_the_watch_missed_is_found_on_loading(
        self, world, make, rollout, store
    ):
        policy = await store(make.policy())
        await rollout.reconcile()
        world.remove(policy)
        await rollout.load()
        await rollout.reconcile()
        assert rollout.webhook_writer.cluster.webhooks.kinds() == set()
        assert world.index.get(policy_named("p")) is None

    async def test_events_of_the_watch_during_loading_are_kept(self, world, make, rollout, store):
        old = await store(make.policy())

        async def stored():
            await store(make.policy(kinds=("Secret",)))
            await store(make.policy("q", kinds=("Pod",)))
            return (old,)

        world.policies.stored = stored
        await rollout.load()
        await rollout.reconcile()
        assert rollout.webhook_writer.cluster.webhooks.kinds() == {
            "secrets",
            "pods",
            "pods/ephemeralcontainers",
        }


class TestStandingBy:
    async def test_webhooks_are_empty_and_no_status_is_written(
        self, world, make, rollout, store, log
    ):
        policy = await store(make.policy(on_change=True))
        rollout.hold("a live Kyverno is there")
        await rollout.reconcile()
        assert [line for line in log if line.startswith(("sweep", "status"))] == []
        stored = rollout.webhook_writer.cluster.webhooks.stored
        assert {name: item["webhooks"] for name, item in stored.items()} == {
            RESOURCE_CONFIGURATION: [],
            MUTATING_CONFIGURATION: [],
            POLICY_CONFIGURATION: [],
        }
        rollout.hold("")
        await rollout.reconcile()
        assert "sweep p r" in log
        assert ready(await world.read(policy))["status"] == "True"

    async def test_configurations_are_deleted_while_the_namespace_is_being_deleted(
        self, make, rollout, store, log
    ):
        await store(make.policy())
        await rollout.reconcile()
        rollout.end(ending=True)
        await rollout.reconcile()
        assert rollout.webhook_writer.cluster.webhooks.stored == {}
        rollout.end(ending=False)
        await rollout.reconcile()
        assert rollout.webhook_writer.cluster.webhooks.kinds() == {"configmaps"}


async def test_refused_match_conditions_are_reported_without_affecting_other_policies(
    world, make, rollout, store
):
    conditions = [{"name": "broken", "expression": "request.?"}]
    bad = await store(
        make.policy("bad", spec={"webhookConfiguration": {"matchConditions": conditions}})
    )
    good = await store(make.policy("good"))
    rollout.webhook_writer.cluster.webhooks.refuses.add("request.?")
    await rollout.reconcile()
    assert ready(await world.read(good))["status"] == "True"
    condition = ready(await world.read(bad))
    assert condition["status"] == "False"
    assert condition["message"].startswith("spec.webhookConfiguration.matchConditions: ")
    assert "request.?" in condition["message"]


async def test_a_problem_is_logged_once_and_the_rollout_continues_once_it_is_solved(
    world, make, rollout, store, seen, log
):
    rollout.webhook_writer.cluster.authority.bundle = None
    work = asyncio.create_task(rollout.run())
    try:
        async with asyncio.timeout(10):
            policy = await store(make.policy())
            while not rollout.problem:
                await asyncio.wait([work], timeout=0.01)
            rollout.webhook_writer.cluster.authority.bundle = b"certificate"
            await seen(policy)
            while rollout.problem:
                await asyncio.wait([work], timeout=0.01)
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
    assert [line for line in log if "retrofit-admission" in line] == log[1:2]
    assert ready(await world.read(policy))["status"] == "True"


async def test_a_new_generation_clears_the_figures(world, make, rollout, store):
    policy = await store(make.policy())
    await rollout.reconcile()
    figures = {"mutateExisting": {"patched": 7, "message": "x", "running": {"patched": 1}}}
    await world.policies.write_status(await world.read(policy), figures)
    await store(make.policy(patch={"metadata": {"labels": {"done": "again"}}}))
    await rollout.reconcile()
    stored = await world.read(policy)
    assert stored["status"]["mutateExisting"] == {"observedGeneration": 2}


async def test_new_figures_do_not_trigger_a_rollout(world, make, rollout, store):
    stored = await store(make.policy())
    await rollout.reconcile()
    stored = await world.read(stored)
    world.index.apply(stored)
    rollout.changed.clear()
    await world.policies.write_status(stored, {"mutateExisting": {"patched": 7}})
    stored = await world.read(stored)
    world.index.apply(stored)
    assert not rollout.changed.is_set()
    await world.policies.write_status(stored, {"ready": False})
    world.index.apply(await world.read(stored))
    assert rollout.changed.is_set()


async def test_a_policy_that_changed_meanwhile_schedules_another_round(
    world, make, rollout, store
):
    stored = await store(make.policy())
    figures = {"mutateExisting": {"patched": 7}}
    await world.policies.write_status(await world.read(stored), figures)  # not applied yet
    rollout.changed.clear()
    await rollout.reconcile()
    await asyncio.wait_for(rollout.changed.wait(), 5)
    assert "conditions" not in (await world.read(stored))["status"]


CHECK = {
    "name": "check",
    "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
    "validate": {"failureAction": "Enforce", "pattern": {"metadata": {"name": "?*"}}},
}
STORED_ONLY = (
    "spec.rules[{}]: rule check is a validate rule: kube-retrofit stores it, but does"
    " not act on it"
)


async def test_a_policy_without_a_rule_that_is_acted_on_is_not_ready(
    make, rollout, store, seen, log
):
    policy = make.policy()
    policy["spec"]["rules"] = [CHECK]
    await store(policy)
    await rollout.reconcile()
    stored = await seen(policy)
    assert stored["status"]["ready"] is False
    assert {key: ready(stored)[key] for key in ("status", "reason", "message")} == {
        "status": "False",
        "reason": "NotActedOn",
        "message": f"no rule is acted on: {STORED_ONLY.format(0)}",
    }
    reported = f"PolicyNotActedOn p {STORED_ONLY.format(0)}"
    assert log.count(reported) == 1
    await rollout.reconcile()
    assert log.count(reported) == 1


async def test_ready_if_stored_makes_a_policy_without_acted_on_rules_ready(
    world, make, store, seen, log
):
    rollout = Rollout(
        index=world.index,
        policies=world.policies,
        requests=world.requests,
        webhook_writer=new_webhook_writer(world, log=log),
        warn=log.append,
        on_caveat=lambda policy, caveat: log.append(f"{caveat.reason} {policy.key}"),
        ready_if_stored=True,
    )
    policy = make.policy()
    policy["spec"]["rules"] = [CHECK]
    await store(policy)
    await rollout.reconcile()
    condition = ready(await seen(policy))
    assert (condition["status"], condition["reason"]) == ("True", "Succeeded")
    assert condition["message"] == f"Ready, but {STORED_ONLY.format(0)}"


async def test_a_policy_with_some_rules_acted_on_is_ready_and_names_the_others(
    world, make, rollout, store, log
):
    policy = make.policy()
    policy["spec"]["rules"].append(CHECK)
    await store(policy)
    await rollout.reconcile()
    condition = ready(await world.read(policy))
    assert (condition["status"], condition["reason"]) == ("True", "Succeeded")
    assert condition["message"] == f"Ready, but {STORED_ONLY.format(1)}"
    assert f"PolicyNotActedOn p {STORED_ONLY.format(1)}" in log


async def test_the_status_reports_resource_filters_that_leave_out_all_triggers(
    make, rollout, store, seen, log
):
    settings = rollout.webhook_writer.live
    settings.load({"resourceFilters": "[ConfigMap,*,*]"})
    policy = await store(make.policy())
    await rollout.reconcile()
    text = (
        "spec.rules[0].match: nothing ever fires it: resourceFilters leave out ConfigMap"
        " ([ConfigMap,*,*])"
    )
    condition = ready(await seen(policy))
    assert (condition["status"], condition["message"]) == ("True", f"Ready, but {text}")
    assert f"PolicyFiltered p {text}" in log
    settings.load({})
    await rollout.reconcile()
    assert ready(await seen(policy))["message"] == "Ready"


async def test_many_reconciles_that_want_another_one_soon_cause_one(
    world, make, rollout, store, monkeypatch
):
    async def refuse(_policy: Object, _status: Object) -> None:
        raise Conflict("the policy was edited", status=409)

    monkeypatch.setattr(world.policies, "write_status", refuse)
    await store(make.policy())
    woken = 0
    rollout.changed.clear()
    for _ in range(10):
        await rollout.reconcile()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.8):
            while True:
                await rollout.changed.wait()
                rollout.changed.clear()
                woken += 1
    assert woken == 1
