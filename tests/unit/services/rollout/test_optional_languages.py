"""The leader's work on policies of optional languages."""

from collections.abc import Callable

import pytest

from reconciler.api.kinds import MOD_RULES
from reconciler.api.meta import ANNOTATION_EXISTING, Object, policy_ref
from reconciler.api.updaterequest import Reason
from reconciler.services.processing.pacing import Pacer
from reconciler.services.rollout.rollout import Rollout
from reconciler.services.rollout.webhook_config import (
    MUTATING_CONFIGURATION,
    POLICY_CONFIGURATION,
    RESOURCE_CONFIGURATION,
)
from tests.unit.dialects.kubemod.modrules import POD, modrule, patching
from tests.unit.services.configurations import Configurations, new_rollout
from tests.unit.services.conftest import World

LABEL = {"op": "add", "path": "/metadata/labels/a", "value": "b"}
ALIVE = "KubeMod is installed in this cluster"


@pytest.fixture
def webhooks() -> Configurations:
    return Configurations([])


@pytest.fixture
def rollout(world: World, webhooks: Configurations) -> Rollout:
    return new_rollout(world, webhooks=webhooks)


@pytest.fixture
def asked(webhooks: Configurations) -> Callable[[], list[str]]:
    """Return a function that lists the Pods and ModRules in the rules of the webhooks."""

    def found() -> list[str]:
        return [
            f"{ref.kind[:3]} {resource}"
            for ref in (MUTATING_CONFIGURATION, RESOURCE_CONFIGURATION, POLICY_CONFIGURATION)
            for hook in webhooks.stored[ref]["webhooks"]
            for rule in hook["rules"]
            for resource in rule["resources"]
            if resource in ("pods", "modrules")
        ]

    return found


async def installed(world: World, rollout: Rollout, rule: Object) -> Object:
    """Store a rule, reconcile the rollout, and return the stored rule."""
    world.index.apply(world.cluster.add(rule))
    await rollout.reconcile()
    return await world.read(rule)


async def settled(world: World, rollout: Rollout, rule: Object) -> Object:
    world.index.apply(await world.read(rule))
    await rollout.reconcile()
    return await world.read(rule)


async def test_a_language_that_is_not_served_adds_no_webhook_rules(world, rollout, asked) -> None:
    stored = await installed(world, rollout, patching(LABEL))
    assert asked() == []
    assert "status" not in stored


async def test_a_mod_rule_is_added_to_the_webhooks_and_becomes_ready(
    world, rollout, asked
) -> None:
    world.index.languages.take(MOD_RULES, served=True)
    stored = await installed(world, rollout, patching(LABEL))
    assert asked() == ["Mut pods", "Val modrules"]
    (condition,) = stored["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("Ready", "True")
    assert stored["status"]["phases"] == ["admission"]
    assert stored["status"]["kinds"] == ["Pod"]


async def test_a_reject_rule_is_added_to_the_validating_webhook(world, rollout, asked) -> None:
    world.index.languages.take(MOD_RULES, served=True)
    rule = modrule(type="Reject", match=[POD], admissionOperations=["DELETE"])
    stored = await installed(world, rollout, rule)
    assert asked() == ["Val pods", "Val modrules"]
    assert stored["status"]["phases"] == ["verdict"]


async def test_policies_stand_by_while_their_original_is_at_work(world, rollout, asked) -> None:
    world.index.languages.take(MOD_RULES, served=True)
    world.index.languages.stand_by("kubemod", ALIVE)
    rule = patching(LABEL, annotations={ANNOTATION_EXISTING: "true"})
    stored = await installed(world, rollout, rule)
    assert asked() == []
    (condition,) = stored["status"]["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "StandingBy")
    assert condition["message"] == ALIVE
    held = Pacer(index=world.index, clock=world.clock).closed(policy_ref(rule))
    assert held is not None
    assert (held.reason, held.message) == (Reason.STANDING_BY, ALIVE)
    # Once the original is gone, kube-retrofit acts on its policies.
    world.index.languages.stand_by("kubemod", "")
    assert rollout.changed.is_set()
    stored = await settled(world, rollout, rule)
    assert asked() == ["Mut pods", "Val modrules"]
    assert stored["status"]["conditions"][0]["reason"] == "Succeeded"


async def test_webhook_rules_are_removed_when_the_kind_is_no_longer_served(
    world, rollout, asked
) -> None:
    world.index.languages.take(MOD_RULES, served=True)
    await installed(world, rollout, patching(LABEL))
    world.index.languages.take(MOD_RULES, served=False)
    await rollout.reconcile()
    assert asked() == []
