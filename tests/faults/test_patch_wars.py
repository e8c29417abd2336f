"""The programs' own writes, chains of rules, and patch wars."""

import asyncio
import contextlib
from typing import Any

import pytest

from reconciler.api.meta import Object
from reconciler.api.updaterequest import Reason, State
from reconciler.errors import Conflict
from tests.faults.rig import BACKGROUND, Rig, config_map, rule, target

pytestmark = pytest.mark.cluster

COPY = {"data": {"n": "{{ request.object.data.n }}"}}
LONGER = {"data": {"n": "{{ request.object.data.n }}x"}}


def step(place: str, begin: str, end: str, patch: Object = COPY, **more: Any) -> Object:
    """Return a rule by which a change of one ConfigMap changes another."""
    return rule(place, [target(place, end)], patch, names=begin, name=f"{begin}-{end}", **more)


async def asked(rig: Rig, name: str) -> list[str]:
    """Return the users whose writes triggered a rule, oldest request first."""
    found = [item for item in await rig.requests() if item.spec.rule == name]
    found.sort(key=lambda item: item.created)
    return [item.spec.user["userInfo"]["username"] for item in found]


async def test_an_own_write_triggers_only_rules_that_opt_in(rig: Rig) -> None:
    place = rig.namespace
    await rig.create_all(config_map(place, name, n="0") for name in ("b", "c", "d"))
    await rig.apply(
        step(place, "a", "b"),
        step(place, "b", "c"),
        step(place, "b", "d", skipBackgroundRequests=False),
    )
    await rig.create(config_map(place, "a", n="1"))
    await rig.applied({"b": {"n": "1"}, "d": {"n": "1"}}, within=20)
    # Requests are recorded before a write is stored, so no further request can follow.
    assert await asked(rig, "b-c") == []
    assert await asked(rig, "b-d") == [BACKGROUND]
    assert await rig.data("c") == {"n": "0"}
    await rig.merge("ConfigMap", "b", {"data": {"n": "2"}})
    await rig.applied({"c": {"n": "2"}, "d": {"n": "2"}}, within=20)
    assert len(await asked(rig, "b-c")) == 1


async def test_rules_that_trigger_each_other_stop_once_their_targets_agree(rig: Rig) -> None:
    place = rig.namespace
    await rig.create(config_map(place, "b", n="0"))
    await rig.apply(
        step(place, "a", "b", skipBackgroundRequests=False),
        step(place, "b", "a", skipBackgroundRequests=False),
    )
    await rig.create(config_map(place, "a", n="1"))
    await rig.applied({"b": {"n": "1"}}, within=20)
    await rig.finish(count=2)
    await rig.merge("ConfigMap", "b", {"data": {"n": "2"}})
    await rig.applied({"a": {"n": "2"}}, within=20)
    await rig.finish(count=4)
    assert await rig.states() == {State.COMPLETED: 4}
    assert await rig.calls("patch", "configmaps") == 2


async def test_rules_in_an_endless_loop_are_stopped_and_other_rules_continue(rig: Rig) -> None:
    place = rig.namespace
    await rig.create_all(config_map(place, name, n="") for name in ("b", "other"))
    await rig.apply(
        step(place, "a", "b", LONGER, skipBackgroundRequests=False),
        step(place, "b", "a", LONGER, skipBackgroundRequests=False),
        step(place, "trigger-1", "other"),
    )
    await rig.create(config_map(place, "a", n=""))
    request = await rig.parked(Reason.PATCH_WAR, within=30)
    assert (
        "because of kube-retrofit's own writes, which lead back here by rule"
        in request.status.message
    )
    assert request.status.next_attempt is not None
    length = len((await rig.data("a"))["n"])
    assert 10 <= length <= 30
    await rig.create(config_map(place, "trigger-1", n="1"))
    await rig.applied({"other": {"n": "1"}}, within=20)

    about = {(place, request.status.targets[0].ref.name), ("default", rig.namespace)}

    async def untold() -> set[tuple[str, str]]:
        return about - {
            (space, item["involvedObject"]["name"])
            for space in (place, "default")
            for item in await rig.items("Event", space)
            if "pauses here until" in item["message"]
        }

    await rig.settle(untold, within=10)


async def test_a_patch_war_names_the_other_writer_and_ends_when_it_stops(rig: Rig) -> None:
    place = rig.namespace
    await rig.create(config_map(place, "fought", color="blue"))
    red = {"data": {"color": "red"}}
    await rig.apply(rule(place, [target(place, "fought")], red, names="fought"))

    async def paint() -> None:
        # Behave like a controller that enforces its own value.
        while True:
            live = await rig.get("ConfigMap", "fought")
            if live["data"]["color"] == "red":
                live["data"]["color"] = "blue"
                with contextlib.suppress(Conflict):
                    await rig.replace(live, manager="painter")
            await asyncio.sleep(0.02)

    await rig.merge("ConfigMap", "fought", {"data": {"begin": "now"}})
    painting = asyncio.create_task(paint())
    try:
        request = await rig.parked(Reason.PATCH_WAR, within=30)
        status = request.status
        assert "/data/color was undone 10 times within 15s" in status.message
        assert "check manager painter, which wrote at " in status.message
        assert await rig.data("fought") == {"color": "blue", "begin": "now"}
    finally:
        painting.cancel()
        await asyncio.gather(painting, return_exceptions=True)
    await rig.applied({"fought": red["data"]}, within=30)
    assert (await rig.get("ConfigMap", "fought"))["data"]["begin"] == "now"
