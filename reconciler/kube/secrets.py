"""The project's named Secrets: the CA and the serving certificate.

The manifests create them empty. So the program that fills them needs no right to create Secrets,
which would amount to a token of any ServiceAccount of the namespace.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field

from reconciler.api.meta import Kind, Object
from reconciler.kube.client import Client

SECRETS = Kind(group="", version="v1", kind="Secret", plural="secrets", namespaced=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSecret:
    """A Secret with its data decoded, which is left out of its representation."""

    name: str
    data: Mapping[str, bytes] = field(repr=False)
    resource_version: str


class NamedSecrets:
    """Secrets of one namespace, by name."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._secrets = client.resource(SECRETS)
        self._namespace = namespace

    async def get(self, name: str) -> StoredSecret | None:
        """Return the Secret, or None if it does not exist."""
        found = await self._secrets.find(name, self._namespace)
        return None if found is None else _parse(found)

    async def restore(self, name: str) -> None:
        """Create an empty Secret if it is missing; the data of an existing one stays.

        The request sets no field but the name: any other would conflict with the installer, for
        example the labels of Helm, at its next upgrade.
        """
        body = {**SECRETS.head, "metadata": {"name": name, "namespace": self._namespace}}
        await self._secrets.server_side_apply(body, name, self._namespace, force_conflicts="true")

    async def fill(self, secret: StoredSecret) -> StoredSecret:
        """Write data into a stored Secret if it still has the given resourceVersion.

        Raises:
            Conflict: The Secret has changed since it was read.
            NotFound: The Secret was deleted.
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
