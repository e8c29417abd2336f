"""A rule that takes all it may takes it from nobody: not the Lease, not the neighbours' time."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from reconciler.api.meta import Object
from reconciler.api.updaterequest import State
from reconciler.cli.dev.install import NAMESPACE
from reconciler.cli.dev.programs import CONTROLLER
from tests.attacks.roles import Neighbour, Roles
from tests.faults.rig import Rig, config_map, rule, target

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

TRIGGERS = 300
WORTH = 40
"""Triggers of the neighbour while the attack goes on."""
ALLOWED = 512 * 1024
"""Kilobytes of memory that the manifests give the controller."""
HELD = "kube-retrofit-controller"
DATA = {f"k{at}": "x" for at in range(8)}
KEYS = ", ".join(["keys(request.object.data)"] * 100)
SLOW = f"length(map(&parse_json('[1,2,3]'), [{KEYS}][]))"
"""Of all expressions that we know of the one that takes most time for a step."""


def attack(place: str) -> Object:
    """Return a rule whose preconditions take about a second."""
    made = rule(
        place, [target(place, "x")], {"data": {"last": "{{ request.object.metadata.name }}"}}
    )
    condition = {"key": f"{{{{ {SLOW} }}}}", "operator": "GreaterThan", "value": 1}
    return {**made, "preconditions": {"all": [condition] * 40}}


@dataclass(slots=True, kw_only=True)
class Watcher:
    """Sees what an attack does to the controller.

    Attributes:
        gaps: Seconds between two renewals of its Lease, as seen here.
        memory: Kilobytes that it and its children held together.
    """

    rig: Rig
    gaps: list[float] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)
    transitions: set[int] = field(default_factory=set)

    async def look(self) -> None:
        """Look until cancelled."""
        pid = self.rig.programs.supervision.pids[CONTROLLER]
        renewed, since = "", time.monotonic()
        while True:
            spec = (await self.rig.get("Lease", HELD, NAMESPACE))["spec"]
            self.transitions.add(spec["leaseTransitions"])
            now = time.monotonic()
            self.gaps.append(now - since)
            if spec["renewTime"] != renewed:
                renewed, since = spec["renewTime"], now
            self.memory.append(sum(map(_memory, [pid, *_children(pid)])))
            await asyncio.sleep(0.1)


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(item) for item in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _memory(pid: int) -> int:
    # What a child shares with its parent counts once, as the kernel counts it.
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0


@contextlib.asynccontextmanager
async def watched(rig: Rig) -> AsyncIterator[Watcher]:
    watcher = Watcher(rig=rig)
    task = asyncio.create_task(watcher.look())
    try:
        yield watcher
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_slow_triggers_of_a_tenant_hold_up_nobody_else(
    rig: Rig, roles: Roles, neighbour: Neighbour
) -> None:
    place, other = rig.namespace, neighbour.rig
    await rig.create(config_map(place, "x"))
    await rig.apply(attack(place))
    triggers = await other.one_to_one(WORTH)
    seconds: list[float] = []
    async with watched(rig) as watcher:
        await roles.namespace_admin.create_all(
            config_map(place, f"trigger-{at}", **DATA) for at in range(TRIGGERS)
        )
        for trigger in triggers:
            begun = time.monotonic()
            name = trigger["metadata"]["name"]
            await other.create(trigger)
            changed = {f"target-{name.rpartition('-')[2]}": {"got": name}}
            await other.applied(changed, within=20.0)
            seconds.append(time.monotonic() - begun)
    waiting = len(await rig.waiting())
    print(  # noqa: T201 - the figures of the note
        f"slow triggers left {waiting}; neighbour {sorted(seconds)[len(seconds) // 2]:.2f} s,"
        f" at worst {max(seconds):.2f} s; Lease renewed after {max(watcher.gaps):.1f} s;"
        f" {max(watcher.memory) // 1024} MiB"
    )
    assert waiting > TRIGGERS // 2, "the attack was over before it could be measured"
    assert sorted(seconds)[WORTH * 9 // 10] < 2.0, seconds
    assert max(watcher.gaps) < 4.0, "the Lease would have been lost"
    assert len(watcher.transitions) == 1
    assert max(watcher.memory) < ALLOWED
    failed = await rig.requests(state=State.FAILED)
    assert failed == []
