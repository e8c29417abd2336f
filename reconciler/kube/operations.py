"""The `Operations` port: whole objects and patches, as a hook's output contains them."""

from typing import Any, Final

from reconciler.api.meta import Kind, Object
from reconciler.errors import Unfinished
from reconciler.kube.client import Client
from reconciler.kube.decoding import JSON_PATCH
from reconciler.kube.retrying import holds
from reconciler.services.ports.objects import Propagation

_PATIENCE: Final = 20.0


class KubeOperations:
    """Writes without a guard; requests that are not idempotent are sent only once.

    Unknown fields are dropped, as the API server does by default.
    """

    def __init__(self, client: Client, *, patience: float = _PATIENCE) -> None:
        self._client = client
        self._patience = patience

    async def create(self, kind: Kind, obj: Object) -> Object:
        """Create an object; return it as stored."""
        namespace = str((obj.get("metadata") or {}).get("namespace", ""))
        return await self._client.resource(kind).create(obj, namespace, repeat=False)

    async def merge_patch(self, kind: Kind, namespace: str, name: str, patch: Object) -> Object:
        """Send a merge patch, to the subresource if the kind names one; return the object."""
        return await self._client.resource(kind).merge(patch, name, namespace)

    async def json_patch(self, kind: Kind, namespace: str, name: str, patch: list[Any]) -> Object:
        """Send a JSON patch, to the subresource if the kind names one; return the object."""
        return await self._client.resource(kind).patch(
            patch, name, namespace, content_type=JSON_PATCH, repeat=False
        )

    async def delete(
        self, kind: Kind, namespace: str, name: str, propagation: Propagation
    ) -> None:
        """Delete an object; with foreground propagation, wait until it is gone."""
        resource = self._client.resource(kind)
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": propagation.value,
        }
        answer = await resource.delete(name, namespace, body=options)
        if propagation is not Propagation.FOREGROUND or answer.get("kind") == "Status":
            return
        uid = (answer.get("metadata") or {}).get("uid")

        async def is_gone() -> bool:
            found = await resource.find(name, namespace)
            return found is None or found["metadata"].get("uid") != uid

        if not await holds(is_gone, within=self._patience):
            raise Unfinished(
                f'{kind.resource} "{name}" was deleted but still exists after'
                f" {self._patience:g} s: it waits for its dependents or for a finalizer"
            )
