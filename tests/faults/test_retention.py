"""The retention of finished requests: one call removes many of them."""

import pytest

from devcluster.programs import CONTROLLER
from tests.faults.rig import SHORT_LEASE, Rig, config_map, rule, target

pytestmark = pytest.mark.cluster

TRIGGERS = 60


async def test_completed_requests_are_removed_at_once_with_few_calls(rig: Rig) -> None:
    place = rig.namespace
    await rig.kill(CONTROLLER)
    await rig.controller(*SHORT_LEASE, "--retain-completed=0", name="forgetful")
    await rig.create(config_map(place, "one"))
    await rig.apply(
        rule(
            place,
            [target(place, "one")],
            {"data": {"{{ request.object.metadata.name }}": "x"}},
        ),
        rule(
            place,
            [target(place, "nowhere")],
            {"data": {"a": "b"}},
            names="trigger-0",
            name="fails",
        ),
    )
    before = await rig.calls("deletecollection", "updaterequests")
    names = [f"trigger-{n}" for n in range(TRIGGERS)]
    await rig.create_all(config_map(place, name) for name in names)
    await rig.applied({"one": dict.fromkeys(names, "x")}, within=20)

    async def left() -> list[str]:
        found = await rig.requests()
        return [item.name for item in found if item.spec.rule != "fails"]

    await rig.settle(left, within=10)
    calls = await rig.calls("deletecollection", "updaterequests") - before
    assert 0 < calls < TRIGGERS // 4
    assert await rig.calls("delete", "updaterequests") == 0
    # Only successful requests are removed at once; failed ones are kept for inspection.
    await rig.finish()
    assert await rig.states() == {"Failed": 1}


async def test_figures_of_a_policy_outlive_its_requests_and_its_controller(rig: Rig) -> None:
    place = rig.namespace
    forgetful = (*SHORT_LEASE, "--retain-completed=0", "--retain-skip=0", "--retain-failed=0")
    await rig.kill(CONTROLLER)
    await rig.controller(*forgetful, name="forgetful-1")
    await rig.create(config_map(place, "one"))
    patch = {"data": {"{{ request.object.metadata.name }}": "x"}}
    await rig.apply(rule(place, [target(place, "one")], patch))
    names = [f"trigger-{n}" for n in range(TRIGGERS)]
    await rig.create_all(config_map(place, name) for name in names)
    await rig.applied({"one": dict.fromkeys(names, "x")}, within=20)

    async def left() -> list[str]:
        return [item.name for item in await rig.requests()]

    await rig.settle(left, within=15)
    # Requests are removed only after the policy's figures that count them are written.
    await rig.kill("forgetful-1")
    assert await triggers(rig) == TRIGGERS
    await rig.controller(*forgetful, name="forgetful-2")
    await rig.create(config_map(place, "trigger-last"))

    async def uncounted() -> str:
        found = await triggers(rig)
        # Catch-up of the next leader records triggers again, because their requests are removed.
        return "" if found > TRIGGERS else f"{found} triggers"

    await rig.settle(uncounted, within=60)
    await rig.settle(left, within=15)


async def triggers(rig: Rig) -> int:
    policy = await rig.get("ClusterPolicy", rig.namespace, "")
    return int(policy["status"]["mutateExisting"]["triggers"])
