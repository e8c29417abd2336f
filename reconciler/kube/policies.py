"""The `Policies` port."""

from collections.abc import Mapping
from typing import Any

from reconciler.api.meta import (
    EXCEPTION_VERSION,
    FIELD_MANAGER,
    GROUP,
    POLICY_VERSION,
    Kind,
    Object,
    resource_version,
)
from reconciler.kube.client import MERGE_PATCH, Client, encode
from reconciler.kube.paths import object_path
from reconciler.kube.reader import KubeReader
from reconciler.kube.writer import guarded

CLUSTER_POLICIES = Kind(
    group=GROUP,
    version=POLICY_VERSION,
    kind="ClusterPolicy",
    plural="clusterpolicies",
    namespaced=False,
)
POLICIES = Kind(
    group=GROUP, version=POLICY_VERSION, kind="Policy", plural="policies", namespaced=True
)
EXCEPTIONS = Kind(
    group=GROUP,
    version=EXCEPTION_VERSION,
    kind="PolicyException",
    plural="policyexceptions",
    namespaced=True,
)


class KubePolicies:
    """Policy objects, as stored."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def get(self, key: str) -> Object:
        """Return the ClusterPolicy ``name`` or the Policy ``namespace/name``, live."""
        namespace, _, name = key.rpartition("/")
        answer: Object = await self._client.json("GET", _path(namespace, name))
        return answer

    async def stored(self) -> tuple[Object, ...]:
        """Return all policies of both kinds, live."""
        reader, found = KubeReader(self._client), list[Object]()
        for kind in (CLUSTER_POLICIES, POLICIES):
            token = ""
            while True:
                page = await reader.list_page(kind, token=token)
                found.extend(page.items)
                token = page.token
                if not token:
                    break
        return tuple(found)

    async def write_status(self, policy: Object, status: Mapping[str, Any]) -> None:
        """Merge into the status of a policy.

        Raises:
            Conflict: The policy changed since; decide on the new one.
        """
        meta = policy.get("metadata") or {}
        patch = guarded({"status": dict(status)}, resource_version(policy))
        await self._client.request(
            "PATCH",
            _path(meta.get("namespace", ""), meta.get("name", "")) + "/status",
            query={"fieldManager": FIELD_MANAGER},
            body=encode(patch),
            content_type=MERGE_PATCH,
        )


def _path(namespace: str, name: str) -> str:
    return object_path(POLICIES if namespace else CLUSTER_POLICIES, namespace, name)
