"""The `Leases` port."""

from reconciler.api.meta import Kind, Object
from reconciler.errors import Gone
from reconciler.kube.client import Client
from reconciler.kube.paths import object_path

LEASES = Kind(
    group="coordination.k8s.io", version="v1", kind="Lease", plural="leases", namespaced=True
)


class KubeLeases:
    """Leases of one namespace, as others keep them."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace

    async def lease(self, name: str) -> Object | None:
        """Return a Lease, None where there is none."""
        try:
            found: Object = await self._client.json(
                "GET", object_path(LEASES, self._namespace, name)
            )
        except Gone:
            return None
        return found
