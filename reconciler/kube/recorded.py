"""The Secrets with data that must not be in an UpdateRequest, in a namespace of their own.

A Secret is found by the name of its request and not by any content of the request, so that no
request can name another Secret.
"""

import base64
import contextlib
from collections.abc import Mapping

from reconciler.api.meta import LABEL_RECORDED, Object
from reconciler.errors import AlreadyExists, Forbidden, NotFound
from reconciler.kube.client import Client
from reconciler.kube.reader import METADATA
from reconciler.kube.secrets import SECRETS
from reconciler.requests.naming import recorded_name

_ENTRY = "recorded"


class RecordedSecrets:
    """Stores at most one Secret per request."""

    def __init__(self, client: Client, namespace: str, *, former: str) -> None:
        """Initialize with the dedicated namespace and the namespace that older versions used."""
        self._secrets = client.resource(SECRETS)
        self._namespace = namespace
        self._former = former

    async def create(self, request: str, labels: Mapping[str, str], data: bytes) -> None:
        """Store the data of a request; data that is stored already stays unchanged."""
        body: Object = {
            **SECRETS.head,
            "metadata": {
                "name": recorded_name(request),
                "namespace": self._namespace,
                "labels": {**labels, LABEL_RECORDED: "true"},
            },
            "immutable": True,
            "data": {_ENTRY: base64.b64encode(data).decode()},
        }
        with contextlib.suppress(AlreadyExists):
            await self._secrets.create(body, self._namespace)

    async def read(self, request: str, *, former: bool) -> bytes:
        """Return the stored data.

        Args:
            former: Whether to look also in the namespace that older versions used.

        Raises:
            NotFound: Nothing was stored, or the Secret of that name is a foreign one.
            Forbidden: The data may only be in the former namespace, which cannot be read.
        """
        name = recorded_name(request)
        try:
            secret = await self._secrets.get(name, self._namespace)
        except NotFound:
            if not former:
                raise
            secret = await self._secrets.get(name, self._former)
        data = _recorded(secret)
        if data is None:
            place = secret["metadata"]["namespace"]
            raise NotFound(f"Secret {place}/{name} holds no recorded fields")
        return data

    async def delete(self, request: str, *, former: bool) -> None:
        """Delete the data of a request; a missing Secret is no error, a foreign one is kept."""
        await self._delete(self._namespace, request)
        if former:
            # Without the right, the Secret stays until an administrator completes the upgrade.
            with contextlib.suppress(Forbidden):
                await self._delete(self._former, request)

    async def _delete(self, namespace: str, request: str) -> None:
        name = recorded_name(request)
        with contextlib.suppress(NotFound):
            # Metadata only: the content is not needed any more.
            secret = await self._secrets.get(name, namespace, accept=METADATA)
            if _is_ours(secret):
                same = {"preconditions": {"uid": secret["metadata"]["uid"]}}
                await self._secrets.delete(name, namespace, body=same)


def _recorded(secret: Object) -> bytes | None:
    try:
        data = base64.b64decode(secret["data"][_ENTRY], validate=True)
    except (KeyError, TypeError, ValueError):
        return None
    return data if _is_ours(secret) else None


def _is_ours(secret: Object) -> bool:
    return (secret["metadata"].get("labels") or {}).get(LABEL_RECORDED) == "true"
