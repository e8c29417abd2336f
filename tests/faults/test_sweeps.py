"""A sweep over many triggers survives the end of its controller."""

import asyncio

import pytest

from reconciler.api.updaterequest import State
from reconciler.cli.dev.programs import CONTROLLER
from tests.faults.rig import Rig, config_map, rule, target

pytestmark = pytest.mark.cluster

TRIGGERS = 300


async def test_a_killed_sweep_goes_on(rig: Rig) -> None:
    place = rig.namespace
    pairs = [(f"trigger-{n:03}", f"target-{n:03}") for n in range(TRIGGERS)]
    await rig.create_all(config_map(place, trigger, to=name) for trigger, name in pairs)
    await rig.create_all(config_map(place, name) for _, name in pairs)
    sweep = rule(
        place,
        [target(place, "{{ request.object.data.to }}")],
        {"data": {"got": "{{ request.object.metadata.name }}"}},
    )
    applying = asyncio.create_task(rig.apply(sweep, mutateExistingOnPolicyUpdate=True))

    async def some_applied() -> str:
        done = [item for item in await rig.items("ConfigMap") if "got" in (item.get("data") or {})]
        return "" if len(done) >= TRIGGERS // 10 else f"only {len(done)} yet"

    await rig.settle(some_applied, within=30)
    await rig.kill(CONTROLLER)
    left = await rig.lacking({name: {"got": trigger} for trigger, name in pairs})
    assert left, "the sweep was over before it could be killed"
    await rig.restart(CONTROLLER)
    await applying
    await rig.applied({name: {"got": trigger} for trigger, name in pairs}, within=40)
    await rig.finish()
    (request,) = await rig.requests()
    assert (request.status.state, request.spec.sweep) == (State.COMPLETED, True)
    progress = request.status.sweep
    assert progress is not None
    assert progress.done == progress.total >= 2 * TRIGGERS
    assert progress.failed == 0
