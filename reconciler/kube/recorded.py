"""The Secrets that hold what must not stand in an UpdateRequest, in a namespace of their own.

A Secret is found by the name of its request and by nothing that stands in it, so that no request
can name the Secret of somebody else.
"""

import base64
from collections.abc import Mapping

from reconciler.api.meta import FIELD_MANAGER, PREFIX, Object
from reconciler.errors import AlreadyExists, Gone
from reconciler.kube.client import Client, encode
from reconciler.kube.paths import collection_path, object_path
from reconciler.kube.reader import METADATA
from reconciler.kube.secrets import SECRETS
from reconciler.requests.naming import recorded_name

LABEL_RECORDED = f"{PREFIX}recorded"

_ENTRY = "recorded"
_QUERY = {"fieldManager": FIELD_MANAGER}


class RecordedSecrets:
    """One Secret at most per request."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace

    async def create(self, request: str, labels: Mapping[str, str], data: bytes) -> None:
        """Store what belongs to a request; what is stored already stays as it is."""
        body: Object = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": recorded_name(request),
                "namespace": self._namespace,
                "labels": {LABEL_RECORDED: "true", **labels},
            },
            "immutable": True,
            "data": {_ENTRY: base64.b64encode(data).decode()},
        }
        path = collection_path(SECRETS, self._namespace)
        try:
            await self._client.request("POST", path, query=_QUERY, body=encode(body))
        except AlreadyExists:
            return

    async def read(self, request: str) -> bytes:
        """Return what was stored.

        Raises:
            Gone: Nothing was, or the Secret of that name is not one of these.
        """
        path = object_path(SECRETS, self._namespace, recorded_name(request))
        data = _recorded(await self._client.json("GET", path))
        if data is None:
            name = f"{self._namespace}/{recorded_name(request)}"
            raise Gone(f"Secret {name} holds no recorded fields")
        return data

    async def delete(self, request: str) -> None:
        """Remove it; absent is success, and a Secret that is not one of these stays."""
        path = object_path(SECRETS, self._namespace, recorded_name(request))
        try:
            # Its metadata only: what stands in it is nobody's business any more.
            secret = await self._client.json("GET", path, accept=METADATA)
            if _is_ours(secret):
                same = {"preconditions": {"uid": secret["metadata"]["uid"]}}
                await self._client.request("DELETE", path, body=encode(same))
        except Gone:
            return


def _recorded(secret: Object) -> bytes | None:
    try:
        data = base64.b64decode(secret["data"][_ENTRY], validate=True)
    except (KeyError, TypeError, ValueError):
        return None
    return data if _is_ours(secret) else None


def _is_ours(secret: Object) -> bool:
    return (secret["metadata"].get("labels") or {}).get(LABEL_RECORDED) == "true"
