"""The `Policies` port."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

from reconciler.api.meta import (
    EXCEPTION_VERSION,
    GROUP,
    Kind,
    Object,
    PolicyRef,
    policy_ref,
    resource_version,
)
from reconciler.dialects.registry import POLICY_KINDS, REQUIRED_KINDS, policy_kind
from reconciler.errors import NoKindMatch
from reconciler.kube.client import Client
from reconciler.kube.reader import KubeReader
from reconciler.kube.writer import guarded

EXCEPTIONS = Kind(
    group=GROUP,
    version=EXCEPTION_VERSION,
    kind="PolicyException",
    plural="policyexceptions",
    namespaced=True,
)


async def policies_of(reader: KubeReader) -> AsyncIterator[Object]:
    """Yield the stored policies of all kinds that the cluster serves."""
    for kind in POLICY_KINDS:
        try:
            async for item in reader.items(kind):
                yield item
        except NoKindMatch:
            if kind in REQUIRED_KINDS:
                raise


class KubePolicies:
    """Policy objects, as stored."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def get(self, ref: PolicyRef) -> Object:
        """Return a policy, live."""
        resource = self._client.resource(policy_kind(ref))
        answer: Object = await resource.get(ref.name, ref.namespace)
        return answer

    async def stored(self) -> tuple[Object, ...]:
        """Return all policies of all kinds, live."""
        reader = KubeReader(self._client)
        return tuple([item async for item in policies_of(reader)])

    async def write_status(self, policy: Object, status: Mapping[str, Any]) -> None:
        """Merge into the status of a policy.

        Raises:
            Conflict: The policy changed since; decide on the new one.
        """
        ref = policy_ref(policy)
        statuses = self._client.resource(replace(policy_kind(ref), subresource="status"))
        patch = guarded({"status": dict(status)}, resource_version(policy))
        await statuses.merge(patch, ref.name, ref.namespace)
