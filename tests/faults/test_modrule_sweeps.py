"""A ModRule on existing objects changes each once, however often the controller is killed."""

from functools import partial
from typing import Any

import pytest

from devcluster.programs import CONTROLLER
from reconciler.api.meta import ANNOTATION_EXISTING
from reconciler.requests.limits import RATE
from tests.faults.rig import Rig, config_map
from tests.integration.test_modrules import install, labelling, labels

pytestmark = pytest.mark.timeout(300)

COUNT = 800
"""More objects than a page of a list, and enough for all kills to occur before the end."""
KILLS = 3
PACE = "250/s"
"""Slow enough for a kill before the end, on a machine that is busy with other tests."""


async def unlabelled(rig: Rig, name: str) -> str:
    """Return a message until a ConfigMap is changed; sweeps process objects in order of name."""
    return "" if await labels(rig, name) else f"{name} has no label"


async def changed(rig: Rig) -> int:
    """Return how many ConfigMaps of the test's namespace have the rule's label."""
    return len(await rig.items("ConfigMap", label_selector="team=blue"))


async def test_800_objects_are_changed_once_although_the_controller_is_killed_three_times(
    rig: Rig,
) -> None:
    await install(rig, "manifests/dialects/kubemod")
    # One fewer, because the control plane creates a ConfigMap in each namespace.
    await rig.create_all(config_map(rig.namespace, f"it-{n:03}") for n in range(COUNT - 1))
    rule = labelling(rig, annotations={ANNOTATION_EXISTING: "true", RATE: PACE})
    await rig.create(rule)
    for turn in range(KILLS):
        name = f"it-{(turn + 1) * COUNT // (KILLS + 2):03}"
        await rig.settle(partial(unlabelled, rig, name), within=90.0)
        await rig.kill(CONTROLLER)
        assert await changed(rig) < COUNT, "it was killed too late to show anything"
        await rig.restart(CONTROLLER)

    async def left() -> Any:
        figures = (await rig.get("ModRule", "rule"))["status"]["mutateExisting"]
        return "" if figures.get("lastRun") and not figures["pending"] else figures

    await rig.settle(left, within=120.0)
    assert await changed(rig) == COUNT
    # The next controller may repeat a write of the killed one; such a conflict is not counted.
    assert await rig.calls("patch", "configmaps", user=None, code=200) == COUNT
    (request,) = await rig.requests(f"{rig.namespace}/rule")
    assert request.status.sweep is not None
    assert (request.status.sweep.done, request.status.sweep.failed) == (COUNT, 0)
    await rig.delete("ModRule", "rule")
