"""A cluster that is restored from a backup while the programs run.

The API server accepts the watches' positions, although they are ahead of all that it stores, and
omits every change until the cluster's version exceeds them. So each program has to end.
"""

import asyncio
import shutil
import signal
from functools import partial
from pathlib import Path

import pytest

from devcluster.cluster import ControlPlane
from devcluster.install import NAMESPACE
from devcluster.programs import ADMISSION, CONTROLLER
from reconciler.api.meta import Object, resource_version
from reconciler.kube.lease import LEASE_NAME
from reconciler.kube.leases import ADMISSION_LEASE
from tests.faults.rig import Rig, config_map, rule, target

pytestmark = pytest.mark.cluster

# Longer than the control plane is away, because a leader that cannot renew its Lease has to exit.
FLAGS = ("--lease-duration=60s", "--lease-renew=50s", "--lease-retry=1s", "--pod-uid=the-same")
LATER = 60
"""Writes after the backup, by which the watches' positions are ahead."""


async def test_programs_end_and_begin_with_what_was_restored(rig: Rig) -> None:
    plane, place = rig.cluster, rig.namespace
    assert isinstance(plane, ControlPlane)
    await asyncio.to_thread(rig.programs.kill, CONTROLLER, signal.SIGTERM)
    await rig.controller(*FLAGS, name="leader")
    await rig.create(config_map(place, "target"))
    await rig.apply(_marking(place, "first"))
    await rig.ready()
    backup = plane.directory / "backup"
    await asyncio.to_thread(_back_up, plane, backup)
    await rig.apply(_marking(place, "lost"))
    await rig.ready()
    for number in range(LATER):
        await rig.create(config_map(place, f"trigger-lost-{number}"))
    await rig.applied({"target": {f"trigger-lost-{LATER - 1}": "lost"}}, within=60)

    # A backup is older than a program's last look at its Lease.
    for lease in (LEASE_NAME, ADMISSION_LEASE):
        await rig.settle(partial(_looked, rig, lease, await _version(rig, lease)), within=30)
    await asyncio.to_thread(_restore, plane, backup)
    # Some are sent before a program has noticed, some while none answers, which are refused.
    between = (config_map(place, f"trigger-between-{number}") for number in range(30))
    sending = asyncio.create_task(rig.burst(between, per_second=10))
    exits = rig.programs.supervision.wait_exit
    for program in (ADMISSION, "leader"):
        assert await asyncio.to_thread(exits, program, 30.0) == 1, program
        said = [line["text"] for line in rig.log(program) if "text" in line]
        assert [text for text in said if "the cluster was restored from a backup" in text]

    # As the kubelet does, in the same Pod.
    await rig.restart(ADMISSION)
    await rig.controller(*FLAGS, name="leader")
    accepted = (await sending).accepted
    await rig.create(config_map(place, "trigger-after"))
    await rig.applied({"target": dict.fromkeys([*accepted, "trigger-after"], "first")}, within=30)
    # This generation was in force before, with another patch.
    await rig.apply(_marking(place, "second"))
    await rig.ready()
    await rig.create(config_map(place, "trigger-second"))
    await rig.applied({"target": {"trigger-second": "second"}}, within=30)


async def _version(rig: Rig, lease: str) -> str:
    return resource_version(await rig.get("Lease", lease, NAMESPACE))


async def _looked(rig: Rig, lease: str, before: str) -> str:
    return "" if await _version(rig, lease) != before else f"{lease} at {before}"


def _marking(place: str, mark: str) -> Object:
    name = "{{ request.object.metadata.name }}"
    return rule(place, [target(place, "target")], {"data": {name: mark}})


def _back_up(plane: ControlPlane, backup: Path) -> None:
    with plane.offline() as data:
        shutil.copytree(data, backup)


def _restore(plane: ControlPlane, backup: Path) -> None:
    with plane.offline() as data:
        shutil.rmtree(data)
        shutil.move(backup, data)
