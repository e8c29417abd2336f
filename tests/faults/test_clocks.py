"""A wrong clock on the controller's machine does not affect the processing of triggers."""

import asyncio

import pytest

from devcluster.programs import CONTROLLER
from reconciler.api.updaterequest import State
from tests.faults.rig import SHORT_LEASE, Rig, config_map, rule, target
from tests.faults.siblings import labelled, open_sibling

pytestmark = pytest.mark.cluster

TRIGGERS = 10


@pytest.mark.parametrize("ahead", [-86_400, 600])
async def test_triggers_held_by_a_webhook_are_applied_despite_a_wrong_clock(
    rig: Rig, ahead: int
) -> None:
    await rig.kill(CONTROLLER)
    await rig.controller(*SHORT_LEASE, name=f"set-by-{ahead}", ahead=ahead)
    triggers = await rig.one_to_one(TRIGGERS)
    async with open_sibling(rig) as sibling:
        creating = [
            asyncio.create_task(rig.create(labelled(trigger, "hold"))) for trigger in triggers
        ]

        async def unheld() -> str:
            return "" if len(sibling.held) == TRIGGERS else f"{len(sibling.held)} held"

        async def untold() -> str:
            reasons = [item.status.reason for item in await rig.requests()]
            return "" if reasons == ["Unconfirmed"] * TRIGGERS else f"{reasons}"

        await rig.settle(unheld, within=15)
        await rig.settle(untold, within=15)
        sibling.release()
        await asyncio.gather(*creating)
    wanted = {f"target-{n}": {"got": f"trigger-{n}"} for n in range(TRIGGERS)}
    await rig.applied(wanted, within=15)
    await rig.finish(count=TRIGGERS)
    assert await rig.states() == {State.COMPLETED: TRIGGERS}


async def test_triggers_deleted_at_once_are_not_taken_for_refused_ones(rig: Rig) -> None:
    place = rig.namespace
    await rig.apply(
        rule(
            place,
            [target(place, "one")],
            {"data": {"{{ request.object.metadata.name }}": "x"}},
            operations=["CREATE"],
        )
    )
    await rig.create(config_map(place, "one"))

    async def come_and_go(name: str) -> None:
        await rig.create(config_map(place, name))
        await rig.delete("ConfigMap", name)

    await asyncio.gather(*(come_and_go(f"trigger-{n}") for n in range(TRIGGERS)))
    await rig.finish(count=TRIGGERS)
    ends = {(item.status.state, item.status.reason) for item in await rig.requests()}
    assert ends <= {(State.SKIP, "TriggerGone"), (State.COMPLETED, "Applied")}
