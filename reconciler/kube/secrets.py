"""Named Secrets of our own: the CA and the serving certificate.

The manifests make them, empty. A program that fills them needs no right to create a Secret, which
would be the right to a token of any ServiceAccount of the namespace.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field

from reconciler.api.meta import Kind, Object
from reconciler.errors import NotFound
from reconciler.kube.client import Client

SECRETS = Kind(group="", version="v1", kind="Secret", plural="secrets", namespaced=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSecret:
    """A Secret with its data decoded, kept out of every printed form."""

    name: str
    data: Mapping[str, bytes] = field(repr=False)
    resource_version: str


class NamedSecrets:
    """Secrets of one namespace, by name."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._secrets = client.resource(SECRETS)
        self._namespace = namespace

    async def get(self, name: str) -> StoredSecret | None:
        """Return the Secret, None where there is none."""
        try:
            return _parse(await self._secrets.get(name, self._namespace))
        except NotFound:
            return None

    async def restore(self, name: str) -> None:
        """Make an empty Secret where there is none; what stands in one stays.

        It has no field but its name: whoever installed it, as Helm with its labels, would find a
        conflict at its next upgrade.
        """
        body: Object = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": self._namespace},
        }
        await self._secrets.server_side_apply(body, name, self._namespace, force_conflicts="true")

    async def fill(self, secret: StoredSecret) -> StoredSecret:
        """Write data into a stored Secret if it still has the version given.

        Raises:
            Conflict: It changed since it was read.
            NotFound: It was deleted.
        """
        data = {key: base64.b64encode(value).decode() for key, value in secret.data.items()}
        body = {"metadata": {"resourceVersion": secret.resource_version}, "data": data}
        return _parse(await self._secrets.merge(body, secret.name, self._namespace))


def _parse(obj: Object) -> StoredSecret:
    data = obj.get("data") or {}
    return StoredSecret(
        name=obj["metadata"]["name"],
        data={key: base64.b64decode(value) for key, value in data.items()},
        resource_version=obj["metadata"]["resourceVersion"],
    )
