"""Catch-up of rules that change their trigger and also run on existing objects."""

import pytest

from reconciler.api.meta import ANNOTATION_EXISTING, Object
from reconciler.api.updaterequest import Outcome
from reconciler.services.ports.leases import AdmissionHeartbeat
from tests.unit.services.catchup.conftest import Chase
from tests.unit.services.conftest import Make

MISSED = AdmissionHeartbeat(renewed="b", missed="b")


def own(make: type[Make], failure_policy: str = "Ignore") -> Object:
    policy = make.policy(spec={"failurePolicy": failure_policy})
    del policy["spec"]["rules"][0]["mutate"]["targets"]
    policy["metadata"]["annotations"] = {ANNOTATION_EXISTING: "true"}
    return policy


@pytest.fixture
async def leading(chase: Chase, make: type[Make]) -> Chase:
    await chase.install(own(make))
    chase.world.clock.tick(60)
    await chase.passes.begin()
    await chase.pass_time(10)
    return chase


async def test_no_objects_are_read_while_no_trigger_is_missing(leading, make):
    leading.add(make.object())
    reads = leading.world.wire.calls["get"]
    await leading.pass_time(700)
    assert await leading.names() == []
    assert leading.world.wire.calls["get"] == reads


async def test_objects_that_the_rule_would_change_are_found_after_a_gap(leading, make):
    leading.add(make.object(name="missed"))
    leading.add(make.object(name="done", labels={"done": "yes"}))
    leading.add(make.object(name="system", namespace="kube-system"))
    leading.checkpoint.last = MISSED
    await leading.pass_time(15)
    (request,) = await leading.requests()
    assert request.spec.resource.name == "missed"
    attempt = await leading.world.processor.attempt(request, 0.0)
    assert [item.outcome for item in attempt.targets] == [Outcome.PATCHED]
    await leading.pass_time(310)
    assert await leading.names() == ["missed"]


async def test_objects_stored_while_the_policy_was_not_in_force_are_found(chase, make):
    await chase.install(own(make, "Fail"))
    chase.world.clock.tick(60)
    await chase.passes.begin()
    chase.outage(30, make.object(name="missed"))
    await chase.pass_time(20)
    assert await chase.names() == ["missed"]
    assert chase.losses == []


async def test_an_outage_of_the_changing_webhook_loses_no_triggers_of_other_rules(chase, make):
    policy = own(make, "Fail")
    (changes,) = policy["spec"]["rules"]
    records = make.policy(spec={"failurePolicy": "Fail"})["spec"]["rules"][0]
    # Deletions leave nothing to search for, so such a rule would report a loss.
    resources = {"kinds": ["ConfigMap"], "operations": ["DELETE"]}
    deletions = {**records, "name": "deletions", "match": {"any": [{"resources": resources}]}}
    policy["spec"]["rules"] = [{**changes, "name": "changes"}, records, deletions]
    await chase.install(policy)
    chase.world.clock.tick(60)
    await chase.passes.begin()
    chase.outage(30, make.object(name="missed"), changing=True)
    await chase.pass_time(20)
    (request,) = await chase.requests()
    assert (request.spec.rule, request.spec.resource.name) == ("changes", "missed")
    assert chase.losses == []


async def test_without_the_annotation_for_existing_objects_nothing_is_found(chase, make):
    policy = own(make, "Fail")
    policy["metadata"]["annotations"] = {}
    await chase.install(policy)
    chase.world.clock.tick(60)
    await chase.passes.begin()
    chase.outage(30, make.object(name="missed"))
    await chase.pass_time(20)
    assert await chase.names() == []
