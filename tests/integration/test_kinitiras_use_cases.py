"""The use cases of kinitiras policies, all applied together, on objects applied with kubectl."""

from typing import Any

import pytest

from reconciler.api.meta import Object
from reconciler.errors import ClusterError
from tests.faults.rig import Rig, config_map, deployment, pod
from tests.integration.test_kinitiras import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    LABELS,
    PODS,
    kubectl,
    labelled,
    overriding,
    policies,
    policy,
    ready,
)

pytestmark = pytest.mark.cluster

__all__ = ["policies"]

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
ZONES = {"key": "zone", "operator": "In", "values": ["a", "b"]}
NODES = {"nodeSelectorTerms": [{"matchExpressions": [ZONES]}]}
SPREAD = {
    "maxSkew": 1,
    "topologyKey": "zone",
    "whenUnsatisfiable": "ScheduleAnyway",
    "labelSelector": {"matchLabels": {"app": "web"}},
}


def template(type_: str, operation: str = "add", **fields: Any) -> Object:
    return {"template": {"type": type_, "operation": operation, **fields}}


SHAPES: list[Object] = [
    template("labels", "replace", path="team", value={"string": "blue"}),
    template("annotations", value={"stringMap": {"example.com/by": "policy", "plain": "x"}}),
    template("annotations", "remove", path="gone"),
    template(
        "annotations",
        path="from-label",
        valueRef={"from": "current", "path": "/metadata/labels/team"},
    ),
    template("resources", "replace", resources={"limits": {"cpu": "2", "memory": "1Gi"}}),
    template(
        "resourcesOversell",
        "replace",
        resourcesOversell={"cpuFactor": "0.25", "memoryFactor": "0.5"},
    ),
    template("affinity", affinity={"nodeAffinity": {_REQUIRED: NODES}}),
    {
        "origin": [
            {"type": "nodeSelector", "nodeSelector": {"disk": "ssd"}},
            {"type": "schedulerName", "schedulerName": "slow"},
            {"type": "topologySpreadConstraints", "topologySpreadConstraints": [SPREAD]},
        ],
        "plaintext": [
            {"op": "replace", "path": "/spec/terminationGracePeriodSeconds", "value": 5},
            {"op": "add", "path": "/spec/containers/0/args", "value": ["-v"]},
        ],
    },
]


def condition(operations: tuple[str, ...], **fields: Any) -> Object:
    template = {"type": "condition", "condition": {"affectMode": "reject", **fields}}
    return {"targetOperations": list(operations), "template": template}


def refusing(rig: Rig, name: str, select: Object, *rules: Object) -> Object:
    selectors = [{**select, "namespace": rig.namespace}]
    spec = {"resourceSelectors": selectors, "validateRules": list(rules)}
    return policy(rig, "ClusterValidatePolicy", name, spec)


async def test_one_policy_with_every_form_of_override_changes_a_pod(policies: Rig) -> None:
    rig, place = policies, policies.namespace
    shapes = overriding(rig, "shapes", *SHAPES, select=PODS, operations=("CREATE",))
    await kubectl(rig, "apply", "-f", "-", stdin=shapes)
    await ready(rig, shapes)
    written = labelled(pod(place, "web"), app="web")
    written["metadata"]["annotations"] = {"gone": "soon", "kept": "yes"}
    await kubectl(rig, "apply", "-f", "-", stdin=written)
    made = await rig.get("Pod", "web")
    meta, spec = made["metadata"], made["spec"]
    assert meta["labels"] == {**LABELS, "app": "web", "team": "blue"}
    annotations = {**meta["annotations"]}
    del annotations["kubectl.kubernetes.io/last-applied-configuration"]
    assert annotations == {
        "kept": "yes",
        "example.com/by": "policy",
        "plain": "x",
        "from-label": "blue",
    }
    (container,) = spec["containers"]
    assert container["args"] == ["-v"]
    assert container["resources"] == {
        "limits": {"cpu": "2", "memory": "1Gi"},
        "requests": {"cpu": "500m", "memory": "512Mi"},
    }
    assert spec["affinity"] == {"nodeAffinity": {_REQUIRED: NODES}}
    assert spec["nodeSelector"] == {"disk": "ssd"}
    assert spec["topologySpreadConstraints"] == [SPREAD]
    assert (spec["schedulerName"], spec["terminationGracePeriodSeconds"]) == ("slow", 5)


async def test_policies_refuse_objects_with_every_form_of_condition(policies: Rig) -> None:
    rig, place = policies, policies.namespace
    limits = config_map(place, "limits", most="3")
    await rig.create(limits)
    by_name = {**CONFIG_MAPS, "namespace": place, "name": "limits"}
    replicas = {"from": "current", "path": "/spec/replicas"}
    before = {"from": "old", "path": "/spec/replicas"}
    half = {"operation": "*", "operationWith": "50%"}
    rules = (
        condition(("CREATE",), cond="Gt", dataRef=replicas, value={"integer": 9}, message="many"),
        condition(
            ("UPDATE",),
            cond="Lt",
            dataRef=replicas,
            valueRef=before,
            valueProcess=half,
            message="by more than half",
        ),
        condition(
            ("DELETE",),
            cond="Equal",
            dataRef={"from": "current", "path": "/metadata/labels/keep"},
            value={"string": "yes"},
            message="kept",
        ),
    )
    allowed = condition(
        ("CREATE", "UPDATE"),
        cond="In",
        dataRef={"from": "current", "path": "/data/level"},
        value={"stringSlice": ["low", "high"]},
        message="low or high",
    )
    allowed["template"]["condition"]["affectMode"] = "allow"
    known = condition(
        ("CREATE",),
        cond="NotEqual",
        dataRef={"from": "current", "path": "/data/most"},
        valueRef={"from": "k8s", "path": "/data/most", "k8s": by_name},
        message="not as limits has it",
    )
    for written in (
        refusing(rig, "replicas", DEPLOYMENTS, *rules),
        refusing(rig, "levels", CONFIG_MAPS, allowed, known),
    ):
        await kubectl(rig, "apply", "-f", "-", stdin=written)
        await ready(rig, written)

    def web(replicas: int, name: str = "web") -> Object:
        made = labelled(deployment(place, name), keep="yes")
        made["spec"]["replicas"] = replicas
        return made

    async def applied(obj: Object, wanted: str = "") -> None:
        if not wanted:
            await kubectl(rig, "apply", "-f", "-", stdin=obj)
            return
        with pytest.raises(ClusterError, match=wanted):
            await kubectl(rig, "apply", "-f", "-", stdin=obj)

    await applied(web(10), "replicas: many")
    await applied(web(8))
    await applied(web(3), "replicas: by more than half")
    await applied(web(4))
    with pytest.raises(ClusterError, match="replicas: kept"):
        await rig.delete("Deployment", "web")
    await applied(labelled(config_map(place, "a", level="mid")), "levels: low or high")
    await applied(labelled(config_map(place, "a", level="low")))
    await applied(labelled(config_map(place, "b", level="low", most="4")), "not as limits has it")
    await applied(labelled(config_map(place, "b", level="low", most="3")))
    await rig.merge("Deployment", "web", {"metadata": {"labels": {"keep": "no"}}})
    await rig.delete("Deployment", "web")
