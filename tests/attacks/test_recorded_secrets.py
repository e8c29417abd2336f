"""The Secret with recorded fields is deleted together with its request; no other Secret is."""

import base64
import json
import uuid
from typing import Any

import pytest

from devcluster.install import NAMESPACE
from reconciler.api.meta import (
    ANNOTATION_RETRY_FAILED,
    LABEL_RECORDED,
    Object,
)
from reconciler.api.updaterequest import State
from reconciler.installation import REPLACING
from reconciler.requests.naming import recorded_name
from tests.faults.rig import Rig, config_map, rule, target

pytestmark = pytest.mark.cluster


def secret(request: str, namespace: str, **labels: str) -> Object:
    """Return a Secret with the name under which a request's recorded fields are stored."""
    meta = {"name": recorded_name(request), "namespace": namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta}


def update_request(rig: Rig, name: str) -> Object:
    """Return a request whose spec names a Secret with recorded fields."""
    resource = {"apiVersion": "v1", "kind": "Secret", "namespace": rig.namespace, "name": "gone"}
    return {
        "apiVersion": "kyverno.io/v2",
        "kind": "UpdateRequest",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "requestType": "mutate",
            "policy": rig.namespace,
            "rule": "rule",
            "resource": resource,
            "source": "manual",
            "recordedSecret": recorded_name(name),
        },
    }


async def test_only_a_labelled_secret_is_deleted_with_its_request(rig: Rig) -> None:
    """A Secret with the name for recorded fields, but without their label, is not deleted."""
    ours, other = (f"ur-{uuid.uuid4().hex}" for _ in range(2))
    await rig.create(secret(ours, REPLACING.recorded, **{LABEL_RECORDED: "true"}))
    await rig.create(secret(other, REPLACING.recorded))
    for name in (ours, other):
        await rig.create(update_request(rig, name))
    await rig.finish(2)
    for name in (other, ours):
        await rig.delete("UpdateRequest", name, NAMESPACE)

    async def left() -> Any:
        return await rig.find("Secret", recorded_name(ours), REPLACING.recorded)

    await rig.settle(left, within=15)
    assert await rig.find("Secret", recorded_name(other), REPLACING.recorded)
    await rig.delete("Secret", recorded_name(other), REPLACING.recorded)


async def test_a_retried_request_keeps_its_recorded_fields(rig: Rig) -> None:
    """The retry needs the recorded fields, because the deleted Secret can no longer be read."""
    place = rig.namespace
    gone = {"apiVersion": "v1", "kind": "Secret", "data": {"key": "djE="}}
    gone["metadata"] = {"name": "gone", "namespace": place}
    async with rig.granted("secrets"):
        await rig.create(gone)
        got = {"data": {"got": "{{ request.oldObject.data.key }}"}}
        matched: dict[str, Any] = {"names": "gone", "kinds": ["Secret"], "operations": ["DELETE"]}
        await rig.apply(rule(place, [target(place, "target")], got, **matched))
        await rig.delete("Secret", "gone")
        await rig.finish()
        (failed,) = await rig.requests(state=State.FAILED)
        assert failed.spec.recorded_secret == recorded_name(failed.name)
        await rig.create(config_map(place, "target"))
        again = {"metadata": {"annotations": {ANNOTATION_RETRY_FAILED: "true"}}}
        await rig.merge("UpdateRequest", failed.name, again, namespace=NAMESPACE)
        await rig.applied({"target": {"got": "djE="}}, within=20)
        await rig.finish(2)
        (done,) = await rig.requests(state=State.COMPLETED)
    assert await rig.find("Secret", recorded_name(done.name), REPLACING.recorded)


async def test_fields_recorded_by_an_older_version_are_read_once_that_is_granted(rig: Rig) -> None:
    place, name = rig.namespace, f"ur-{uuid.uuid4().hex}"
    async with rig.granted("secrets"):
        await rig.create(config_map(place, "target"))
        got = {"data": {"got": "{{ request.object.data.key }}"}}
        matched: dict[str, Any] = {"names": "gone", "kinds": ["Secret"], "operations": ["DELETE"]}
        await rig.apply(rule(place, [target(place, "target")], got, **matched))
        gone: Object = {"metadata": {"name": "gone", "namespace": place}, "data": {"key": "djE="}}
        gone |= {"apiVersion": "v1", "kind": "Secret"}
        content = base64.b64encode(json.dumps({"object": gone}).encode()).decode()
        former = secret(name, NAMESPACE, **{LABEL_RECORDED: "true"}) | {
            "data": {"recorded": content}
        }
        await rig.create(former)
        stored = update_request(rig, name)
        info = {"operation": "DELETE", "admissionRequest": {"operation": "DELETE"}}
        stored["spec"] |= {"source": "admission", "context": {"admissionRequestInfo": info}}
        await rig.create(stored)
        waiting = await rig.parked("Forbidden")
        assert waiting.status.missing_permission == f"get secrets in namespace {NAMESPACE}"
        kubectl, on = rig.cluster.kubectl, ("-n", NAMESPACE)
        account = f"--serviceaccount={NAMESPACE}:kube-retrofit-controller"
        kubectl("create", "role", place, "--verb=get,delete", "--resource=secrets", *on)
        kubectl("create", "rolebinding", place, f"--role={place}", account, *on)
        try:
            await rig.applied({"target": {"got": "djE="}}, within=30)
            await rig.finish()
            await rig.delete("UpdateRequest", name, NAMESPACE)

            async def left() -> Any:
                return await rig.find("Secret", recorded_name(name), NAMESPACE)

            await rig.settle(left, within=15)
        finally:
            kubectl("delete", "role,rolebinding", place, *on)
