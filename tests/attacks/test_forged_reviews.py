"""Reviews that no API server sent: for objects that never existed, in other users' names."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from admission.roles import CLUSTER_ROLE_BINDINGS, ROLE_BINDINGS
from devcluster.install import NAMESPACE
from devcluster.parts import HOST
from devcluster.programs import ADMISSION, Programs
from devcluster.waiting import wait_until
from reconciler.api.kinds import kinds_of
from reconciler.api.meta import CONFIG_MAPS, NAMESPACES, Kind, Object
from reconciler.dialects.registry import policy_kinds
from reconciler.installation import REPLACING
from reconciler.kube.secrets import SECRETS
from tests.attacks.roles import Answer, Peer
from tests.faults.rig import Rig, config_map, rule, target

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

ROLE: Object = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {
        "name": "attacks:read-deleted",
        "labels": {"rbac.kyverno.io/aggregate-to-admission-controller": "true"},
    },
    "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}],
}
GOT = {"data": {"got": "{{ request.object.data.value }}"}}
KINDS = kinds_of(REPLACING)
FOLLOWED = (
    *(NAMESPACES, ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS),
    *(*policy_kinds(REPLACING), KINDS.exceptions),
)


@pytest.fixture
def readable(live_programs: Programs) -> Iterator[None]:
    """A role that allows the admission server to read Secrets, as in the how-to."""
    cluster = live_programs.cluster
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(ROLE))
    account = "system:serviceaccount:kyverno:kyverno-admission-controller"

    def granted() -> bool:
        roles = cluster.kubectl(
            *("get", "clusterrole", "kyverno:admission-controller", "-o", "jsonpath={.rules}")
        )
        return '["secrets"]' in roles

    wait_until(granted, within=30, what=f"{account} may read")
    yield
    cluster.kubectl("delete", "clusterrole", ROLE["metadata"]["name"])


@pytest.fixture
def unguarded(live_programs: Programs) -> Iterator[Peer]:
    """A peer that reaches a replica which does not require client certificates."""
    with Programs(live_programs.cluster, ask_callers=False) as programs:
        programs.start(ADMISSION, name="unguarded")
        yield Peer(url=f"https://{HOST}:{programs.webhook_port}")


def deletion(namespace: str, served: Kind = CONFIG_MAPS, **meta: Any) -> Object:
    """Return the review of a deletion by a user with all rights."""
    old = config_map(namespace, "trigger-invented", value="forged")
    old |= {"apiVersion": served.api_version, "kind": served.kind}
    old["metadata"] |= {"uid": "forged", "resourceVersion": "1", **meta}
    if not served.namespaced:
        del old["metadata"]["namespace"]
    return review(served, "DELETE", None, old)


def review(served: Kind, operation: str, new: Object | None, old: Object | None = None) -> Object:
    meta = (new or old or {})["metadata"]
    kind = {"group": served.group, "version": served.version, "kind": served.kind}
    resource = {"group": served.group, "version": served.version, "resource": served.plural}
    request = {
        "uid": "forged-review",
        "kind": kind,
        "resource": resource,
        "requestKind": kind,
        "requestResource": resource,
        "name": meta["name"],
        "namespace": meta.get("namespace", ""),
        "operation": operation,
        "userInfo": {"username": "root", "groups": ["system:masters"]},
        "object": new,
        "oldObject": old,
        "dryRun": False,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def following_deletions(namespace: str, *kinds: Kind) -> Object:
    """Return a rule that changes a target when an object of one of the kinds is deleted."""
    names = [f"{kind.api_version}/{kind.kind}" for kind in kinds]
    resources = {"kinds": names, "names": ["trigger-invented"], "operations": ["DELETE"]}
    fired = rule(namespace, [target(namespace, "target")], GOT)
    return {**fired, "match": {"any": [{"resources": resources}]}}


async def follow_deletions(rig: Rig, *kinds: Kind) -> None:
    await rig.create(config_map(rig.namespace, "target"))
    await rig.apply(following_deletions(rig.namespace, *kinds))
    await rig.ready()


async def untouched(rig: Rig) -> bool:
    requests = await rig.items("UpdateRequest", NAMESPACE)
    own = [item for item in requests if item["spec"]["policy"] == rig.namespace]
    stored = await rig.get("ConfigMap", "target", rig.namespace)
    return not own and "got" not in (stored.get("data") or {})


async def got_the_true_value(rig: Rig) -> None:
    """Wait until the target has the stored value, and assert that it never has the forged one."""

    async def missing() -> str:
        got = (await rig.data("target")).get("got")
        assert got != "forged"
        return "" if got == "true" else f"the target has {got}"

    await rig.settle(missing, within=60.0)


async def test_a_review_without_a_client_certificate_is_rejected(rig: Rig, peer: Peer) -> None:
    await follow_deletions(rig, CONFIG_MAPS)
    answer: Answer = await peer.post(deletion(rig.namespace))
    assert answer.status == 401
    assert "client certificate" in answer.problem
    assert await untouched(rig)


async def test_without_certificates_the_deletion_of_an_invented_object_is_not_recorded(
    rig: Rig, unguarded: Peer
) -> None:
    """The rights of the base suffice to check kinds that `view` may read, and watched kinds."""
    kinds = (CONFIG_MAPS, *FOLLOWED)
    async with rig.granted(*(kind.resource for kind in (ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS))):
        await follow_deletions(rig, *kinds)
        for kind in kinds:
            assert (await unguarded.post(deletion(rig.namespace, kind))).status == 200
        assert await untouched(rig)


async def test_without_certificates_a_deletion_is_recorded_with_the_stored_values(
    rig: Rig, unguarded: Peer
) -> None:
    await follow_deletions(rig, CONFIG_MAPS)
    real = await rig.create(config_map(rig.namespace, "trigger-invented", value="true"))
    meta = {key: real["metadata"][key] for key in ("uid", "resourceVersion")}
    assert (await unguarded.post(deletion(rig.namespace, **meta))).status == 200
    await rig.delete("ConfigMap", "trigger-invented", rig.namespace)
    await got_the_true_value(rig)


async def test_without_certificates_an_update_is_recorded_with_the_stored_old_object(
    rig: Rig, unguarded: Peer
) -> None:
    fired = rule(
        rig.namespace,
        [target(rig.namespace, "target")],
        {"data": {"got": "{{ request.oldObject.data.value }}"}},
        operations=["UPDATE"],
    )
    await rig.create(config_map(rig.namespace, "target"))
    await rig.apply(fired)
    await rig.ready()
    real = await rig.create(config_map(rig.namespace, "trigger-invented", value="true"))
    forged = {**real, "data": {"value": "forged"}}
    new = {**real, "data": {"value": "new"}}
    for old in (forged, {**forged, "metadata": {**real["metadata"], "resourceVersion": "1"}}):
        assert (await unguarded.post(review(CONFIG_MAPS, "UPDATE", new, old))).status == 200
    recorded = [item.spec.recorded for item in await rig.requests()]
    assert recorded == [{"oldObject": {"data": {"value": "true"}}}]
    await rig.merge("ConfigMap", "trigger-invented", {"data": {"value": "new"}})
    await got_the_true_value(rig)


async def test_an_unreadable_object_is_recorded_as_sent_and_the_author_is_warned(
    rig: Rig, unguarded: Peer
) -> None:
    """The base does not allow the admission server to read Secrets."""
    policy: Object = {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": rig.namespace},
        "spec": {"rules": [following_deletions(rig.namespace, CONFIG_MAPS, SECRETS)]},
    }
    async with rig.granted(SECRETS.resource):
        written = review(KINDS.cluster_policies, "CREATE", policy)
        answer = (await unguarded.post(written, path="/policies")).body["response"]
        assert [text.rpartition(": ")[2] for text in answer["warnings"]] == [
            "grant kyverno-admission-controller get secrets"
        ]
        await follow_deletions(rig, SECRETS)
        assert (await unguarded.post(deletion(rig.namespace, SECRETS))).status == 200
        assert [item.spec.resource.kind for item in await rig.requests()] == ["Secret"]


@pytest.mark.usefixtures("readable")
async def test_with_read_access_the_deletion_of_an_invented_secret_is_not_recorded(
    rig: Rig, unguarded: Peer
) -> None:
    async with rig.granted(SECRETS.resource):
        await follow_deletions(rig, SECRETS)
        assert (await unguarded.post(deletion(rig.namespace, SECRETS))).status == 200
        assert await untouched(rig)
