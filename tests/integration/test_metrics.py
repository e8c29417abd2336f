"""The metrics of both programs after some work on a real API server."""

import asyncio
import urllib.request
from collections.abc import Callable, Mapping

import pytest
from prometheus_client.parser import text_string_to_metric_families

from devcluster.programs import ADMISSION, CONTROLLER
from tests.faults.rig import Rig, config_map, rule, target

pytestmark = pytest.mark.cluster

GOT = {"data": {"got": "{{ request.object.metadata.name }}"}}
HIDDEN = "{{ 'Secret' }}"
"""A kind given by a variable, so that policy admission cannot check the rights on it."""
Samples = Callable[..., float]


async def scraped(rig: Rig, program: str) -> Samples:
    """Return a function that sums the samples with a given name and labels."""

    def read() -> str:
        with urllib.request.urlopen(f"{rig.programs.address(program)}/metrics") as answer:
            return str(answer.read().decode())

    text = await asyncio.to_thread(read)
    samples = [item for family in text_string_to_metric_families(text) for item in family.samples]

    def total(name: str, **labels: str) -> float:
        return sum(
            item.value
            for item in samples
            if item.name == f"retrofit_{name}" and labels.items() <= dict(item.labels).items()
        )

    return total


async def until_counted(rig: Rig, name: str, labels: Mapping[str, str], wanted: float) -> Samples:
    total = await scraped(rig, CONTROLLER)

    async def missing() -> str:
        nonlocal total
        total = await scraped(rig, CONTROLLER)
        found = total(name, **labels)
        return "" if found == wanted else f"{name} is {found}"

    await rig.settle(missing, within=15)
    return total


async def test_a_trigger_is_counted_from_recording_to_patched_target(rig: Rig) -> None:
    place = rig.namespace
    immutable = {**config_map(place, "fixed"), "immutable": True}
    await rig.create_all([config_map(place, "target"), immutable])
    await rig.apply(rule(place, [target(place, "target")], GOT))
    for number in range(3):
        await rig.create(config_map(place, f"trigger-{number}"))
        await rig.applied({"target": {"got": f"trigger-{number}"}}, within=15)
    await rig.finish(count=3)
    recorded = await scraped(rig, ADMISSION)
    assert recorded("requests_recorded_total", policy=place, rule="rule", source="admission") == 3
    assert recorded("admission_duration_seconds_count") >= 3
    assert recorded("recording_duration_seconds_count") >= 3
    assert recorded("certificate_expiry_timestamp_seconds") > 0
    of_policy = {"policy": place}
    total = await until_counted(rig, "requests_ended_total", of_policy, 3)
    assert total("requests_ended_total", **of_policy, state="Completed", reason="Applied") == 3
    assert total("targets_total", **of_policy, outcome="Patched") == 3
    assert total("attempts_total", **of_policy, state="Completed") == 3
    assert total("admission_to_patched_seconds_count", **of_policy) == 3
    assert total("leader") == 1
    assert total("policies", state="ready") >= 1
    assert total("api_calls_total", verb="patch", resource="configmaps", code="200") >= 3


async def test_waiting_attempted_and_skipped_requests_are_counted(rig: Rig) -> None:
    place = rig.namespace
    await rig.create({**config_map(place, "s"), "kind": "Secret", "data": {}})
    await rig.apply(rule(place, [target(place, "s", HIDDEN)], GOT))
    await rig.create(config_map(place, "trigger-1"))
    total = await until_counted(rig, "requests_waiting", {"policy": place}, 1)
    assert total("queue_depth") >= 1
    assert total("oldest_waiting_seconds") >= 0
    await rig.parked("Forbidden")
    await until_counted(rig, "attempts_total", {"policy": place, "state": "Pending"}, 1)
    await rig.delete("ClusterPolicy", place, "")
    gone = {"policy": place, "state": "Skip", "reason": "PolicyGone"}
    await until_counted(rig, "requests_ended_total", gone, 1)
    await until_counted(rig, "requests_waiting", {"policy": place}, 0)


async def test_a_sweep_is_counted_by_trigger_and_target(rig: Rig) -> None:
    place = rig.namespace
    await rig.create_all(config_map(place, f"trigger-{number}") for number in range(4))
    own = target(place, "{{ request.object.metadata.name }}")
    await rig.apply(rule(place, [own], GOT), mutateExistingOnPolicyUpdate=True)
    await rig.finish()
    await until_counted(rig, "sweep_triggers_total", {"policy": place, "rule": "rule"}, 4)
    total = await until_counted(rig, "targets_total", {"policy": place, "outcome": "Patched"}, 4)
    assert total("admission_to_patched_seconds_count", policy=place) == 0
