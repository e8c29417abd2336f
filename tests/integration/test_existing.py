"""Rules without targets on a cluster with both programs at work: what is new, and what exists."""

from typing import Any

import pytest

from reconciler.api.meta import ANNOTATION_EXISTING, Object
from reconciler.api.updaterequest import Reason, State
from tests.faults.rig import Rig, pod

pytestmark = pytest.mark.cluster

SIDECAR = {"name": "sidecar", "image": "registry.invalid/sidecar"}


def deployment(namespace: str, name: str) -> Object:
    labels = {"app": name}
    spec = pod(namespace, name)["spec"]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def containers(spec: Object) -> set[str]:
    return {item["name"] for item in spec["containers"]}


async def annotate(rig: Rig, value: str) -> None:
    change = {"metadata": {"annotations": {ANNOTATION_EXISTING: value}}}
    await rig.merge("ClusterPolicy", rig.namespace, change, namespace="")


async def phases(rig: Rig, *wanted: str) -> None:
    """Wait until the policy's status says when its rules run."""

    async def missing() -> Any:
        found = (await rig.get("ClusterPolicy", rig.namespace, ""))["status"].get("phases")
        return "" if found == list(wanted) else found

    await rig.settle(missing, within=15.0)


async def test_new_pods_and_the_controllers_of_old_ones_get_a_sidecar(rig: Rig) -> None:
    """The annotation comes later: one sweep for each rule, and none for what cannot be changed."""
    place = rig.namespace
    await rig.create(deployment(place, "old"))
    await rig.create(pod(place, "old"))
    rule = {
        "name": "sidecar",
        "match": {"any": [{"resources": {"kinds": ["Pod"], "namespaces": [place]}}]},
        "mutate": {"patchStrategicMerge": {"spec": {"containers": [SIDECAR]}}},
    }
    async with rig.granted("pods", "replicationcontrollers", "jobs.batch"):
        await rig.apply(rule)
        await phases(rig, "admission")
        await rig.create(pod(place, "new"))
        assert containers((await rig.get("Pod", "new"))["spec"]) == {"main", "sidecar"}
        old = await rig.get("Deployment", "old")
        assert containers(old["spec"]["template"]["spec"]) == {"main"}
        assert await rig.requests() == []
        await annotate(rig, "true")

        async def swept() -> Any:
            found = {item.spec.rule: item.status for item in await rig.requests()}
            ended = (
                {
                    "sidecar": found["sidecar"].reason == Reason.IMMUTABLE,
                    "autogen-sidecar": found["autogen-sidecar"].state is State.COMPLETED,
                }
                if len(found) == 3
                else {"requests": False}
            )
            return "" if all(ended.values()) else found

        await rig.settle(swept, within=30.0)
        old = await rig.get("Deployment", "old")
        assert containers(old["spec"]["template"]["spec"]) == {"main", "sidecar"}
        assert containers((await rig.get("Pod", "old"))["spec"]) == {"main"}
        await phases(rig, "admission", "existing")
        await annotate(rig, "false")
        await phases(rig, "admission")
        await rig.finish(3)
