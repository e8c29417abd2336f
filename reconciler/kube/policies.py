"""The `Policies` port."""

from collections.abc import Mapping
from typing import Any

from reconciler.api.meta import (
    EXCEPTION_VERSION,
    FIELD_MANAGER,
    GROUP,
    Kind,
    Object,
    PolicyRef,
    policy_ref,
    resource_version,
)
from reconciler.dialects.registry import POLICY_KINDS, policy_kind
from reconciler.kube.client import MERGE_PATCH, Client, encode
from reconciler.kube.paths import object_path
from reconciler.kube.reader import KubeReader
from reconciler.kube.writer import guarded

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

    async def get(self, ref: PolicyRef) -> Object:
        """Return a policy, live."""
        answer: Object = await self._client.json("GET", _path(ref))
        return answer

    async def stored(self) -> tuple[Object, ...]:
        """Return all policies of all kinds, live."""
        reader, found = KubeReader(self._client), list[Object]()
        for kind in POLICY_KINDS:
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
        patch = guarded({"status": dict(status)}, resource_version(policy))
        await self._client.request(
            "PATCH",
            _path(policy_ref(policy)) + "/status",
            query={"fieldManager": FIELD_MANAGER},
            body=encode(patch),
            content_type=MERGE_PATCH,
        )


def _path(ref: PolicyRef) -> str:
    return object_path(policy_kind(ref), ref.namespace, ref.name)
