"""Named Secrets of our own: the CA and the serving certificate.

The manifests make them, empty. A program that fills them needs no right to create a Secret, which
would be the right to a token of any ServiceAccount of the namespace.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field

from reconciler.api.meta import FIELD_MANAGER, Kind, Object
from reconciler.errors import NotFound
from reconciler.kube.client import APPLY_PATCH, MERGE_PATCH, Client, encode
from reconciler.kube.paths import object_path

SECRETS = Kind(group="", version="v1", kind="Secret", plural="secrets", namespaced=True)
_LABELS = {"app.kubernetes.io/managed-by": "kube-retrofit"}
_QUERY = {"fieldManager": FIELD_MANAGER}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSecret:
    """A Secret with its data decoded, kept out of every printed form."""

    name: str
    data: Mapping[str, bytes] = field(repr=False)
    resource_version: str


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
        except NotFound:
            return None

    async def restore(self, name: str) -> None:
        """Make an empty Secret where there is none; what stands in one stays."""
        body: Object = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": self._namespace, "labels": _LABELS},
        }
        await self._client.request(
            "PATCH",
            object_path(SECRETS, self._namespace, name),
            query={**_QUERY, "force": "true"},
            body=encode(body),
            content_type=APPLY_PATCH,
        )

    async def fill(self, secret: StoredSecret) -> StoredSecret:
        """Write data into a stored Secret if it still has the version given.

        Raises:
            Conflict: It changed since it was read.
            NotFound: It was deleted.
        """
        data = {key: base64.b64encode(value).decode() for key, value in secret.data.items()}
        body = {"metadata": {"resourceVersion": secret.resource_version}, "data": data}
        answer = await self._client.json(
            "PATCH",
            object_path(SECRETS, self._namespace, secret.name),
            query=_QUERY,
            body=encode(body),
            content_type=MERGE_PATCH,
        )
        return _parse(answer)


def _parse(obj: Object) -> StoredSecret:
    data = obj.get("data") or {}
    return StoredSecret(
        name=obj["metadata"]["name"],
        data={key: base64.b64decode(value) for key, value in data.items()},
        resource_version=obj["metadata"]["resourceVersion"],
    )
