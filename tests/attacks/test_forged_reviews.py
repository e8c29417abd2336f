"""Reviews that no API server sent: of objects that never were, and in somebody else's name."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from admission.roles import CLUSTER_ROLE_BINDINGS, ROLE_BINDINGS
from devcluster.install import NAMESPACE
from devcluster.programs import ADMISSION, HOST, Programs
from devcluster.waiting import wait_until
from reconciler.api.meta import CONFIG_MAPS, NAMESPACES, Kind, Object
from reconciler.kube.policies import CLUSTER_POLICIES, EXCEPTIONS, POLICIES
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
    "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}],
}
GOT = {"data": {"got": "{{ request.object.data.value }}"}}
FOLLOWED = (
    *(NAMESPACES, ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS),
    *(CLUSTER_POLICIES, POLICIES, EXCEPTIONS),
)


@pytest.fixture
def readable(live_programs: Programs) -> Iterator[None]:
    """A role by which the admission server may read ConfigMaps."""
    cluster = live_programs.cluster
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(ROLE))
    account = "system:serviceaccount:kyverno:kyverno-admission-controller"

    def granted() -> bool:
        roles = cluster.kubectl(
            *("get", "clusterrole", "kyverno:admission-controller", "-o", "jsonpath={.rules}")
        )
        return '"configmaps"' in roles

    wait_until(granted, within=30, what=f"{account} may read")
    yield
    cluster.kubectl("delete", "clusterrole", ROLE["metadata"]["name"])


@pytest.fixture
def unguarded(live_programs: Programs) -> Iterator[Peer]:
    """The same peer before a replica that asks nobody for a certificate."""
    with Programs(live_programs.cluster, ask_callers=False) as programs:
        programs.start(ADMISSION, name="unguarded")
        yield Peer(url=f"https://{HOST}:{programs.webhook_port}")


def deletion(namespace: str, served: Kind = CONFIG_MAPS, **meta: Any) -> Object:
    """Return the review of a deletion, sent by somebody who may do everything."""
    old = config_map(namespace, "trigger-invented", value="forged")
    old |= {"apiVersion": served.api_version, "kind": served.kind}
    old["metadata"] |= {"uid": "forged", "resourceVersion": "1", **meta}
    if not served.namespaced:
        del old["metadata"]["namespace"]
    kind = {"group": served.group, "version": served.version, "kind": served.kind}
    resource = {"group": served.group, "version": served.version, "resource": served.plural}
    request = {
        "uid": "forged-review",
        "kind": kind,
        "resource": resource,
        "requestKind": kind,
        "requestResource": resource,
        "name": old["metadata"]["name"],
        "namespace": old["metadata"].get("namespace", ""),
        "operation": "DELETE",
        "userInfo": {"username": "root", "groups": ["system:masters"]},
        "object": None,
        "oldObject": old,
        "dryRun": False,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


async def follow_deletions(rig: Rig) -> None:
    """Have a target changed whenever a ConfigMap is deleted."""
    fired = rule(rig.namespace, [target(rig.namespace, "target")], GOT)
    for item in fired["match"]["any"]:
        item["resources"]["operations"] = ["DELETE"]
    await rig.create(config_map(rig.namespace, "target"))
    await rig.apply(fired)
    await rig.ready()


async def untouched(rig: Rig) -> bool:
    requests = await rig.items("UpdateRequest", NAMESPACE)
    own = [item for item in requests if item["spec"]["policy"] == rig.namespace]
    stored = await rig.get("ConfigMap", "target", rig.namespace)
    return not own and "got" not in (stored.get("data") or {})


async def test_a_peer_without_a_certificate_is_told_so_and_leaves_nothing(
    rig: Rig, peer: Peer
) -> None:
    await follow_deletions(rig)
    answer: Answer = await peer.post(deletion(rig.namespace))
    assert answer.status == 401
    assert "client certificate" in answer.problem
    assert await untouched(rig)


@pytest.mark.usefixtures("readable")
async def test_where_nobody_is_asked_what_never_was_is_not_recorded(
    rig: Rig, unguarded: Peer
) -> None:
    await follow_deletions(rig)
    assert (await unguarded.post(deletion(rig.namespace))).status == 200
    assert await untouched(rig)


async def test_where_nobody_granted_more_what_is_followed_is_read_all_the_same(
    rig: Rig, unguarded: Peer
) -> None:
    """Of the kinds that the base lets it list; what it may not read is recorded as it came."""
    kinds = [f"{kind.api_version}/{kind.kind}" for kind in (CONFIG_MAPS, *FOLLOWED)]
    resources = {"kinds": kinds, "names": ["trigger-invented"], "operations": ["DELETE"]}
    fired = rule(rig.namespace, [target(rig.namespace, "target")], GOT)
    await rig.create(config_map(rig.namespace, "target"))
    async with rig.granted(*(kind.resource for kind in (ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS))):
        await rig.apply({**fired, "match": {"any": [{"resources": resources}]}})
        for kind in (*FOLLOWED, CONFIG_MAPS):
            assert (await unguarded.post(deletion(rig.namespace, kind))).status == 200
    assert [item.spec.resource.kind for item in await rig.requests()] == ["ConfigMap"]


@pytest.mark.usefixtures("readable")
async def test_where_nobody_is_asked_what_was_is_recorded_as_it_is(
    rig: Rig, unguarded: Peer
) -> None:
    await follow_deletions(rig)
    real = await rig.create(config_map(rig.namespace, "trigger-invented", value="true"))
    meta = {key: real["metadata"][key] for key in ("uid", "resourceVersion")}
    assert (await unguarded.post(deletion(rig.namespace, **meta))).status == 200
    await rig.delete("ConfigMap", "trigger-invented", rig.namespace)

    async def missing() -> str:
        stored = await rig.get("ConfigMap", "target", rig.namespace)
        got = (stored.get("data") or {}).get("got")
        assert got != "forged"
        return "" if got == "true" else f"the target has {got}"

    await rig.settle(missing, within=60.0)
