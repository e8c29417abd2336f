"""Objects as large as the API server stores them do not all come into memory at once."""

from collections import Counter
from pathlib import Path

import pytest

from devcluster.programs import CONTROLLER
from reconciler.api.meta import Object
from reconciler.api.updaterequest import Source, State, UpdateRequest
from reconciler.requests.limits import PAUSED
from tests.faults.rig import Rig, config_map, rule, target

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="reads Linux's /proc"),
]

COUNT, SIZE = 200, 900_000
MIB = 1024 * 1024
MOST = 250 * MIB
"""Of the controller with its defaults, which need 64 MiB for objects; one page would be 180 MB."""


def forget_peak(rig: Rig) -> None:
    """Let the highest memory of the controller begin at what it is now."""
    Path(f"/proc/{pid(rig)}/clear_refs").write_text("5")


def peak(rig: Rig) -> int:
    """Return the highest resident memory of the controller since then, bytes."""
    lines = Path(f"/proc/{pid(rig)}/status").read_text().splitlines()
    found = next(line for line in lines if line.startswith("VmHWM:"))
    return int(found.split()[1]) * 1024


def pid(rig: Rig) -> int:
    return rig.programs.supervision.pids[CONTROLLER]


async def large(rig: Rig) -> None:
    names = (f"trigger-{n}" for n in range(COUNT))
    objects = (config_map(rig.namespace, name, blob="x" * SIZE) for name in names)
    await rig.create_all(_labelled(obj) for obj in objects)


async def test_a_backlog_a_sweep_and_one_list_of_large_objects(rig: Rig) -> None:
    place = rig.namespace
    own = target(place, "{{ request.object.metadata.name }}")
    await rig.apply(rule(place, [own], {"metadata": {"labels": {"seen": "yes"}}}))
    await rig.merge("ClusterPolicy", place, held("true"), namespace="")
    await large(rig)

    forget_peak(rig)
    await rig.merge("ClusterPolicy", place, held(None), namespace="")
    await rig.finish(count=COUNT, within=120)
    found = await rig.requests()
    assert {item.status.state for item in found} == {State.COMPLETED}
    # On a busy machine catch-up may find a trigger before its request is known: that is no harm.
    sources = Counter(item.spec.source for item in found)
    assert sources[Source.ADMISSION] == COUNT, sources
    assert peak(rig) < MOST

    forget_peak(rig)
    await rig.apply(
        rule(place, [own], {"metadata": {"labels": {"swept": "yes"}}}),
        mutateExistingOnPolicyUpdate=True,
    )
    await rig.finish(count=COUNT + 1, within=120)
    assert (await newest(rig)).status.counts.patched == COUNT
    assert peak(rig) < MOST

    forget_peak(rig)
    chosen = {**own, "selector": {"matchLabels": {"size": "large"}}}
    del chosen["name"]
    await rig.apply(
        rule(place, [chosen], {"metadata": {"labels": {"chosen": "yes"}}}, names="one"),
    )
    await rig.create(config_map(place, "one"))
    await rig.finish(count=COUNT + 2, within=120)
    assert (await newest(rig)).status.counts.patched == COUNT
    assert peak(rig) < MOST
    assert rig.running()


async def newest(rig: Rig) -> UpdateRequest:
    return max(await rig.requests(), key=lambda item: item.created)


def held(value: str | None) -> Object:
    return {"metadata": {"annotations": {PAUSED: value}}}


def _labelled(obj: Object) -> Object:
    return {**obj, "metadata": {**obj["metadata"], "labels": {"size": "large"}}}
