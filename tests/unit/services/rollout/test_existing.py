"""Policies whose rules change their trigger: their sweeps and their status."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from reconciler.api.meta import ANNOTATION_EXISTING, ANNOTATION_RUN, Object
from reconciler.api.updaterequest import UpdateRequest
from reconciler.services.rollout.outages import Cause
from reconciler.services.rollout.rollout import Rollout
from reconciler.services.rollout.webhook_config import MUTATING_CONFIGURATION
from tests.unit.services.configurations import new_rollout
from tests.unit.services.conftest import Make, World

AUTOGEN = "pod-policies.kyverno.io/autogen-controllers"


@pytest.fixture
def rollout(world: World) -> Rollout:
    return new_rollout(world)


@pytest.fixture
def settled(world: World, rollout: Rollout) -> Callable[[Object], Awaitable[Object]]:
    """Return a function that reconciles the rollout for a policy, and returns the policy."""

    async def run(policy: Object) -> Object:
        world.index.apply(await world.read(policy))
        await rollout.reconcile()
        stored = await world.read(policy)
        world.index.apply(stored)
        return stored

    return run


async def sweeps(world: World) -> list[UpdateRequest]:
    found = [item async for item in world.requests.waiting()]
    return sorted(found, key=lambda item: item.spec.rule)


def own(make: type[Make], **annotations: str) -> Object:
    policy = make.policy(kinds=("Pod",))
    del policy["spec"]["rules"][0]["mutate"]["targets"]
    policy["metadata"]["annotations"] = annotations
    return policy


def status_of(policy: Object, *names: str) -> Any:
    found = policy["status"]
    for name in names:
        found = found.get(name)
    return found


async def test_generated_rules_are_listed_in_the_status(world, make, settled):
    policy = await settled(world.cluster.add(own(make)))
    first, second = status_of(policy, "autogen", "rules")
    assert first == {
        "name": "autogen-r",
        "skipBackgroundRequests": True,
        "match": {
            "any": [
                {
                    "resources": {
                        "kinds": [
                            "apps/v1/DaemonSet",
                            "apps/v1/Deployment",
                            "batch/v1/Job",
                            "apps/v1/ReplicaSet",
                            "v1/ReplicationController",
                            "apps/v1/StatefulSet",
                        ]
                    }
                }
            ],
            "resources": {},
        },
        "mutate": {
            "patchStrategicMerge": {
                "spec": {"template": {"metadata": {"labels": {"done": "yes"}}}}
            }
        },
    }
    assert second["name"] == "autogen-cronjob-r"
    assert status_of(policy, "rulecount", "mutate") == 1
    assert status_of(policy, "phases") == ["admission"]


async def test_a_policy_without_generated_rules_lists_none(world, make, settled):
    policy = await settled(world.cluster.add(own(make, **{AUTOGEN: "none"})))
    assert status_of(policy, "autogen") == {}
    assert await sweeps(world) == []
    with_targets = await settled(world.cluster.add(make.policy("q")))
    assert status_of(with_targets, "autogen") == {}
    assert status_of(with_targets, "phases") == ["triggered"]


async def test_a_narrower_autogen_annotation_applies_at_once(world, make, settled):
    policy = await settled(world.cluster.add(own(make)))
    await world.edit(policy, annotations={AUTOGEN: "Deployment"})
    policy = await settled(policy)
    (only,) = status_of(policy, "autogen", "rules")
    assert only["match"]["any"][0]["resources"]["kinds"] == ["apps/v1/Deployment"]


@pytest.mark.parametrize(
    ("first", "second", "kept"),
    [
        (f"{'x' * 58}-one", f"{'x' * 58}-two", f"autogen-{'x' * 55}"),
        ("r", "cronjob-r", "autogen-cronjob-r"),
        ("r", "autogen-r", "autogen-r"),
    ],
    ids=["cut at 63 characters", "two prefixes", "written by the author"],
)
async def test_generated_rules_that_would_share_a_name_are_all_swept(
    world, make, settled, first, second, kept
):
    policy = own(make, **{ANNOTATION_EXISTING: "true"})
    (rule,) = policy["spec"]["rules"]
    policy["spec"]["rules"] = [{**rule, "name": first}, {**rule, "name": second}]
    policy = await settled(world.cluster.add(policy))
    names = [item["name"] for item in status_of(policy, "autogen", "rules")]
    swept = [item.spec.rule for item in await sweeps(world)]
    assert swept == sorted([first, second, *names])
    assert len(set(swept)) == 6
    assert kept in swept
    assert max(map(len, swept)) <= 63


async def test_each_rule_sweeps_existing_objects_once(world, make, settled):
    policy = await settled(world.cluster.add(own(make, **{ANNOTATION_EXISTING: "true"})))
    assert status_of(policy, "phases") == ["admission", "existing"]
    assert status_of(policy, "mutateExisting", "onExisting") is True
    found = await sweeps(world)
    assert [item.spec.rule for item in found] == ["autogen-cronjob-r", "autogen-r", "r"]
    assert all(item.spec.sweep for item in found)
    await settled(policy)
    assert await sweeps(world) == found


async def test_the_existing_annotation_can_be_added_later_and_removed(world, make, settled):
    policy = await settled(world.cluster.add(own(make, **{AUTOGEN: "none"})))
    assert await sweeps(world) == []
    await world.edit(policy, annotations={ANNOTATION_EXISTING: "true"})
    policy = await settled(policy)
    (first,) = await sweeps(world)
    await settled(policy)
    assert await sweeps(world) == [first]

    await world.edit(policy, annotations={ANNOTATION_EXISTING: "false"})
    policy = await settled(policy)
    assert "onExisting" not in status_of(policy, "mutateExisting")
    assert status_of(policy, "phases") == ["admission"]
    _, ended = await world.sweeper.run(first)
    assert ended.disposition.message == "policy p no longer has a rule r"

    await world.edit(policy, annotations={ANNOTATION_EXISTING: "true"})
    await settled(policy)
    assert len(await sweeps(world)) == 2


async def test_a_new_generation_is_swept_again(world, make, settled):
    changes = {ANNOTATION_EXISTING: "true", AUTOGEN: "none"}
    policy = await settled(world.cluster.add(own(make, **changes)))
    rule = policy["spec"]["rules"][0]
    rule["mutate"] = {"patchStrategicMerge": {"metadata": {"labels": {"done": "again"}}}}
    await world.edit(policy, spec=policy["spec"])
    await settled(policy)
    assert [item.spec.policy_generation for item in await sweeps(world)] in ([1, 2], [2, 1])


async def test_a_run_annotation_causes_another_sweep(world, make, settled):
    changes = {ANNOTATION_EXISTING: "true", AUTOGEN: "none"}
    policy = await settled(world.cluster.add(own(make, **changes)))
    await world.edit(policy, annotations={ANNOTATION_RUN: "1"})
    policy = await settled(policy)
    assert status_of(policy, "mutateExisting", "manualRun") == {"value": "1", "refused": []}
    assert len(await sweeps(world)) == 2


async def test_a_deleted_mutating_webhook_is_recorded_as_an_outage(world, make, rollout, settled):
    marks = {ANNOTATION_EXISTING: "true", AUTOGEN: "none"}
    await settled(world.cluster.add(own(make, **marks)))
    began = world.clock.now()
    world.clock.tick(100)
    await rollout.reconcile()
    del rollout.webhook_writer.cluster.webhooks.stored[MUTATING_CONFIGURATION]
    await rollout.reconcile()
    outages = rollout.webhook_writer.in_force.outages
    assert outages.earliest() > began
    world.clock.tick(20)
    await rollout.reconcile()
    (outage,) = outages.due(world.clock.now() + timedelta(minutes=1))
    assert (outage.changing, outage.cause) == (True, Cause.MISSING)
    assert outage.until == world.clock.now()
