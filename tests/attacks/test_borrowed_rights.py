"""The rights that authors borrow through policies: those granted to policies, and no others."""

from typing import Any

import pytest

from devcluster.install import NAMESPACE
from reconciler.api.meta import Object
from reconciler.errors import ClusterError
from tests.attacks.roles import Roles
from tests.faults.rig import BACKGROUND, Rig, config_map, rule, target

pytestmark = pytest.mark.cluster

CA = "kube-retrofit-ca"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
GOT = {"data": {"got": "{{ got }}"}}
HOOK: Object = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingWebhookConfiguration",
    "metadata": {"name": "kube-retrofit-resource"},
}


def asking(place: str, path: str, **call: Any) -> Object:
    """Return a rule that writes the answer of an API call into the target."""
    entry = {"name": "got", "apiCall": {"urlPath": path, **call}}
    return rule(place, [target(place, "target")], GOT, context=[entry])


async def refusal(rig: Rig, made: Object) -> str:
    """Return the error with which a policy with this rule is refused."""
    with pytest.raises(ClusterError) as refused:
        await rig.apply(made)
    return str(refused.value)


async def test_an_api_call_cannot_create_a_webhook_configuration(roles: Roles, rig: Rig) -> None:
    fields = {"apiVersion": HOOK["apiVersion"], "kind": HOOK["kind"], "metadata": {"name": "spy"}}
    data = [{"key": key, "value": value} for key, value in fields.items()]
    made = asking(rig.namespace, WEBHOOKS, method="POST", data=data)
    assert "only for access reviews" in await refusal(roles.cluster_policy_writer, made)
    assert await rig.find("ValidatingWebhookConfiguration", "spy", "") is None


@pytest.mark.parametrize(
    "path",
    [
        f"/api/v1/namespaces/{NAMESPACE}/secrets/{CA}",
        f"/api/v1/namespaces/{NAMESPACE}%2Fsecrets%2F{CA}",
        "/apis/coordination.k8s.io/v1/leases",
        f"{WEBHOOKS}/kube-retrofit-resource",
    ],
)
async def test_an_api_call_cannot_read_objects_that_kube_retrofit_depends_on(
    roles: Roles, rig: Rig, path: str
) -> None:
    assert "polic" in await refusal(roles.cluster_policy_writer, asking(rig.namespace, path))


@pytest.mark.parametrize(
    "victim",
    [
        target(NAMESPACE, CA, "Secret"),
        target("", "kube-retrofit-resource", HOOK["kind"], HOOK["apiVersion"]),
        target(NAMESPACE, "kube-retrofit-controller", "Lease", "coordination.k8s.io/v1"),
        target("", "other", "ClusterPolicy", "kyverno.io/v1"),
    ],
    ids=lambda victim: victim["kind"],
)
async def test_a_policy_cannot_target_objects_that_kube_retrofit_depends_on(
    roles: Roles, rig: Rig, victim: Object
) -> None:
    wanted = {key: value for key, value in victim.items() if value}
    made = rule(rig.namespace, [wanted], {"metadata": {"labels": {"taken": "yes"}}})
    assert "no policy changes" in await refusal(roles.cluster_policy_writer, made)


async def test_a_trigger_value_cannot_lead_a_call_to_a_secret_of_kube_retrofit(
    roles: Roles, rig: Rig
) -> None:
    place = rig.namespace
    async with rig.granted("secrets"):
        path = "/api/v1/namespaces/{{ request.object.data.place }}/secrets/" + CA
        made = asking(place, path)
        made["context"][0]["apiCall"]["jmesPath"] = 'data."tls.key"'
        await rig.apply(made)
        await rig.create(config_map(place, "target", is_="here"))
        admin = roles.namespace_admin
        await admin.create(config_map(place, "trigger-1", place=NAMESPACE))
        await rig.finish()
        (request,) = await rig.requests()
    assert request.status.state == "Failed"
    assert "context entry got: the content is refused" in request.status.message
    assert await rig.data("target") == {"is_": "here"}


async def test_a_trigger_value_cannot_change_the_path_of_a_call(roles: Roles, rig: Rig) -> None:
    """Only the check that a value is one segment of the path protects the Secret."""
    place = rig.namespace
    meta = {"name": "treasure", "namespace": place}
    treasure = {"apiVersion": "v1", "kind": "Secret", "metadata": meta}
    await rig.create({**treasure, "stringData": {"key": "canary"}})
    async with rig.granted("secrets"):
        path = "/api/v1/namespaces/{{ request.object.data.place }}/configmaps/settings"
        made = asking(place, path)
        made["context"][0]["apiCall"]["jmesPath"] = "data.key"
        await rig.apply(made)
        await rig.create(config_map(place, "target", is_="here"))
        admin = roles.namespace_admin
        elsewhere = f"{place}/secrets/treasure?z="
        await admin.create(config_map(place, "trigger-1", place=elsewhere))
        await rig.finish()
        (request,) = await rig.requests()
    assert request.status.state == "Failed"
    assert "would lead elsewhere" in request.status.message
    assert await rig.data("target") == {"is_": "here"}


async def test_rights_granted_to_policies_do_not_reach_objects_of_kube_retrofit(rig: Rig) -> None:
    place = rig.namespace
    before = await rig.get("Secret", CA, NAMESPACE)
    async with rig.granted("secrets"):
        everywhere = {"apiVersion": "v1", "kind": "Secret", "namespace": "*", "name": "kube-*"}
        await rig.apply(rule(place, [everywhere], {"metadata": {"labels": {"taken": "yes"}}}))
        await rig.create(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": "kube-x", "namespace": place},
            }
        )
        await rig.create(config_map(place, "trigger-1"))
        await rig.finish()
        (request,) = await rig.requests()
    assert request.status.state == "Completed", request.status
    assert (await rig.get("Secret", "kube-x"))["metadata"]["labels"] == {"taken": "yes"}
    assert await rig.get("Secret", CA, NAMESPACE) == before


@pytest.mark.parametrize(
    "right",
    [
        f"get secrets in namespace {NAMESPACE}",
        f"create updaterequests.kyverno.io in namespace {NAMESPACE}",
        f"patch updaterequests.kyverno.io/status in namespace {NAMESPACE}",
        f"create leases.coordination.k8s.io in namespace {NAMESPACE}",
        "create validatingwebhookconfigurations.admissionregistration.k8s.io",
        "patch clusterpolicies.kyverno.io/status",
    ],
)
async def test_policies_have_none_of_the_rights_of_the_controller(rig: Rig, right: str) -> None:
    assert not await rig.may(right)


async def test_a_policy_acts_as_the_account_that_rights_are_granted_to(rig: Rig) -> None:
    place = rig.namespace
    await rig.apply(rule(place, [target(place, "target")], {"data": {"got": "it"}}))
    await rig.create(config_map(place, "target"))
    await rig.create(config_map(place, "trigger-1"))
    await rig.finish()
    for verb, resource, name, user in (
        ("get", "configmaps", "trigger-1", BACKGROUND),
        ("get", "configmaps", "target", BACKGROUND),
        ("patch", "configmaps", "target", BACKGROUND),
        ("patch", "updaterequests", "", ""),
    ):
        made = await rig.calls(verb, resource, name=name)
        assert made > 0
        assert await rig.calls(verb, resource, name=name, user=user) == made


async def test_a_policy_cannot_change_objects_that_its_author_may_not_change(
    roles: Roles, rig: Rig
) -> None:
    place = rig.namespace
    made = rule(place, [target(place, "target")], {"data": {"got": "it"}})
    del made["match"]["any"][0]["resources"]["namespaces"]
    policy: Object = {
        "apiVersion": "kyverno.io/v1",
        "kind": "Policy",
        "metadata": {"name": place, "namespace": place},
        "spec": {"rules": [made]},
    }
    with pytest.raises(ClusterError, match="only what its author may do"):
        await roles.policy_writer.create(policy)
    await roles.namespace_admin.create(policy)


async def test_a_policy_cannot_write_owner_references(roles: Roles, rig: Rig) -> None:
    place = rig.namespace
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "x"}
    patch = {"metadata": {"ownerReferences": [owner]}}
    made = rule(place, [target(place, "target")], patch)
    assert "ownerReferences" in await refusal(roles.cluster_policy_writer, made)
