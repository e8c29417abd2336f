"""Rules without targets on new and on existing objects, with both programs running."""

from typing import Any

import pytest

from reconciler.api.meta import ANNOTATION_EXISTING, Object
from reconciler.api.updaterequest import Reason, State
from reconciler.errors import ClusterError
from tests.faults.rig import Rig, deployment, pod

pytestmark = pytest.mark.cluster

CONTROLLERS = (
    "replicationcontrollers",
    "replicasets.apps",
    "jobs.batch",
    "cronjobs.batch",
)
"""The Pod controllers on which the test installation grants no rights, unlike on the others."""
RULES = ("sidecar", "autogen-sidecar", "autogen-cronjob-sidecar")
SIDECAR = {"name": "sidecar", "image": "registry.invalid/sidecar"}


def containers(spec: Object) -> set[str]:
    return {item["name"] for item in spec["containers"]}


async def annotate(rig: Rig, value: str) -> None:
    change = {"metadata": {"annotations": {ANNOTATION_EXISTING: value}}}
    await rig.merge("ClusterPolicy", rig.namespace, change, namespace="")


async def phases(rig: Rig, *wanted: str) -> None:
    """Wait until the policy's status lists the phases."""

    async def missing() -> Any:
        found = (await rig.get("ClusterPolicy", rig.namespace, ""))["status"].get("phases")
        return "" if found == list(wanted) else found

    await rig.settle(missing, within=15.0)


async def test_new_pods_and_the_controllers_of_old_ones_get_a_sidecar(rig: Rig) -> None:
    """Setting the annotation later starts a sweep per rule; that of the immutable Pods waits."""
    place = rig.namespace
    await rig.create(deployment(place, "old"))
    await rig.create(pod(place, "old"))
    rule = {
        "name": "sidecar",
        "match": {"any": [{"resources": {"kinds": ["Pod"], "namespaces": [place]}}]},
        "mutate": {"patchStrategicMerge": {"spec": {"containers": [SIDECAR]}}},
    }
    await rig.apply(rule)
    with pytest.raises(ClusterError, match="auth check fails") as refused:
        await annotate(rig, "true")
    assert "update replicasets.apps" in str(refused.value)
    async with rig.granted(*CONTROLLERS):
        await phases(rig, "admission")
        await rig.create(pod(place, "new"))
        assert containers((await rig.get("Pod", "new"))["spec"]) == {"main", "sidecar"}
        old = await rig.get("Deployment", "old")
        assert containers(old["spec"]["template"]["spec"]) == {"main"}
        assert await rig.requests() == []
        await annotate(rig, "true")

        async def swept() -> Any:
            found = {item.spec.rule: item.status for item in await rig.requests()}
            if len(found) < len(RULES):
                return f"only requests of {sorted(found)}"
            held = found["sidecar"].reason == Reason.IMMUTABLE
            done = {found[rule].state for rule in RULES[1:]} == {State.COMPLETED}
            return "" if held and done else found

        await rig.settle(swept, within=30.0)
        old = await rig.get("Deployment", "old")
        assert containers(old["spec"]["template"]["spec"]) == {"main", "sidecar"}
        assert containers((await rig.get("Pod", "old"))["spec"]) == {"main"}
        await phases(rig, "admission", "existing")
        await annotate(rig, "false")
        await phases(rig, "admission")
        await rig.finish(len(RULES))
