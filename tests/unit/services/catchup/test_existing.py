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


async def test_while_nothing_is_missing_nothing_is_looked_for(leading, make):
    leading.add(make.object())
    reads = leading.world.wire.calls["get"]
    await leading.pass_time(700)
    assert await leading.names() == []
    assert leading.world.wire.calls["get"] == reads


async def test_after_a_gap_what_the_rule_would_change_is_found(leading, make):
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


async def test_what_was_stored_while_the_policy_was_not_in_force_is_found(chase, make):
    await chase.install(own(make, "Fail"))
    chase.world.clock.tick(60)
    await chase.passes.begin()
    chase.outage(30, make.object(name="missed"))
    await chase.pass_time(20)
    assert await chase.names() == ["missed"]
    assert chase.losses == []


async def test_while_objects_were_not_changed_the_triggers_of_other_rules_were_recorded(
    chase, make
):
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


async def test_without_the_annotation_nothing_is_found(chase, make):
    policy = own(make, "Fail")
    policy["metadata"]["annotations"] = {}
    await chase.install(policy)
    chase.world.clock.tick(60)
    await chase.passes.begin()
    chase.outage(30, make.object(name="missed"))
    await chase.pass_time(20)
    assert await chase.names() == []
