"""Hooks that are declared as objects, on a real API server."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from reconciler.api.updaterequest import State
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


EACH = "contexts[?type=='Event'].object.metadata"


def labelled(name: str) -> dict[str, Any]:
    return create(name, **{"made-by": "hook"})


async def until(rig: Rig, *names: str) -> None:
    async def left() -> set[str]:
        return set(names) - await made(rig)

    await rig.settle(left, within=40.0)


async def test_a_blocked_queue_reports_its_error_and_blocks_no_other_queue(rig: Rig) -> None:
    stuck = {"foreach": EACH, "operations": [{**labelled("taken")}]}
    free = {"foreach": EACH, "operations": [labelled("{{ element.name }}-free")]}
    behind = {"foreach": EACH, "operations": [labelled("{{ element.name }}-behind")]}
    await rig.create(seed(rig.namespace, "taken"))
    added = {"executeHookOnEvent": ["Added"]}
    binding = seeds(queue="stuck", **added)
    await rig.create(hook(rig.namespace, "stuck", kubernetes=[binding], run=stuck))
    await rig.create(hook(rig.namespace, "behind", kubernetes=[binding], run=behind))
    binding = seeds(queue="free", **added)
    await rig.create(hook(rig.namespace, "free", kubernetes=[binding], run=free))
    await following(rig, "stuck", "behind", "free")
    await rig.create(seed(rig.namespace, "first"))
    await until(rig, "first-free")

    async def silent() -> object:
        status = await status_of(rig, "stuck")
        return "" if status.get("message") and status.get("waiting") else status

    await rig.settle(silent, within=10.0)
    said = rig.cluster.kubectl("get", "hooks", "-n", rig.namespace)
    (line,) = (line for line in said.splitlines() if line.startswith("stuck"))
    assert "Create ConfigMap taken" in line
    assert "already exists" in line
    assert "next attempt at" in line
    await rig.delete("ConfigMap", "taken")
    await until(rig, "taken", "first-behind")


async def test_a_queue_continues_when_the_hook_that_blocks_it_is_deleted(rig: Rig) -> None:
    await rig.create(seed(rig.namespace, "taken"))
    binding = seeds(executeHookOnEvent=["Added"])
    stuck = {"foreach": EACH, "operations": [labelled("taken")]}
    behind = {"foreach": EACH, "operations": [labelled("{{ element.name }}-behind")]}
    await rig.create(hook(rig.namespace, "stuck", kubernetes=[binding], run=stuck))
    await rig.create(hook(rig.namespace, "behind", kubernetes=[binding], run=behind))
    await following(rig, "stuck", "behind")
    await rig.create(seed(rig.namespace, "first"))

    async def silent() -> object:
        status = await status_of(rig, "stuck")
        return "" if status.get("failed") else status

    await rig.settle(silent, within=10.0)
    await rig.delete("Hook", "stuck")
    await until(rig, "first-behind")


async def test_hooks_run_at_start_on_schedule_and_for_groups_with_snapshots(rig: Rig) -> None:
    await rig.create(seed(rig.namespace, "there"))
    start = {"foreach": "contexts[?binding=='onStartup']", "operations": [labelled("started")]}
    await rig.create(hook(rig.namespace, "start", onStartup=1, run=start))
    tick = {
        "foreach": "contexts[?type=='Schedule'].snapshots.seeds[].object.metadata",
        "operations": [labelled("{{ element.name }}-tick") | {"operation": "CreateIfNotExists"}],
    }
    every = {"name": "tick", "crontab": "* * * * * *", "includeSnapshotsFrom": ["seeds"]}
    shown = seeds(executeHookOnEvent=[])
    await rig.create(hook(rig.namespace, "tick", schedule=[every], kubernetes=[shown], run=tick))
    group = {
        "jq": '.contexts[] | select(.type == "Group") | .snapshots.seeds[].object.metadata.name'
        ' | {operation: "CreateIfNotExists", object: {apiVersion: "v1", kind: "ConfigMap",'
        ' metadata: {name: "\\(.)-group", labels: {"made-by": "hook"}}}}'
    }
    await rig.create(hook(rig.namespace, "group", kubernetes=[seeds(group="all")], run=group))
    await following(rig, "start", "tick", "group")
    await rig.create(seed(rig.namespace, "late"))
    await until(rig, "started", "there-tick", "there-group", "late-group")
    assert (await status_of(rig, "start"))["startedGeneration"] == 1


async def test_a_burst_of_events_shares_requests_and_runs(rig: Rig) -> None:
    run = {"foreach": EACH, "operations": [labelled("{{ element.name }}-copy")]}
    await rig.create(hook(rig.namespace, "burst", kubernetes=[seeds()], run=run))
    await following(rig, "burst")
    await rig.create_all(seed(rig.namespace, f"seed-{number}") for number in range(100))
    await until(rig, *(f"seed-{number}-copy" for number in range(100)))

    async def waiting() -> object:
        status = await status_of(rig, "burst")
        return status if status.get("waiting") or not status.get("runs") else ""

    await rig.settle(waiting, within=10.0)
    status = await status_of(rig, "burst")
    assert status["failed"] == 0
    assert status["runs"] <= 60


async def test_the_data_of_a_secret_is_stored_in_no_request(rig: Rig) -> None:
    binding = seeds() | {"kind": "Secret"}
    copy = {
        "operation": "Create",
        "object": {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "{{ element.metadata.name }}-copy"},
            "data": "{{ element.data }}",
        },
    }
    run = {"foreach": "contexts[?type=='Event'].object", "operations": [copy]}
    await rig.create(hook(rig.namespace, "copy", kubernetes=[binding], run=run))
    await following(rig, "copy")
    meta = {"namespace": rig.namespace, "name": "key", "labels": {"seed": "yes"}}
    await rig.create(
        {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": {"key": "Z2VoZWlt"}}
    )

    async def missing() -> str:
        return "" if await rig.find("Secret", "key-copy") else "not there"

    await rig.settle(missing, within=30.0)
    assert (await rig.get("Secret", "key-copy"))["data"] == {"key": "Z2VoZWlt"}
    stored = rig.cluster.kubectl("get", "ur", "-n", "kyverno", "-o", "yaml")
    assert f"{rig.namespace}/copy" in stored
    assert "Z2VoZWlt" not in stored
    assert State.COMPLETED in stored
