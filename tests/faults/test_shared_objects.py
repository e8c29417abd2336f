"""Many triggers for one target: all are applied, in few writes, and no other change is lost."""

import asyncio
import contextlib
from collections import Counter

import pytest

from reconciler.api.updaterequest import State
from reconciler.errors import Conflict, Unavailable
from tests.faults.rig import Rig, config_map, rule, target

pytestmark = pytest.mark.cluster

TRIGGERS = 200
CHANGES = 150


async def test_one_target_gets_the_keys_of_all_triggers(rig: Rig) -> None:
    place = rig.namespace
    await rig.apply(
        rule(place, [target(place, "one")], {"data": {"{{ request.object.metadata.name }}": "x"}})
    )
    await rig.create(config_map(place, "one"))
    names = [f"trigger-{n}" for n in range(TRIGGERS)]
    await rig.create_all(config_map(place, name) for name in names)
    await rig.applied({"one": dict.fromkeys(names, "x")}, within=30)
    await rig.finish(count=TRIGGERS)
    assert await rig.states() == {State.COMPLETED: TRIGGERS}
    assert await rig.calls("patch", "configmaps", name="one") < TRIGGERS // 2


async def test_the_last_of_concurrent_patches_of_a_trigger_is_applied(rig: Rig) -> None:
    place, writers = rig.namespace, 16
    await rig.apply(
        rule(
            place,
            [target(place, "copy")],
            {"data": {"last": "{{ request.object.data.last }}"}},
            operations=["UPDATE"],
        )
    )
    await rig.create_all([config_map(place, "copy"), config_map(place, "trigger-1", last="none")])
    writes = (
        rig.merge("ConfigMap", "trigger-1", {"data": {"last": str(n)}}) for n in range(writers)
    )
    await asyncio.gather(*writes)
    last = (await rig.data("trigger-1"))["last"]
    await rig.applied({"copy": {"last": last}}, within=20)
    await rig.finish(count=writers)
    await rig.applied({"copy": {"last": last}}, within=1)
    for request in await rig.requests():
        state, message = request.status.state, request.status.message
        assert state is State.COMPLETED or (
            state is State.SKIP and message.startswith("same as ur-")
        )


async def test_writers_of_one_trigger_cause_at_most_two_requests_per_change(rig: Rig) -> None:
    place = rig.namespace
    await rig.apply(
        rule(
            place,
            [target(place, "copy")],
            {"data": {"{{ request.object.data.last }}": "x"}},
            operations=["UPDATE"],
        )
    )
    await rig.create_all([config_map(place, "copy"), config_map(place, "trigger-1", last="none")])
    numbers, stored = iter(range(CHANGES)), 0

    async def write() -> None:
        nonlocal stored
        for number in numbers:
            # On a slow machine one writer may lose to the others until its call times out.
            with contextlib.suppress(Unavailable):
                await rig.merge("ConfigMap", "trigger-1", {"data": {"last": str(number)}})
                stored += 1

    await asyncio.gather(*(write() for _ in range(16)))
    # A last write without competition, so that the final state is known despite failed writes.
    await rig.merge("ConfigMap", "trigger-1", {"data": {"last": "end"}})
    await rig.applied({"copy": {"end": "x"}}, within=30)
    await rig.finish(count=stored, within=60)
    found = await rig.requests()
    assert stored < len(found) <= 2 * stored
    # Each replaced version has a request, so few requests had to be recognized as duplicates.
    assert len({item.spec.trigger.resource_version for item in found}) > stored
    assert {item.status.state for item in found} <= {State.COMPLETED, State.SKIP}
    assert Counter(item.status.reason for item in found)["SameAsOther"] <= stored // 10


async def test_no_write_is_lost_while_another_client_keeps_writing_the_target(rig: Rig) -> None:
    place, count = rig.namespace, 40
    await rig.apply(
        rule(place, [target(place, "busy")], {"data": {"{{ request.object.metadata.name }}": "x"}})
    )
    await rig.create(config_map(place, "busy"))
    written = 0

    async def disturb() -> None:
        nonlocal written
        while True:
            # Read, change and write back the whole object, as users' tools do.
            live = await rig.get("ConfigMap", "busy")
            live["data"] = (live.get("data") or {}) | {f"foreign-{written}": "y"}
            with contextlib.suppress(Conflict):
                await rig.replace(live)
                written += 1

    disturbing = asyncio.create_task(disturb())
    names = [f"trigger-{n}" for n in range(count)]
    burst = await rig.burst((config_map(place, name) for name in names), per_second=20)
    assert not burst.refused
    await rig.applied({"busy": dict.fromkeys(names, "x")}, within=30)
    await rig.finish(count=count)

    async def hardly_disturbed() -> str:
        return "" if written > count else f"{written} foreign writes"

    await rig.settle(hardly_disturbed, within=30)
    disturbing.cancel()
    await asyncio.gather(disturbing, return_exceptions=True)
    foreign = {f"foreign-{n}": "y" for n in range(written)}
    assert not await rig.lacking({"busy": foreign | dict.fromkeys(names, "x")})
