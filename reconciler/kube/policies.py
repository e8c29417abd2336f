"""The `Policies` port."""

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

from reconciler.api.meta import Kind, Object, PolicyRef, policy_ref
from reconciler.clock import Clock
from reconciler.dialects.registry import OPTIONAL_KINDS, policy_kind, policy_kinds
from reconciler.errors import Forbidden, NoKindMatch
from reconciler.installation import REPLACING, Installation
from reconciler.kube.client import Client
from reconciler.kube.discovery import KubeKinds
from reconciler.kube.reader import KubeReader
from reconciler.kube.watch import Watch
from reconciler.kube.writer import write_status


async def policies_of(reader: KubeReader, kinds: Iterable[Kind]) -> AsyncIterator[Object]:
    """Yield the policies of the kinds; skip optional kinds that are not served or forbidden."""
    for kind in kinds:
        try:
            async for item in reader.items(kind):
                yield item
        except (NoKindMatch, Forbidden):
            if kind not in OPTIONAL_KINDS:
                raise


def follow_optional(client: Client, kinds: KubeKinds, clock: Clock) -> Mapping[Kind, Watch]:
    """Return a watch for each kind of policy that a cluster need not serve."""
    return {kind: Watch.of_optional(client, kind, clock, kinds) for kind in OPTIONAL_KINDS}


class KubePolicies:
    """Policy objects of an installation, as stored.

    Attributes:
        optional: Watches of the kinds that need not be served, which record whether they are.
            Without them, each kind is tried.
    """

    def __init__(
        self,
        client: Client,
        optional: Mapping[Kind, Watch] | None = None,
        *,
        installation: Installation = REPLACING,
    ) -> None:
        self.optional = optional or {}
        self._client = client
        self._installation = installation

    async def get(self, ref: PolicyRef) -> Object:
        """Return a policy, read from the API server."""
        resource = self._client.resource(policy_kind(ref, self._installation))
        return await resource.get(ref.name, ref.namespace)

    async def stored(self) -> tuple[Object, ...]:
        """Return all policies of all kinds, read from the API server."""
        reader = KubeReader(self._client)
        away = {kind for kind, watch in self.optional.items() if watch.absent}
        kinds = [kind for kind in policy_kinds(self._installation) if kind not in away]
        return tuple([item async for item in policies_of(reader, kinds)])

    async def write_status(self, policy: Object, status: Mapping[str, Any]) -> None:
        """Merge into the status of a policy.

        Raises:
            Conflict: The policy has changed since; decide again on the new version.
        """
        kind = policy_kind(policy_ref(policy), self._installation)
        await write_status(self._client, kind, policy, status)
