"""Reports on a real API server: written after the change, with few writes and nothing stale."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from devcluster.programs import CONTROLLER
from reconciler.api.meta import Object
from reconciler.installation import REPLACING
from tests.faults.rig import Rig, config_map, rule, target

pytestmark = pytest.mark.cluster

GOT = {"data": {"got": "{{ request.object.metadata.name }}"}}
LOAD = 200


async def until_reported(
    rig: Rig, right: Callable[[list[Object]], object], kind: str = "PolicyReport"
) -> list[Object]:
    """Wait until the report results of the test's policy pass a check, and return them."""
    await rig.learn("wgpolicyk8s.io/v1alpha2", kind)
    place = rig.namespace if kind == "PolicyReport" else ""
    results: list[Object] = []

    async def missing() -> Any:
        report = await rig.find(kind, REPLACING.prefix, place) or {}
        results[:] = [
            item for item in report.get("results") or () if item["policy"] == rig.namespace
        ]
        return None if right(results) else results or "no results"

    await rig.settle(missing, within=30)
    return results


async def test_a_report_has_a_result_per_target_until_its_policy_is_deleted(rig: Rig) -> None:
    place = rig.namespace
    immutable = {**config_map(place, "fixed"), "immutable": True}
    await rig.create_all([config_map(place, "target"), immutable])
    targets = [target(place, "target"), target(place, "fixed")]
    await rig.apply(rule(place, targets, GOT))
    await rig.create(config_map(place, "trigger-1"))
    results = await until_reported(rig, lambda found: len(found) == 2)
    by_name = {item["resources"][0]["name"]: item for item in results}
    passed, failed = by_name["target"], by_name["fixed"]
    assert (passed["result"], passed["rule"]) == ("pass", "rule")
    assert passed["message"] == f"mutated ConfigMap/target in namespace {place}"
    live = await rig.get("ConfigMap", "target")
    assert live["data"] == {"got": "trigger-1"}
    assert passed["resources"][0]["uid"] == live["metadata"]["uid"]
    assert failed["result"] == "error"
    assert "immutable" in failed["message"]
    shown = await rig.get("PolicyReport", REPLACING.prefix)
    assert shown["summary"] == {"pass": 1, "fail": 0, "warn": 0, "error": 1, "skip": 0}
    await rig.delete("ClusterPolicy", place, "")
    await until_reported(rig, lambda found: not found)
    assert await rig.find("PolicyReport", REPLACING.prefix) is None


async def test_unwritten_results_of_a_killed_controller_are_reported_after_restart(
    rig: Rig,
) -> None:
    """The controller is killed when the request has ended, a second before its report is due."""
    place = rig.namespace
    await rig.create(config_map(place, "target"))
    await rig.apply(rule(place, [target(place, "target")], GOT))
    await rig.create(config_map(place, "trigger-1"))
    await rig.finish()
    await rig.kill(CONTROLLER)
    await rig.learn("wgpolicyk8s.io/v1alpha2", "PolicyReport")
    assert await rig.find("PolicyReport", REPLACING.prefix) is None
    await rig.restart(CONTROLLER)
    (result,) = await until_reported(rig, bool)
    assert result["message"] == f"mutated ConfigMap/target in namespace {place}"


async def test_a_cluster_scoped_target_is_in_the_cluster_policy_report(rig: Rig) -> None:
    place = rig.namespace
    own = {"apiVersion": "v1", "kind": "Namespace", "name": place}
    await rig.apply(rule(place, [own], {"metadata": {"labels": {"seen": "yes"}}}))
    await rig.create(config_map(place, "trigger-1"))
    (result,) = await until_reported(rig, bool, kind="ClusterPolicyReport")
    assert result["message"] == f"mutated Namespace/{place}"
    another = {"apiVersion": "v1", "kind": "Namespace", "name": "default"}
    patch = {"metadata": {"annotations": {f"{place}/seen": "{{ request.object.metadata.name }}"}}}
    await rig.apply(rule(place, [own, another], patch))
    await rig.create(config_map(place, "trigger-2"))
    await until_reported(rig, lambda found: len(found) == 2, kind="ClusterPolicyReport")


async def test_a_sweep_reports_a_result_per_target(rig: Rig) -> None:
    place = rig.namespace
    await rig.create_all(config_map(place, f"trigger-{number}") for number in range(3))
    own = target(place, "{{ request.object.metadata.name }}")
    await rig.apply(rule(place, [own], GOT), mutateExistingOnPolicyUpdate=True)
    results = await until_reported(rig, lambda found: len(found) == 3)
    assert {item["result"] for item in results} == {"pass"}


async def test_under_load_reports_are_written_at_most_every_five_seconds(rig: Rig) -> None:
    place = rig.namespace
    await rig.create_all(config_map(place, f"target-{number}") for number in range(LOAD))
    named = target(place, "target-{{ request.object.data.number }}")
    await rig.apply(rule(place, [named], GOT))
    begun = asyncio.get_running_loop().time()
    await rig.burst(
        (config_map(place, f"trigger-{n}", number=str(n)) for n in range(LOAD)), per_second=40
    )
    await rig.finish(count=LOAD, within=80)
    await until_reported(rig, lambda found: len(found) == LOAD)
    seconds = asyncio.get_running_loop().time() - begun
    calls = 0
    for verb in ("get", "create", "update", "delete"):
        calls += await rig.calls(verb, "policyreports")
    # A read and a write, at most every five seconds: 0.01 of a call at 40 triggers per second.
    assert 0 < calls <= 2 * (seconds / 5 + 2)
