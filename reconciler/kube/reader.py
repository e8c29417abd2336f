"""The `Reader` port: live reads as raw bytes and plain dicts."""

from typing import Any

from reconciler.api.meta import Kind, Object
from reconciler.kube.client import Client
from reconciler.kube.paths import collection_path, object_path
from reconciler.services.ports import Page

_LIST_TIMEOUT = 60.0


class KubeReader:
    """Reads objects of any kind."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def get(self, kind: Kind, namespace: str, name: str) -> Object:
        """Return the object, of a kind with subresource that subresource."""
        answer: Object = await self._client.json("GET", object_path(kind, namespace, name))
        return answer

    async def list_page(
        self,
        kind: Kind,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        limit: int = 500,
        token: str = "",
    ) -> Page:
        """Return one page; an empty namespace means all. Items carry apiVersion and kind."""
        query = {
            "limit": str(limit),
            "labelSelector": labels,
            "fieldSelector": fields,
            "continue": token,
        }
        answer = await self._client.json(
            "GET",
            collection_path(kind, namespace),
            query={key: value for key, value in query.items() if value},
            timeout=_LIST_TIMEOUT,
        )
        return page_of(answer, kind)


def page_of(answer: Any, kind: Kind) -> Page:
    """Return a decoded list as a page; items of built-in kinds come without their kind."""
    head = {"apiVersion": kind.api_version, "kind": kind.kind}
    meta = answer.get("metadata") or {}
    return Page(
        items=tuple(head | item for item in answer.get("items") or ()),
        token=meta.get("continue") or "",
        remaining=meta.get("remainingItemCount") or 0,
        resource_version=meta.get("resourceVersion") or "",
    )
