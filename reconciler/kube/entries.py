"""The `Entries` port."""

from collections.abc import Mapping
from typing import Any

from reconciler.api.meta import Kind, Object
from reconciler.clock import Clock
from reconciler.kube.client import Client
from reconciler.kube.watch import Watch
from reconciler.kube.writer import write_status


class KubeEntries:
    """GlobalContextEntries, as stored, and the objects that they select.

    The objects are read by `worker`, which has the rights of policies.
    """

    def __init__(self, client: Client, worker: Client, clock: Clock, entries: Kind) -> None:
        self._client = client
        self._kind = entries
        self._worker = worker
        self._clock = clock

    def follow(self) -> Watch:
        """Return a watch on all entries."""
        return Watch(self._client, self._kind, self._clock)

    def follow_objects(self, kind: Kind, namespace: str) -> Watch:
        """Return a watch on all objects of a kind; an empty namespace means all namespaces."""
        return Watch(self._worker, kind, self._clock, namespace=namespace)

    async def write_status(self, entry: Object, status: Mapping[str, Any]) -> Object:
        """Merge into the status of exactly this version of an entry; return the stored object."""
        return await write_status(self._client, self._kind, entry, status)
