"""Sweeps over many triggers continue after their controller was killed."""

import asyncio
from typing import Any

import pytest

from devcluster.programs import CONTROLLER
from reconciler.api.updaterequest import State
from tests.faults.rig import Rig, config_map, rule, target

pytestmark = pytest.mark.cluster

TRIGGERS = 300


async def test_a_sweep_with_limits_continues_after_the_controller_is_killed(rig: Rig) -> None:
    place = rig.namespace
    names = [f"trigger-{n:02}" for n in range(30)]
    await rig.create_all(config_map(place, name) for name in names)
    itself = target(place, "{{ request.object.metadata.name }}")
    each = rule(place, [itself], {"data": {"got": "x"}})
    await rig.apply(each)

    async def limit(**values: str | None) -> None:
        marks = {f"kube-retrofit.dev/{name}": value for name, value in values.items()}
        change = {"metadata": {"annotations": marks}}
        await rig.merge("ClusterPolicy", place, change, namespace="")

    async def changed() -> list[str]:
        items = await rig.items("ConfigMap")
        return [item["metadata"]["name"] for item in items if "got" in (item.get("data") or {})]

    async def begun() -> Any:
        found = await changed()
        return "" if len(found) >= 3 else f"only {found} yet"

    await limit(rate="120/m")
    await rig.apply(each, mutateExistingOnPolicyUpdate=True)
    await rig.settle(begun, within=20)
    await rig.kill(CONTROLLER)
    before = await changed()
    assert len(before) < len(names), "it was over before it could be stopped"
    await limit(paused="true")
    await rig.restart(CONTROLLER)
    request = await rig.parked("Paused")
    assert request.status.sweep is not None
    assert request.status.sweep.done >= len(before) - 2
    assert await changed() == before
    await limit(paused=None, rate=None)
    await rig.applied({name: {"got": "x"} for name in names}, within=20)


async def test_a_killed_sweep_continues_after_a_restart(rig: Rig) -> None:
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
