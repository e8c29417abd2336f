"""UpdateRequests written by users, who may request work but not set what programs record."""

import contextlib
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest

from devcluster.install import NAMESPACE
from reconciler.api.meta import ANNOTATION_RETRY, Object
from reconciler.api.updaterequest import State
from reconciler.errors import Denied, Forbidden, Invalid
from reconciler.kube.client import connect
from tests.attacks.roles import Roles
from tests.faults.rig import Rig, config_map, rule, target

pytestmark = pytest.mark.cluster

HASH = "0123456789abcdef" * 2
CA = "kube-retrofit-ca"
_REQUESTS = "updaterequests.kyverno.io"
GOT = {"data": {"got": "{{ request.object.metadata.name }}"}}
FORGED_CONTEXT = {
    "userInfo": {"userInfo": {"username": "root", "groups": ["system:masters"]}},
    "admissionRequestInfo": {"operation": "DELETE"},
}
FORGED_OBJECT = {"object": {"metadata": {"name": "never-existed"}, "data": {"to": "target"}}}


def update_request(rig: Rig, name: str = "", namespace: str = NAMESPACE, **spec: Any) -> Object:
    """Return a request for a trigger, as a user writes it by hand."""
    resource = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "namespace": rig.namespace,
        "name": "trigger-1",
    }
    return {
        "apiVersion": "kyverno.io/v2",
        "kind": "UpdateRequest",
        "metadata": {"name": name or f"by-hand-{uuid.uuid4().hex[:8]}", "namespace": namespace},
        "spec": {
            "requestType": "mutate",
            "policy": rig.namespace,
            "rule": "rule",
            "resource": resource,
            "source": "manual",
        }
        | spec,
    }


async def one_rule(rig: Rig) -> None:
    """Apply the rule that the forged requests name, and create its target."""
    place = rig.namespace
    await rig.create(config_map(place, "target"))
    await rig.apply(rule(place, [target(place, "target")], GOT))


@contextlib.asynccontextmanager
async def person(rig: Rig, *verbs: str, resource: str = _REQUESTS) -> AsyncIterator[Rig]:
    """Yield the rig of a user with rights on requests that no shipped role grants."""
    name = f"person-{uuid.uuid4().hex[:8]}"
    on = ("-n", NAMESPACE)
    kubectl = rig.cluster.kubectl
    listed = ",".join(verbs)
    kubectl("create", "role", name, f"--verb={listed}", f"--resource={resource}", *on)
    kubectl("create", "rolebinding", name, f"--role={name}", f"--user={name}", *on)
    client = await connect(str(rig.cluster.kubeconfig), user=name)
    try:
        yield Rig(rig.cluster, rig.programs, client, rig.namespace)
    finally:
        await client.close()
        kubectl("delete", "role,rolebinding", name, *on)


@pytest.mark.parametrize(
    "spec",
    [
        {"source": "admission"},
        {"source": "policyChange"},
        {"source": "catchUp"},
        {"context": FORGED_CONTEXT},
        {"recorded": FORGED_OBJECT},
        {"trigger": {"resourceVersion": "1"}},
        {"unless": ["other"]},
        {"sequence": 3},
    ],
    ids=lambda spec: "-".join(map(str, spec.values()))[:20],
)
async def test_an_operator_cannot_set_fields_that_only_the_programs_record(
    rig: Rig, roles: Roles, spec: Object
) -> None:
    with pytest.raises(Denied, match="kube-retrofit's own programs"):
        await roles.request_operator.create(update_request(rig, **spec))


async def test_a_request_made_by_an_older_retry_command_is_refused_with_advice(
    rig: Rig, roles: Roles
) -> None:
    copied = update_request(rig, source="manual", context=FORGED_CONTEXT)
    with pytest.raises(Denied, match="older than the controller writes them itself: install"):
        await roles.request_operator.create(copied)


async def test_an_operator_cannot_forge_a_request_as_kyverno_leaves_it(
    rig: Rig, roles: Roles
) -> None:
    forged = update_request(rig, context=FORGED_CONTEXT)
    del forged["spec"]["source"]
    with pytest.raises(Denied, match="the other sources are reserved"):
        await roles.request_operator.create(forged)


async def test_a_request_must_name_the_policy_of_its_policy_ref(rig: Rig, roles: Roles) -> None:
    ref = {"apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "name": "another"}
    with pytest.raises(Denied, match=r"spec\.policy must name the policy of spec\.policyRef"):
        await roles.request_operator.create(update_request(rig, policyRef=ref))
    await roles.request_operator.create(
        update_request(rig, policyRef=ref | {"name": rig.namespace})
    )


@pytest.mark.parametrize("name", [f"ur-{HASH}", f"sweep-{HASH}"])
async def test_an_operator_cannot_use_a_name_reserved_for_the_programs(
    rig: Rig, roles: Roles, name: str
) -> None:
    with pytest.raises(Denied, match="names of this form"):
        await roles.request_operator.create(update_request(rig, name))


async def test_a_request_cannot_name_a_secret_other_than_its_own(rig: Rig, roles: Roles) -> None:
    for writer in (rig, roles.request_operator):
        with pytest.raises((Denied, Invalid)):
            await writer.create(update_request(rig, recordedSecret=CA))
    assert await rig.get("Secret", CA, NAMESPACE)


@pytest.mark.parametrize("missing", ["name", "kind"])
async def test_a_request_without_a_complete_trigger_is_refused(
    rig: Rig, roles: Roles, missing: str
) -> None:
    forged = update_request(rig)
    del forged["spec"]["resource"][missing]
    for writer in (rig, roles.request_operator):
        with pytest.raises(Invalid):
            await writer.create(forged)


async def test_an_operator_may_create_a_request_and_retry_it(rig: Rig, roles: Roles) -> None:
    await one_rule(rig)
    await rig.finish(0)
    operator = roles.request_operator
    asked = await operator.create(update_request(rig))
    await rig.finish()
    (request,) = await rig.requests()
    assert (request.name, request.status.reason) == (asked["metadata"]["name"], "TriggerGone")
    assert "got" not in await rig.data("target")
    await rig.create(config_map(rig.namespace, "trigger-1"))
    await rig.applied({"target": {"got": "trigger-1"}}, within=15)
    marks = {"metadata": {"annotations": {ANNOTATION_RETRY: "now"}}}
    await operator.merge("UpdateRequest", request.name, marks, namespace=NAMESPACE)


async def test_an_operator_cannot_raise_the_sequence_of_a_request_or_set_its_owner(
    rig: Rig, roles: Roles
) -> None:
    operator = roles.request_operator
    stored = await operator.create(update_request(rig))
    name = stored["metadata"]["name"]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "never", "uid": str(uuid.uuid4())}
    for patch, said in (
        ({"spec": {"sequence": 5}}, "only kube-retrofit's own programs may raise it"),
        ({"metadata": {"ownerReferences": [owner]}}, "cannot have an owner"),
    ):
        with pytest.raises(Denied, match=said):
            await operator.merge("UpdateRequest", name, patch, namespace=NAMESPACE)
    await rig.finish(1)
    assert await rig.get("UpdateRequest", name, NAMESPACE)


async def test_only_the_controller_sets_the_status_of_a_request(rig: Rig, roles: Roles) -> None:
    await one_rule(rig)
    await rig.pause()
    await rig.create(config_map(rig.namespace, "trigger-1"))
    (request,) = await rig.requests()
    ended = {"status": {"state": "Completed"}}
    where: Any = {"namespace": NAMESPACE, "subresource": "status"}
    with pytest.raises(Forbidden):
        await roles.request_operator.merge("UpdateRequest", request.name, ended, **where)
    async with person(rig, "get", "patch", "update", resource=f"{_REQUESTS}/status") as other:
        with pytest.raises(Denied, match="written by the controller alone"):
            await other.merge("UpdateRequest", request.name, ended, **where)
    assert [item.status.state for item in await rig.requests()] == [State.PENDING]


async def test_full_rights_on_requests_do_not_allow_forged_fields(rig: Rig) -> None:
    async with person(rig, "create", "delete", "get", "list", "patch", "update") as writer:
        for spec in ({"source": "admission"}, {"context": FORGED_CONTEXT}, {"sequence": 1}):
            with pytest.raises(Denied):
                await writer.create(update_request(rig, **spec))


async def test_a_request_in_a_tenants_namespace_does_nothing(rig: Rig) -> None:
    place = rig.namespace
    await rig.create_all(config_map(place, f"target-trigger-{number}") for number in (1, 2))
    each = target(place, "target-{{ request.object.metadata.name }}")
    await rig.apply(rule(place, [each], GOT, operations=["CREATE", "DELETE"]))
    forged = update_request(
        rig,
        namespace=place,
        source="admission",
        context=FORGED_CONTEXT,
        recorded={"object": {"metadata": {"name": "trigger-1"}}},
    )
    # Simulate a tenant who is allowed to write requests in their namespace.
    stored = await rig.create(forged)
    # A later real request is completed, so the forged one would have been processed by now.
    await rig.create(config_map(place, "trigger-2"))
    await rig.finish()
    assert await rig.data("target-trigger-2") == {"got": "trigger-2"}
    assert await rig.data("target-trigger-1") == {}
    left = await rig.get("UpdateRequest", stored["metadata"]["name"], place)
    assert (left.get("status") or {}).get("state", "Pending") == "Pending"
    assert not (left.get("status") or {}).get("attempts")
