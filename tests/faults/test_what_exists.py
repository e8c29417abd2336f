"""Rules without targets on existing objects: one change per object, no useless writes."""

from functools import partial
from typing import Any

from devcluster.programs import CONTROLLER
from reconciler.api.meta import ANNOTATION_EXISTING, Object
from reconciler.api.updaterequest import Reason, State, UpdateRequest
from reconciler.requests.limits import RATE
from tests.faults.rig import Rig, deployment, pod

COUNT = 500
PACE = {RATE: "250/s"}
"""Slow enough for a kill before the end, on a machine that is busy with other tests."""
AUTOGEN = "pod-policies.kyverno.io/autogen-controllers"


async def write(rig: Rig, kind: str, patch: Object, **annotations: str) -> None:
    """Create the test's policy, with one rule for a kind, and wait until it is Ready."""
    resources = {"kinds": [kind], "namespaces": [rig.namespace]}
    rule = {
        "name": "rule",
        "match": {"any": [{"resources": resources}]},
        "mutate": {"patchStrategicMerge": patch},
    }
    marks = {AUTOGEN: "none", ANNOTATION_EXISTING: "true", **annotations}
    policy = {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": rig.namespace, "annotations": marks},
        "spec": {"rules": [rule]},
    }
    await rig.create(policy)
    await rig.ready()


async def only_request(rig: Rig) -> UpdateRequest:
    """Return the only request of the policy."""
    (request,) = await rig.requests()
    return request


async def test_500_deployments_are_changed_once_although_the_controller_is_killed(
    rig: Rig,
) -> None:
    place = rig.namespace
    await rig.create_all(deployment(place, f"web-{number:03}") for number in range(COUNT))
    patch = {"metadata": {"annotations": {"foo": "bar"}}, "spec": {"revisionHistoryLimit": 3}}
    await write(rig, "Deployment", patch, **PACE)
    await rig.settle(partial(_unchanged, rig, f"web-{COUNT // 8:03}"), within=30.0)
    await rig.kill(CONTROLLER)
    done = sum(_is_changed(item) for item in await rig.items("Deployment"))
    assert done < COUNT, "it was killed too late to show anything"
    await rig.restart(CONTROLLER)

    async def left() -> Any:
        request = await only_request(rig)
        return "" if request.status.state is State.COMPLETED else request.status

    await rig.settle(left, within=60.0)
    found = await rig.items("Deployment")
    assert len(found) == COUNT
    assert all(map(_is_changed, found))
    # Each change of the spec increments the generation, so it shows the number of writes.
    assert {item["metadata"]["generation"] for item in found} == {2}
    request = await only_request(rig)
    assert request.status.sweep is not None
    assert (request.status.sweep.done, request.status.sweep.failed) == (COUNT, 0)
    policy = await rig.get("ClusterPolicy", place, "")
    assert policy["status"]["phases"] == ["admission", "existing"]
    assert policy["status"]["mutateExisting"]["onExisting"] is True


async def _unchanged(rig: Rig, name: str) -> str:
    """Return a message until a Deployment is changed; sweeps process objects in order of name."""
    return "" if _is_changed(await rig.get("Deployment", name)) else f"{name} is as it was"


def _is_changed(deployment: Object) -> bool:
    return (deployment["metadata"].get("annotations") or {}).get("foo") == "bar"


async def test_immutable_fields_of_500_pods_are_reported_in_one_message(rig: Rig) -> None:
    place = rig.namespace
    await rig.create_all(pod(place, f"pod-{number:03}") for number in range(COUNT))
    before = {item["metadata"]["name"]: item for item in await rig.items("Pod")}
    sidecar = {"name": "sidecar", "image": "registry.invalid/sidecar"}
    await write(rig, "Pod", {"spec": {"containers": [sidecar]}})

    async def held() -> Any:
        request = await only_request(rig)
        return "" if request.status.reason == Reason.IMMUTABLE else request.status

    await rig.settle(held, within=30.0)
    request = await only_request(rig)
    assert request.status.message.startswith("no Pod is changed, because the API server")
    assert "pod updates may not" in request.status.message
    assert {item["metadata"]["name"]: item for item in await rig.items("Pod")} == before

    async def said() -> Any:
        figures = (await rig.get("ClusterPolicy", place, ""))["status"]["mutateExisting"]
        return "" if "it waits: no Pod is changed" in figures.get("message", "") else figures

    await rig.settle(said, within=15.0)
    # The author changes the match, and the sweep ends.
    spec = (await rig.get("ClusterPolicy", place, ""))["spec"]
    spec["rules"][0]["match"]["any"][0]["resources"]["names"] = ["none"]
    await rig.apply(*spec["rules"])
    await rig.finish(2)
