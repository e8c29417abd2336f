"""Named Secrets of our own: the CA and the serving certificate."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field

from reconciler.api.meta import FIELD_MANAGER, Kind, Object
from reconciler.errors import AlreadyExists, Gone
from reconciler.kube.client import Client, encode
from reconciler.kube.paths import collection_path, object_path

SECRETS = Kind(group="", version="v1", kind="Secret", plural="secrets", namespaced=True)
_QUERY = {"fieldManager": FIELD_MANAGER}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSecret:
    """A Secret with its data decoded, kept out of every printed form."""

    name: str
    kind: str = "Opaque"
    labels: Mapping[str, str] = field(default_factory=dict)
    data: Mapping[str, bytes] = field(repr=False)
    resource_version: str = ""


class NamedSecrets:
    """Secrets of one namespace, by name."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace

    async def get(self, name: str) -> StoredSecret | None:
        """Return the Secret, None where there is none."""
        try:
            path = object_path(SECRETS, self._namespace, name)
            return _parse(await self._client.json("GET", path))
        except Gone:
            return None

    async def create_if_absent(self, secret: StoredSecret) -> bool:
        """Store a new Secret; tell whether it was ours that was stored."""
        path = collection_path(SECRETS, self._namespace)
        try:
            await self._client.request("POST", path, query=_QUERY, body=self._render(secret))
        except AlreadyExists:
            return False
        return True

    async def replace(self, secret: StoredSecret) -> StoredSecret:
        """Replace the stored Secret if it still has the version given.

        Raises:
            Conflict: It changed since it was read.
        """
        path = object_path(SECRETS, self._namespace, secret.name)
        answer = await self._client.json("PUT", path, query=_QUERY, body=self._render(secret))
        return _parse(answer)

    def _render(self, secret: StoredSecret) -> bytes:
        meta: Object = {
            "name": secret.name,
            "namespace": self._namespace,
            "labels": dict(secret.labels),
        }
        if secret.resource_version:
            meta["resourceVersion"] = secret.resource_version
        data = {key: base64.b64encode(value).decode() for key, value in secret.data.items()}
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": meta,
            "type": secret.kind,
            "data": data,
        }
        return encode(body)


def _parse(obj: Object) -> StoredSecret:
    meta = obj["metadata"]
    data = obj.get("data") or {}
    return StoredSecret(
        name=meta["name"],
        kind=obj.get("type", "Opaque"),
        labels=meta.get("labels") or {},
        data={key: base64.b64decode(value) for key, value in data.items()},
        resource_version=meta["resourceVersion"],
    )
