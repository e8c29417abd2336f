"""The `Reader` port: live reads as raw bytes and plain dicts."""

from typing import Any

from reconciler.api.meta import Kind, Object
from reconciler.kube.client import JSON, Client
from reconciler.kube.paths import collection_path, object_path
from reconciler.services.ports import Page

_LIST_TIMEOUT = 60.0
METADATA_LIST = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


class KubeReader:
    """Reads objects of any kind; with ``metadata_only`` lists hold nothing but metadata."""

    def __init__(self, client: Client, *, metadata_only: bool = False) -> None:
        self._client = client
        self._accept = METADATA_LIST if metadata_only else JSON

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
            accept=self._accept,
            timeout=_LIST_TIMEOUT,
        )
        return page_of(answer, kind)


def page_of(answer: Any, kind: Kind) -> Page:
    """Return a decoded list as a page; items come without their kind, or only with a form's."""
    head = {"apiVersion": kind.api_version, "kind": kind.kind}
    meta = answer.get("metadata") or {}
    return Page(
        items=tuple(head | item | head for item in answer.get("items") or ()),
        token=meta.get("continue") or "",
        remaining=meta.get("remainingItemCount") or 0,
        resource_version=meta.get("resourceVersion") or "",
    )
