"""Policies that name a ServiceAccount use the rights of that account, and no others."""

import asyncio
from itertools import product
from typing import Any

import pytest

from devcluster.install import NAMESPACE
from reconciler.api.meta import ANNOTATION_SERVICE_ACCOUNT, Object
from reconciler.api.updaterequest import State
from reconciler.errors import ClusterError
from tests.attacks.roles import Neighbour, Roles
from tests.faults.rig import BACKGROUND, Rig, config_map, rule, target

pytestmark = pytest.mark.cluster

RBAC = "rbac.authorization.k8s.io"
NAME = "worker"
VERBS = ("get", "list", "patch", "update")
CONFIG_MAPS = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "update", "patch"]}
SERVICES = {"apiGroups": [""], "resources": ["services"], "verbs": ["list"]}
IMPERSONATE = {
    "apiGroups": [""],
    "resources": ["serviceaccounts"],
    "resourceNames": [NAME],
    "verbs": ["impersonate"],
}
WORKER = {"kind": "ServiceAccount", "name": NAME}
CONTROLLER = {
    "kind": "ServiceAccount",
    "name": "kube-retrofit-controller",
    "namespace": NAMESPACE,
}


async def permit(rig: Rig, name: str, granted: Object, subject: Object) -> None:
    """Grant a right in the rig's namespace."""
    for kind in ("Role", "RoleBinding"):
        await rig.learn(f"{RBAC}/v1", kind)
    meta = {"name": name, "namespace": rig.namespace}
    home = {"namespace": rig.namespace} if subject["kind"] == "ServiceAccount" else {}
    await rig.create(
        {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": meta, "rules": [granted]}
    )
    await rig.create(
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": name},
            "subjects": [{**home, **subject}],
        }
    )


async def employ(rig: Rig) -> str:
    """Create an account that policies of the namespace may use, and return its user name."""
    await rig.learn("v1", "ServiceAccount")
    meta = {"name": NAME, "namespace": rig.namespace}
    await rig.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta})
    await permit(rig, "works", CONFIG_MAPS, WORKER)
    await permit(rig, "speaks", IMPERSONATE, CONTROLLER)
    return f"system:serviceaccount:{rig.namespace}:{NAME}"


def policy(place: str, made: Object, account: str = NAME) -> Object:
    """Return a Policy that uses an account."""
    del made["match"]["any"][0]["resources"]["namespaces"]
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "Policy",
        "metadata": {
            "name": place,
            "namespace": place,
            "annotations": {ANNOTATION_SERVICE_ACCOUNT: account},
        },
        "spec": {"rules": [made]},
    }


def cluster_policy(place: str, account: str) -> Object:
    """Return a ClusterPolicy that changes one ConfigMap with an account's rights."""
    made = policy(place, simple(place), account)
    made["kind"] = "ClusterPolicy"
    del made["metadata"]["namespace"]
    made["spec"]["rules"][0]["match"]["any"][0]["resources"]["namespaces"] = [place]
    return made


def simple(place: str, **more: Any) -> Object:
    """Return a rule that changes one ConfigMap."""
    return rule(place, [target(place, "target")], {"data": {"got": "it"}}, **more)


async def refusal(rig: Rig, made: Object) -> str:
    """Return the error with which a policy is refused."""
    with pytest.raises(ClusterError) as refused:
        await rig.create(made)
    return str(refused.value)


@pytest.fixture
async def worker(rig: Rig) -> str:
    """The user name of an account of the attacked namespace."""
    return await employ(rig)


async def test_each_policy_acts_only_as_its_own_account(
    rig: Rig, neighbour: Neighbour, worker: str
) -> None:
    other = neighbour.rig
    accounts = {rig.namespace: worker, other.namespace: await employ(other)}
    for tenant in (rig, other):
        await tenant.create(policy(tenant.namespace, simple(tenant.namespace)))
        await tenant.ready("Policy")
        await tenant.create(config_map(tenant.namespace, "target"))
        await tenant.create(config_map(tenant.namespace, "trigger-1"))
    for tenant in (rig, other):
        place = tenant.namespace
        await tenant.finish(policy=f"{place}/{place}")
        assert await tenant.data("target") == {"got": "it"}
        for verb, name in (("get", "trigger-1"), ("get", "target"), ("patch", "target")):
            made = await tenant.calls(verb, "configmaps", name=name)
            assert made > 0
            own = await tenant.calls(verb, "configmaps", name=name, user=accounts[place])
            assert own == made
        foreign = {BACKGROUND, *accounts.values()} - {accounts[place]}
        # Catch-up lists metadata once for all policies.
        for user, verb in set(product(foreign, VERBS)) - {(BACKGROUND, "list")}:
            assert await tenant.addresses(verb, "configmaps", user=user) == []


async def test_an_account_needs_its_own_grant_for_a_right_that_other_policies_have(
    rig: Rig, worker: str
) -> None:
    place, key = rig.namespace, f"{rig.namespace}/{rig.namespace}"
    call = {"urlPath": f"/api/v1/namespaces/{place}/{{{{ request.object.data.what }}}}"}
    entry = {"name": "got", "apiCall": {**call, "jmesPath": "kind"}}
    made = simple(place, context=[entry])
    made["mutate"]["patchStrategicMerge"] = {"data": {"got": "{{ got }}"}}
    await rig.create(policy(place, made))
    await rig.ready("Policy")
    await rig.create(config_map(place, "target"))
    assert await rig.may(f"list services in namespace {place}")
    await rig.create(config_map(place, "trigger-1", what="services"))

    async def missing() -> str:
        found = await rig.requests(key, State.PENDING)
        wanted = f"list services in namespace {place}"
        if [item.status.missing_permission for item in found] != [wanted]:
            return str(found)
        return "" if f"{place}:{NAME}" in found[0].status.message else found[0].status.message

    await rig.settle(missing, within=20.0)
    assert await rig.data("target") == {}
    await permit(rig, "sees", SERVICES, WORKER)
    await rig.finish(policy=key)
    assert await rig.data("target") == {"got": "ServiceList"}


async def test_a_policy_does_nothing_until_its_account_may_be_impersonated(
    rig: Rig, worker: str
) -> None:
    del worker
    place, key = rig.namespace, f"{rig.namespace}/{rig.namespace}"
    wanted = policy(place, simple(place))
    await rig.delete("RoleBinding", "speaks")
    message = await refusal(rig, wanted)
    assert f"'{NAMESPACE}:kube-retrofit-controller': it may not impersonate" in message
    manifest = message.partition("\n\n")[2]
    await asyncio.to_thread(rig.cluster.kubectl, "apply", "-f", "-", stdin=manifest)
    await rig.create(wanted)
    await rig.ready("Policy")
    await rig.delete("RoleBinding", f"retrofit:{place}:{place}:impersonate")
    await rig.create(config_map(place, "target"))

    async def untrusted() -> str:
        status = (await rig.get("Policy", place)).get("status") or {}
        said = "; ".join(item["message"] for item in status.get("conditions") or ())
        return "" if not status.get("ready") and "may not work as" in said else str(status)

    await rig.settle(untrusted, within=60.0)
    await rig.create(config_map(place, "trigger-1"))

    async def parked() -> str:
        found = await rig.requests(key, State.PENDING)
        missing = [item.status.missing_permission for item in found]
        wanted = [f"impersonate serviceaccounts in namespace {place}"]
        return "" if missing == wanted else str(found)

    await rig.settle(parked, within=20.0)
    assert await rig.calls("patch", "configmaps", name="target") == 0
    await permit(rig, "speaks-again", IMPERSONATE, CONTROLLER)
    await rig.finish(policy=key)
    assert await rig.data("target") == {"got": "it"}
    await rig.ready("Policy")


async def test_own_writes_as_a_named_account_trigger_no_rule(rig: Rig, worker: str) -> None:
    place, key = rig.namespace, f"{rig.namespace}/{rig.namespace}"
    made = rule(
        place,
        [target(place, "{{ request.object.metadata.name }}")],
        {"data": {"got": "{{ request.object.metadata.resourceVersion || 'new' }}"}},
    )
    await rig.create(policy(place, made))
    await rig.ready("Policy")
    for number in (1, 2):
        await rig.create(config_map(place, f"trigger-{number}"))
        await rig.finish(number, policy=key)
    assert await rig.calls("patch", "configmaps", name="trigger-1", user=worker) == 1
    assert len(await rig.requests(key)) == 2


@pytest.mark.parametrize("account", ["kube-system/default", "Not A Name", ""])
async def test_a_policy_acts_only_as_an_account_of_its_own_namespace(
    rig: Rig, roles: Roles, account: str
) -> None:
    wanted = policy(rig.namespace, simple(rig.namespace), account)
    said = await refusal(roles.namespace_admin, wanted)
    assert f"metadata.annotations[{ANNOTATION_SERVICE_ACCOUNT}]" in said


async def test_no_policy_acts_as_an_account_of_kube_retrofit(rig: Rig, roles: Roles) -> None:
    wanted = cluster_policy(rig.namespace, f"{NAMESPACE}/kube-retrofit-controller")
    said = await refusal(roles.cluster_policy_writer, wanted)
    assert "belongs to kube-retrofit" in said


async def test_only_an_author_who_may_impersonate_an_account_can_name_it(
    rig: Rig, roles: Roles, worker: str
) -> None:
    del worker
    place = rig.namespace
    wanted = policy(place, simple(place))
    own = await refusal(roles.policy_writer, wanted)
    assert "only what its author may do" in own
    everywhere = cluster_policy(place, f"{place}/{NAME}")
    borrowed = await refusal(roles.cluster_policy_writer, everywhere)
    assert "only what its author may do" in borrowed
    person = {"apiGroup": RBAC, "kind": "User", "name": roles.users["policy-writer"]}
    await permit(rig, "chooses", IMPERSONATE, person)
    await roles.policy_writer.create(wanted)


async def test_an_author_who_may_not_name_an_account_cannot_add_it_to_a_policy(
    rig: Rig, roles: Roles, worker: str
) -> None:
    del worker
    place = rig.namespace
    plain = policy(place, simple(place))
    del plain["metadata"]["annotations"]
    await rig.create(plain)
    patch = {"metadata": {"annotations": {ANNOTATION_SERVICE_ACCOUNT: NAME}}}
    with pytest.raises(ClusterError, match="only what its author may do"):
        await roles.policy_writer.merge("Policy", place, patch)
