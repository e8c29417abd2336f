"""Both adapters of the ports behind one fixture: one suite checks that they behave the same."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson
import pytest

from devcluster.cluster import Cluster, ControlPlane
from reconciler.api.meta import Kind, Object
from reconciler.clock import SystemClock
from reconciler.errors import AlreadyExists, Denied
from reconciler.kube.client import Client, connect
from reconciler.kube.discovery import KubeKinds
from reconciler.kube.operations import KubeOperations
from reconciler.kube.policies import KubePolicies
from reconciler.kube.reader import KubeReader
from reconciler.kube.requests import KubeRequests
from reconciler.kube.writer import KubeWriter
from reconciler.memory.operations import MemoryOperations
from reconciler.services.ports.objects import Kinds, Operations, Reader, Writer
from reconciler.services.ports.policies import Policies
from reconciler.services.ports.requests import Requests
from tests.rigged import RiggedCluster
from tests.stored import MemoryPolicies, MemoryRequests

_PATIENCE = 1.0
VERBS = ("get", "list", "create", "patch", "update", "delete")
CRDS = Kind(
    group="apiextensions.k8s.io",
    version="v1",
    kind="CustomResourceDefinition",
    plural="customresourcedefinitions",
    namespaced=False,
)
WIDGETS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.contract.example"},
    "spec": {
        "group": "contract.example",
        "scope": "Namespaced",
        "names": {"kind": "Widget", "plural": "widgets", "singular": "widget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {
                                    "note": {"type": "string", "nullable": True},
                                    "size": {"type": "integer"},
                                },
                            },
                            "status": {
                                "type": "object",
                                "properties": {"ready": {"type": "boolean"}},
                            },
                        },
                    }
                },
            }
        ],
    },
}


@dataclass(kw_only=True)
class World:
    """The ports under test, and methods that change the cluster without them."""

    kinds: Kinds
    reader: Reader
    writer: Writer
    operations: Operations
    requests: Requests
    policies: Policies
    namespace: str
    backend: "MemoryBackend | KubeBackend"

    async def create(self, kind: Kind, name: str, **content: Any) -> Object:
        meta = {"name": name, **content.pop("metadata", {})}
        if kind.namespaced:
            meta["namespace"] = self.namespace
        obj = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, **content}
        return await self.backend.create(kind, obj)

    async def delete(self, kind: Kind, name: str) -> None:
        await self.backend.delete(kind, self.namespace if kind.namespaced else "", name)

    def writes(self) -> int:
        return self.backend.writes()

    async def limited(self, resource: str, verbs: Sequence[str]) -> "World":
        """Return the same world for an account with only these rights on a core resource."""
        return await self.backend.limited(self, resource, verbs)

    async def deny(self, resource: str, message: str) -> None:
        await self.backend.deny(self.namespace, resource, message)


class MemoryBackend:
    def __init__(self) -> None:
        self.cluster = RiggedCluster()

    async def create(self, kind: Kind, obj: Object) -> Object:
        return self.cluster.create(kind, obj)

    async def delete(self, kind: Kind, namespace: str, name: str) -> None:
        self.cluster.delete(kind, namespace, name)

    def writes(self) -> int:
        return self.cluster.writes

    async def limited(self, world: World, resource: str, verbs: Sequence[str]) -> World:
        for verb in set(VERBS) - set(verbs):
            self.cluster.forbid(verb, resource)
        return world

    async def deny(self, _namespace: str, resource: str, message: str) -> None:
        self.cluster.deny(resource, message)


class KubeBackend:
    def __init__(self, cluster: Any, client: Client) -> None:
        self._cluster = cluster
        self._client = client
        self._opened: list[Client] = []
        self._deletions: list[str] = []
        self._writes = 0
        client.on_call = self._count

    def _count(self, verb: str, _resource: str, _status: int, _seconds: float) -> None:
        self._writes += verb in {"patch", "update"}

    async def create(self, kind: Kind, obj: Object) -> Object:
        resource = self._client.resource(kind)
        stored: Object = await resource.create(obj, obj["metadata"].get("namespace", ""))
        if not kind.namespaced:
            self._deletions.append(resource.path(stored["metadata"]["name"]))
        return stored

    async def delete(self, kind: Kind, namespace: str, name: str) -> None:
        await self._client.resource(kind).delete(name, namespace, grace_period_seconds=0)

    def writes(self) -> int:
        return self._writes

    async def limited(self, world: World, resource: str, verbs: Sequence[str]) -> World:
        namespace, name = world.namespace, f"limited-{uuid.uuid4().hex[:6]}"
        core = Kind(group="", version="v1", kind="", plural="serviceaccounts", namespaced=True)
        await self.create(core, _named("v1", "ServiceAccount", namespace, name))
        rules = [{"apiGroups": [""], "resources": [resource], "verbs": list(verbs)}]
        rbac = "rbac.authorization.k8s.io/v1"
        role = _named(rbac, "Role", namespace, name) | {"rules": rules}
        binding = _named(rbac, "RoleBinding", namespace, name) | {
            "roleRef": {"apiGroup": rbac.partition("/")[0], "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": name}],
        }
        kind = replace(core, group=rbac.partition("/")[0])
        await self.create(replace(kind, plural="roles"), role)
        await self.create(replace(kind, plural="rolebindings"), binding)
        client = await connect(str(self._cluster.service_account_kubeconfig(namespace, name)))
        self._opened.append(client)
        return replace(world, reader=KubeReader(client), writer=KubeWriter(client, SystemClock()))

    async def deny(self, namespace: str, resource: str, message: str) -> None:
        group = "admissionregistration.k8s.io"
        name = f"deny-{namespace}"
        policies = Kind(
            group=group,
            version="v1",
            kind="ValidatingAdmissionPolicy",
            plural="validatingadmissionpolicies",
            namespaced=False,
        )
        rule = {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "operations": ["UPDATE"],
            "resources": [resource],
        }
        policy = _named(f"{group}/v1", "ValidatingAdmissionPolicy", "", name) | {
            "spec": {
                "matchConstraints": {
                    "resourceRules": [rule],
                    "namespaceSelector": {
                        "matchLabels": {"kubernetes.io/metadata.name": namespace}
                    },
                },
                "validations": [{"expression": "false", "message": message}],
            }
        }
        await self.create(policies, policy)
        binding = _named(f"{group}/v1", "ValidatingAdmissionPolicyBinding", "", name) | {
            "spec": {"policyName": name, "validationActions": ["Deny"]}
        }
        await self.create(replace(policies, plural="validatingadmissionpolicybindings"), binding)
        await self._until_denied(namespace)

    async def _until_denied(self, namespace: str) -> None:
        maps = Kind(group="", version="v1", kind="", plural="configmaps", namespaced=True)
        probe = await self.create(maps, _named("v1", "ConfigMap", namespace, "probe"))
        async with asyncio.timeout(30):
            while True:
                try:
                    await self._client.resource(maps).replace(probe)
                except Denied:
                    return
                await asyncio.sleep(0.1)

    async def close(self, namespace: str) -> None:
        # Deleting a namespace costs calls for each kind; the tests' own control plane ends soon.
        if not isinstance(self._cluster, ControlPlane):
            await self._client.request("DELETE", f"/api/v1/namespaces/{namespace}")
        for path in self._deletions:
            await self._client.request("DELETE", path)
        for client in (self._client, *self._opened):
            await client.close()


def _named(api_version: str, kind: str, namespace: str, name: str) -> Object:
    meta: Mapping[str, str] = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": api_version, "kind": kind, "metadata": dict(meta)}


@pytest.fixture(params=["memory", pytest.param("kube", marks=pytest.mark.cluster)])
def cluster(request: pytest.FixtureRequest) -> Cluster | None:
    """None for the in-memory cluster, or else the real cluster."""
    if request.param == "memory":
        return None
    found: Cluster = request.getfixturevalue("installed_cluster")
    return found


@pytest.fixture
async def world(cluster: Cluster | None) -> AsyncIterator[World]:
    namespace = f"contract-{uuid.uuid4().hex[:8]}"
    if cluster is None:
        memory = MemoryBackend()
        memory.cluster.add(WIDGETS)
        yield World(
            kinds=memory.cluster,
            reader=memory.cluster,
            writer=memory.cluster,
            operations=MemoryOperations(memory.cluster),
            requests=MemoryRequests(memory.cluster, namespace, page=2),
            policies=MemoryPolicies(memory.cluster),
            namespace=namespace,
            backend=memory,
        )
        return
    client = await connect(str(cluster.kubeconfig))
    backend = KubeBackend(cluster, client)
    clock = SystemClock()
    kinds = KubeKinds(client, clock)
    await _serve_widgets(client, kinds)
    await client.request(
        "POST",
        "/api/v1/namespaces",
        body=orjson.dumps(_named("v1", "Namespace", "", namespace)),
    )
    yield World(
        kinds=kinds,
        reader=KubeReader(client),
        writer=KubeWriter(client, clock),
        operations=KubeOperations(client, patience=_PATIENCE),
        requests=KubeRequests(client, namespace, page=2),
        policies=KubePolicies(client),
        namespace=namespace,
        backend=backend,
    )
    await backend.close(namespace)


async def _serve_widgets(client: Client, kinds: KubeKinds) -> None:
    try:
        await client.resource(CRDS).create(WIDGETS)
    except AlreadyExists:
        return
    async with asyncio.timeout(30):
        while not await kinds.find("contract.example/v1", "Widget"):
            kinds.invalidate()
            await asyncio.sleep(0.1)


@pytest.fixture
async def client(installed_cluster: Cluster) -> AsyncIterator[Client]:
    client = await connect(str(installed_cluster.kubeconfig))
    yield client
    await client.close()
