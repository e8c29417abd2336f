"""The `Policies` port."""

from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import replace
from functools import partial
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
from reconciler.clock import Clock
from reconciler.dialects.registry import (
    OPTIONAL_KINDS,
    POLICY_KINDS,
    REQUIRED_KINDS,
    policy_kind,
)
from reconciler.errors import Forbidden, NoKindMatch
from reconciler.kube.client import Client
from reconciler.kube.discovery import KubeKinds
from reconciler.kube.reader import KubeReader
from reconciler.kube.watch import Watch
from reconciler.kube.writer import guarded

EXCEPTIONS = Kind(
    group=GROUP,
    version=EXCEPTION_VERSION,
    kind="PolicyException",
    plural="policyexceptions",
    namespaced=True,
)


async def policies_of(reader: KubeReader, kinds: Iterable[Kind]) -> AsyncIterator[Object]:
    """Yield the stored policies of some kinds; optional ones may be gone, or be withheld."""
    for kind in kinds:
        try:
            async for item in reader.items(kind):
                yield item
        except (NoKindMatch, Forbidden):
            if kind in REQUIRED_KINDS:
                raise


def follow_optional(client: Client, kinds: KubeKinds, clock: Clock) -> Mapping[Kind, Watch]:
    """Return what follows the kinds of policies that a cluster need not serve."""

    async def is_served(kind: Kind) -> bool:
        return bool(await kinds.find(kind.api_version, kind.kind))

    return {
        kind: Watch(client, kind, clock, served=partial(is_served, kind))
        for kind in OPTIONAL_KINDS
    }


class KubePolicies:
    """Policy objects, as stored.

    Attributes:
        optional: Follow the kinds that need not be served, and so know which of them are there.
            Without it each is tried.
    """

    def __init__(self, client: Client, optional: Mapping[Kind, Watch] | None = None) -> None:
        self.optional = optional or {}
        self._client = client

    async def get(self, ref: PolicyRef) -> Object:
        """Return a policy, live."""
        resource = self._client.resource(policy_kind(ref))
        answer: Object = await resource.get(ref.name, ref.namespace)
        return answer

    async def stored(self) -> tuple[Object, ...]:
        """Return all policies of all kinds, live."""
        reader = KubeReader(self._client)
        away = {kind for kind, watch in self.optional.items() if watch.absent}
        kinds = [kind for kind in POLICY_KINDS if kind not in away]
        return tuple([item async for item in policies_of(reader, kinds)])

    async def write_status(self, policy: Object, status: Mapping[str, Any]) -> None:
        """Merge into the status of a policy.

        Raises:
            Conflict: The policy changed since; decide on the new one.
        """
        ref = policy_ref(policy)
        statuses = self._client.resource(replace(policy_kind(ref), subresource="status"))
        patch = guarded({"status": dict(status)}, resource_version(policy))
        await statuses.merge(patch, ref.name, ref.namespace)
