"""Webhooks of other products that delay or deny: a recorded trigger may never be stored."""

import asyncio

import pytest

from devcluster.programs import CONTROLLER
from reconciler.api.updaterequest import State
from reconciler.errors import Denied
from tests.faults.rig import SHORT_LEASE, Rig, config_map, rule, target
from tests.faults.siblings import labelled, open_sibling

pytestmark = pytest.mark.cluster


async def test_a_trigger_held_by_a_webhook_is_applied_and_a_denied_one_is_skipped(
    rig: Rig,
) -> None:
    place = rig.namespace
    await rig.kill(CONTROLLER)
    await rig.controller(*SHORT_LEASE, "--confirmation=8s", name="impatient")
    await rig.apply(
        rule(
            place,
            [target(place, "target-{{ request.object.data.n }}")],
            {"data": {"got": "{{ request.object.data.word }}"}},
        )
    )
    await rig.create_all(config_map(place, f"target-{n}") for n in range(3))
    await rig.create(config_map(place, "trigger-2", n="2", word="before"))
    await rig.applied({"target-2": {"got": "before"}}, within=15)
    async with open_sibling(rig) as sibling:
        slow = labelled(config_map(place, "trigger-0", n="0", word="late"), "hold")
        creating = asyncio.create_task(rig.create(slow))
        with pytest.raises(Denied, match="does not like it"):
            await rig.create(labelled(config_map(place, "trigger-1", n="1", word="no"), "deny"))
        with pytest.raises(Denied, match="does not like it"):
            await rig.merge(
                "ConfigMap",
                "trigger-2",
                {"metadata": {"labels": {"deny": "yes"}}, "data": {"word": "after"}},
            )

        async def unconfirmed() -> str:
            found = {item.spec.resource.name: item for item in await rig.requests()}
            said = found["trigger-0"].status.message if "trigger-0" in found else "nothing"
            return "" if said.startswith("waiting until the triggering request on") else said

        await rig.settle(unconfirmed, within=15)
        assert sibling.held == ["trigger-0"]
        assert "got" not in await rig.data("target-0")
        sibling.release()
        await creating
        await rig.applied({"target-0": {"got": "late"}}, within=15)
        await rig.finish(count=4, within=30)

    assert "got" not in await rig.data("target-1")
    assert (await rig.data("target-2"))["got"] == "before"
    ended = {
        (item.spec.resource.name, item.spec.operation): item.status
        for item in await rig.requests()
    }
    assert ended["trigger-0", "CREATE"].state is State.COMPLETED
    for name, operation in (("trigger-1", "CREATE"), ("trigger-2", "UPDATE")):
        status = ended[name, operation]
        assert (status.state, status.reason) == (State.SKIP, "NotStored")
        text = f"the triggering request on ConfigMap {place}/{name} was not stored"
        assert status.message == text


async def test_a_request_with_a_denied_target_is_retried_for_that_target_alone(rig: Rig) -> None:
    place = rig.namespace
    await rig.apply(
        rule(
            place,
            [target(place, "liked"), target(place, "disliked")],
            {"data": {"got": "{{ request.object.metadata.name }}"}},
        )
    )
    await rig.create_all(
        [config_map(place, "liked"), labelled(config_map(place, "disliked"), "deny")]
    )
    async with open_sibling(rig):
        await rig.create(config_map(place, "trigger-1"))
        request = await rig.parked("Denied")
        await rig.applied({"liked": {"got": "trigger-1"}}, within=5)
        outcomes = {item.ref.name: item.outcome for item in request.status.targets}
        assert outcomes == {"liked": "Patched", "disliked": "Denied"}
        assert "the sibling does not like it" in request.status.message
    # The removal of a webhook causes no event, so the request has to be retried by itself.
    await rig.applied({"disliked": {"got": "trigger-1"}}, within=30)
    await rig.finish()
    assert await rig.calls("patch", "configmaps", name="liked") == 1
