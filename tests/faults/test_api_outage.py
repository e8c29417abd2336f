"""An outage of the API server while requests are processed."""

import asyncio
import signal

import pytest

from devcluster.cluster import ControlPlane
from devcluster.programs import ADMISSION, CONTROLLER
from tests.faults.rig import Rig, config_map, rule, target

pytestmark = pytest.mark.cluster

TRIGGERS = 90
# Longer than the outage, because a leader that cannot renew its Lease has to exit.
PATIENT = ("--lease-duration=60s", "--lease-renew=50s", "--lease-retry=1s")


async def test_no_stored_trigger_is_lost_and_no_program_exits(rig: Rig) -> None:
    assert isinstance(rig.cluster, ControlPlane)
    place = rig.namespace
    await asyncio.to_thread(rig.programs.kill, CONTROLLER, signal.SIGTERM)
    await rig.controller(*PATIENT, name="patient")
    triggers = await rig.one_to_one(TRIGGERS)
    sending = asyncio.create_task(rig.burst(triggers, per_second=15))

    await rig.completed(TRIGGERS // 9, within=20)
    await asyncio.to_thread(rig.cluster.kill_apiserver)
    await asyncio.sleep(3.0)
    await asyncio.to_thread(rig.cluster.start_apiserver)
    burst = await sending
    assert burst.refused
    # An answer may have been lost, so every stored trigger counts as accepted.
    stored = [
        item["metadata"]["name"]
        for item in await rig.items("ConfigMap")
        if item["metadata"]["name"].startswith("trigger-")
    ]
    assert set(burst.accepted) <= set(stored)
    got = {f"target-{name.rpartition('-')[2]}": {"got": name} for name in stored}
    await rig.applied(got, within=40)
    await rig.create(config_map(place, "trigger-after", n="0"))
    await rig.applied({"target-0": {"got": "trigger-after"}}, within=20)
    exits = rig.programs.supervision.exit_code
    assert (exits(ADMISSION), exits("patient")) == (None, None)


async def test_a_policy_acts_at_once_after_an_outage(rig: Rig) -> None:
    assert isinstance(rig.cluster, ControlPlane)
    place = rig.namespace
    await asyncio.to_thread(rig.programs.kill, CONTROLLER, signal.SIGTERM)
    await rig.controller(*PATIENT, name="calm")
    await rig.create(config_map(place, "target"))
    await asyncio.to_thread(rig.cluster.kill_apiserver)
    await asyncio.sleep(3.0)
    await asyncio.to_thread(rig.cluster.start_apiserver)
    await rig.apply(
        rule(
            place, [target(place, "target")], {"data": {"{{ request.object.metadata.name }}": ""}}
        )
    )
    # Once the policy is Ready, no trigger may be missed.
    names = [f"trigger-{n}" for n in range(20)]
    await rig.create_all(config_map(place, name) for name in names)
    await rig.applied({"target": dict.fromkeys(names, "")}, within=15)
