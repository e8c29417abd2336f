"""Events on a real API server, as ``kubectl describe`` shows them."""

import asyncio
import signal
from collections.abc import AsyncIterator

import pytest

from devcluster.programs import CONTROLLER
from tests.faults.rig import Rig, config_map, rule, target

pytestmark = pytest.mark.cluster

GOT = {"data": {"got": "{{ request.object.metadata.name }}"}}


async def described(rig: Rig, kind: str, name: str, *wanted: str) -> str:
    """Wait until ``kubectl describe`` shows every text among the events, and return its output."""
    place = () if kind == "cpol" else ("-n", rig.namespace)
    text = ""

    async def missing() -> str:
        nonlocal text
        text = await asyncio.to_thread(rig.cluster.kubectl, "describe", kind, name, *place)
        events = text.partition("Events:")[2]
        return "" if all(item in events for item in wanted) else events

    await rig.settle(missing, within=20)
    return text


@pytest.fixture
async def telling(rig: Rig) -> AsyncIterator[Rig]:
    """The rig with a controller that also records events for successes."""
    # SIGTERM makes the controller release its Lease at once.
    await asyncio.to_thread(rig.programs.kill, CONTROLLER, signal.SIGTERM)
    await rig.controller("--generate-success-events", name="telling")
    yield rig
    await asyncio.to_thread(rig.ensure)


async def test_a_failure_shows_on_policy_trigger_and_target(rig: Rig) -> None:
    place = rig.namespace
    await rig.create({**config_map(place, "fixed"), "immutable": True})
    await rig.apply(rule(place, [target(place, "fixed")], GOT))
    await rig.create(config_map(place, "trigger-1"))
    await described(rig, "cpol", place, "Warning", "PolicyError", "rule rule: ", "immutable")
    of_rule = f"policy {place}, rule rule: "
    await described(rig, "configmap", "trigger-1", "Warning", of_rule, "immutable")
    await described(rig, "configmap", "fixed", "Warning", of_rule, "immutable")


async def test_many_failures_are_one_event_of_the_policy(rig: Rig) -> None:
    place = rig.namespace
    await rig.create({**config_map(place, "fixed"), "immutable": True})
    await rig.apply(rule(place, [target(place, "fixed")], GOT))
    await rig.create_all(config_map(place, f"trigger-{number}") for number in range(20))
    await rig.finish(count=20)
    await described(rig, "cpol", place, "PolicyError")
    events = [
        item
        for item in await rig.items("Event", "")
        if (item["involvedObject"]["kind"], item["involvedObject"]["name"])
        == ("ClusterPolicy", place)
        and item["reason"] == "PolicyError"
    ]
    assert len(events) == 1


async def test_successes_are_events_with_generate_success_events(telling: Rig) -> None:
    rig, place = telling, telling.namespace
    await rig.create(config_map(place, "target"))
    await rig.apply(rule(place, [target(place, "target")], GOT))
    await rig.create(config_map(place, "trigger-1"))
    await described(rig, "cpol", place, "Normal", "PolicyApplied", f"ConfigMap {place}/target")
    await described(rig, "configmap", "target", f"mutated by policy {place}, rule rule")
    await described(rig, "configmap", "trigger-1", "1 target mutated")
