"""kill -9 of the programs under load: all triggers that the API server accepted are applied."""

import asyncio

import pytest

from devcluster.programs import ADMISSION, CONTROLLER
from reconciler.api.updaterequest import State
from tests.faults.rig import Rig, config_map, rule, target

pytestmark = pytest.mark.cluster

TRIGGERS = 200


async def test_accepted_triggers_are_applied_although_both_programs_are_killed(rig: Rig) -> None:
    triggers = await rig.one_to_one(TRIGGERS)
    sending = asyncio.create_task(rig.burst(triggers, per_second=15))

    await rig.completed(TRIGGERS // 5, within=20)
    await rig.kill(ADMISSION, CONTROLLER)
    await asyncio.sleep(1.0)
    await rig.restart(ADMISSION, CONTROLLER)
    burst = await sending

    assert burst.refused, "nothing was sent while the admission server was away"
    assert all("failed calling webhook" in said for said in burst.refused.values())
    assert len(burst.accepted) > TRIGGERS // 5
    got = {f"target-{name.rpartition('-')[2]}": {"got": name} for name in burst.accepted}
    await rig.applied(got, within=30)

    async def open_requests() -> list[str]:
        found = await rig.requests(state=State.PENDING)
        return [item.name for item in found if item.spec.resource.name not in burst.refused]

    await rig.settle(open_requests, within=10)
    # These requests were recorded, but the kill prevented the answer: their triggers do not exist.
    for request in await rig.requests(state=State.PENDING):
        assert request.status.reason in {"", "Unconfirmed"}
    untouched = {f"target-{name.rpartition('-')[2]}" for name in burst.refused}
    assert not [name for name in untouched if "got" in await rig.data(name)]


async def test_an_append_happens_once_although_the_controller_is_killed(rig: Rig) -> None:
    place, count = rig.namespace, 50
    await rig.apply(
        rule(
            place,
            [target(place, "list")],
            {"data": {"seen": "{{ target.data.seen }} {{ request.object.metadata.name }}"}},
        )
    )
    await rig.create(config_map(place, "list", seen="begin"))
    triggers = (config_map(place, f"trigger-{n}") for n in range(count))
    sending = asyncio.create_task(rig.burst(triggers, per_second=25))

    for share in (5, 2):

        async def begun(least: int = count // share) -> str:
            seen = (await rig.data("list"))["seen"].split()
            return "" if len(seen) > least else f"only {seen} yet"

        await rig.settle(begun, within=20)
        await rig.kill(CONTROLLER)
        await rig.restart(CONTROLLER)
    burst = await sending
    assert not burst.refused

    async def missing() -> set[str]:
        return set(burst.accepted) - set((await rig.data("list"))["seen"].split())

    await rig.settle(missing, within=30)
    await rig.finish(count=count)
    assert sorted((await rig.data("list"))["seen"].split()[1:]) == sorted(burst.accepted)
