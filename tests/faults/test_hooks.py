"""Hooks whose controller is killed: each event is delivered once, deletions included."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from devcluster.programs import CONTROLLER
from tests.faults.hooked import (
    create,
    following,
    hook,
    made,
    seed,
    seeds,
    status_of,
    with_hooks,
)
from tests.faults.rig import Rig

pytestmark = pytest.mark.cluster


@pytest.fixture
async def rig(rig: Rig) -> AsyncIterator[Rig]:
    """The rig of a cluster that serves Hooks."""
    async with with_hooks(rig) as found:
        yield found


EVENTS = 60
SHARES = (1, 7, 11)
"""How many more objects the hook has to create before each kill."""
NAME = "{{ element.object.metadata.name }}-{{ to_lower(element.watchEvent) }}"
ONCE = {
    "foreach": "contexts[?type=='Event']",
    "operations": [create(NAME, **{"made-by": "hook"})],
}


async def test_each_event_creates_one_object_although_the_controller_is_killed(rig: Rig) -> None:
    binding = seeds(executeHookOnEvent=["Added", "Deleted"])
    await rig.create(hook(rig.namespace, "once", kubernetes=[binding], run=ONCE))
    await following(rig, "once")
    triggers = [seed(rig.namespace, f"seed-{number}") for number in range(EVENTS)]
    sending = asyncio.create_task(rig.burst(triggers, per_second=EVENTS / 5))
    for share in SHARES:
        seen = len(await made(rig))

        async def more(least: int = min(seen + share, EVENTS)) -> str:
            there = len(await made(rig))
            said = "" if there >= least else await status_of(rig, "once")
            return f"{there} of {least}: {said}" if said else ""

        await rig.settle(more, within=40.0)
        await rig.kill(CONTROLLER)
        await rig.restart(CONTROLLER)
    await sending
    wanted = {f"seed-{number}-added" for number in range(EVENTS)}

    async def left() -> set[str]:
        return wanted - await made(rig)

    await rig.settle(left, within=60.0)

    async def waiting() -> object:
        status = await status_of(rig, "once")
        return status if status.get("waiting") or status.get("message") else ""

    await rig.settle(waiting, within=20.0)
    status = await status_of(rig, "once")
    assert status["failed"] == 0, "a Create was done twice, or was refused"


async def test_deletions_during_a_downtime_of_the_controller_are_delivered(rig: Rig) -> None:
    names = [f"seed-{number}" for number in range(8)]
    await rig.create_all(seed(rig.namespace, name) for name in names)
    await rig.create(hook(rig.namespace, "gone", kubernetes=[seeds()], run=ONCE))
    await following(rig, "gone")

    async def stored() -> str:
        return "" if (await status_of(rig, "gone")).get("cursors") else "no cursor yet"

    await rig.settle(stored, within=10.0)
    await rig.kill(CONTROLLER)
    for name in names:
        await rig.delete("ConfigMap", name)
    await rig.create(seed(rig.namespace, "late"))
    await rig.restart(CONTROLLER)
    wanted = {f"{name}-deleted" for name in names} | {"late-added"}

    async def left() -> set[str]:
        return wanted - await made(rig)

    await rig.settle(left, within=40.0)
    assert await made(rig) == wanted


async def test_label_changes_of_a_namespace_cause_added_and_deleted_events(rig: Rig) -> None:
    await rig.create(seed(rig.namespace, "early"))
    mark = {"followed-by": rig.namespace}
    binding = seeds(namespace={"labelSelector": {"matchLabels": mark}})
    made_here = create(NAME, **{"made-by": "hook"}) | {"operation": "CreateIfNotExists"}
    made_here["object"]["metadata"]["namespace"] = rig.namespace
    run = {"foreach": "contexts[?type=='Event']", "operations": [made_here]}
    name = f"labels-{rig.namespace}"
    await rig.create(hook("", name, kubernetes=[binding], run=run))

    async def said() -> Mapping[str, Any]:
        return (await rig.get("ClusterHook", name, "")).get("status") or {}

    async def silent() -> object:
        status = await said()
        ready = [item["status"] for item in status.get("conditions") or ()]
        return "" if ready == ["True"] else status or "no status"

    async def labelled(labels: Mapping[str, str | None]) -> None:
        await rig.merge("Namespace", rig.namespace, {"metadata": {"labels": labels}}, namespace="")

    async def until(*wanted: str) -> None:
        async def left() -> object:
            found = await made(rig)
            return (found, await said()) if found != set(wanted) else ""

        await rig.settle(left, within=40.0)

    await rig.settle(silent, within=40.0)
    await labelled(mark)
    await until("early-added")
    await rig.create(seed(rig.namespace, "late"))
    await until("early-added", "late-added")
    await rig.kill(CONTROLLER)
    await rig.delete("ConfigMap", "late")
    await labelled({"followed-by": None})
    await rig.restart(CONTROLLER)
    await until("early-added", "late-added", "late-deleted", "early-deleted")
