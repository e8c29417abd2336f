"""The Secrets that hold what must not stand in an UpdateRequest, in a namespace of their own.

A Secret is found by the name of its request and by nothing that stands in it, so that no request
can name the Secret of somebody else.
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
    """One Secret at most per request."""

    def __init__(self, client: Client, namespace: str, *, former: str) -> None:
        """Take the namespace that is theirs alone, and that where older versions kept them."""
        self._secrets = client.resource(SECRETS)
        self._namespace = namespace
        self._former = former

    async def create(self, request: str, labels: Mapping[str, str], data: bytes) -> None:
        """Store what belongs to a request; what is stored already stays as it is."""
        body: Object = {
            "apiVersion": "v1",
            "kind": "Secret",
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
        """Return what was stored.

        Args:
            request: The name of the request.
            former: Look also where older versions kept it.

        Raises:
            NotFound: Nothing was stored, or the Secret of that name is not one of these.
            Forbidden: It may only be in the former namespace, which the program may not read.
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
        """Remove it; absent is success, and a Secret that is not one of these stays."""
        await self._delete(self._namespace, request)
        if former:
            # Without the right it waits for whoever ends the upgrade.
            with contextlib.suppress(Forbidden):
                await self._delete(self._former, request)

    async def _delete(self, namespace: str, request: str) -> None:
        name = recorded_name(request)
        with contextlib.suppress(NotFound):
            # Its metadata only: what stands in it is nobody's business any more.
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
