"""The `Reader` and `History` ports: live reads as raw bytes and plain dicts."""

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, Final

import orjson

from reconciler.api.account import ServiceAccount
from reconciler.api.meta import Kind, Object
from reconciler.config import PAGE_BYTES
from reconciler.errors import Forbidden, Gone, ResponseTooLarge
from reconciler.kube.client import Client
from reconciler.kube.decoding import JSON
from reconciler.kube.delegation import PerAccount
from reconciler.services.ports.objects import Page

_LIST_TIMEOUT = 60.0
METADATA_LIST = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
METADATA = f"{JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_PAST = "1"
"""Seconds of the watch on past events, which the API server sends immediately."""
_PAST_IDLE: Final = 5.0
_LESS: Final = 4
_SPARE: Final = 0.75
"""Share of a page's byte limit that is planned to be used, because objects differ in size."""


class KubeReader:
    """Reads objects of any kind; only a page of a single object may exceed ``page_bytes``.

    With ``metadata_only``, lists contain only metadata.
    """

    def __init__(
        self, client: Client, *, page_bytes: int = PAGE_BYTES, metadata_only: bool = False
    ) -> None:
        self._client = client
        self._accept = METADATA_LIST if metadata_only else JSON
        self._page_bytes = page_bytes
        self._means: dict[str, float] = {}
        self._others = PerAccount(
            lambda user: KubeReader(
                client.speaking_for(user), page_bytes=page_bytes, metadata_only=metadata_only
            )
        )

    def acting_as(self, account: ServiceAccount | None) -> "KubeReader":
        """Return a reader that acts as an account; for None, this one."""
        return self if account is None else self._others.of(account)

    async def get(self, kind: Kind, namespace: str, name: str) -> Object:
        """Return the object; if the kind names a subresource, that one."""
        return await self._client.resource(kind).get(name, namespace)

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
        resource = self._client.resource(kind)
        selection = {"label_selector": labels, "field_selector": fields, "_continue": token}
        list_objects: Any = partial(resource.get, namespace=namespace, **selection)
        body = await self._body(kind, list_objects, limit)
        found = self._client.decode("GET", resource.path(namespace=namespace), body)
        page = page_of(found, kind, size=len(body))
        if page.items:
            self._learn(kind, page.size / len(page.items))
        return page

    async def items(self, kind: Kind, **selection: Any) -> AsyncIterator[Object]:
        """Yield the objects of all pages that `list_page` selects."""
        token = ""
        while True:
            page = await self.list_page(kind, token=token, **selection)
            for item in page.items:
                yield item
            if not (token := page.token):
                return

    async def stored(
        self, kind: Kind, namespace: str, name: str, uid: str, since: str
    ) -> bool | None:
        """Return whether an object was stored after a resourceVersion, or None if that is unknown.

        A watch from that version on receives the events that the API server still has.
        """
        try:
            async with self._client.resource(kind).stream(
                namespace,
                field_selector=f"metadata.name={name}",
                resource_version=since,
                timeout_seconds=_PAST,
                accept=METADATA,
                idle=_PAST_IDLE,
            ) as lines:
                async for line in lines:
                    event = orjson.loads(line)
                    if event["type"] == "ERROR":
                        return None
                    if event["object"]["metadata"].get("uid") == uid:
                        return True
        except (Gone, Forbidden):
            return None
        return False

    async def _body(
        self, kind: Kind, list_objects: Callable[..., Awaitable[bytes]], limit: int
    ) -> bytes:
        fit = self._fitting(kind, limit)
        while True:
            try:
                return await list_objects(
                    limit=fit,
                    accept=self._accept,
                    timeout=_LIST_TIMEOUT,
                    most=self._page_bytes if fit > 1 else 0,
                    serialize=False,
                )
            except ResponseTooLarge:
                self._learn(kind, self._page_bytes / fit)
                fit = max(1, fit // _LESS)

    def _fitting(self, kind: Kind, limit: int) -> int:
        mean = self._means.get(kind.resource, 0.0)
        if not mean or not self._page_bytes:
            return limit
        return max(1, min(limit, int(self._page_bytes * _SPARE / mean)))

    def _learn(self, kind: Kind, mean: float) -> None:
        # A larger mean counts immediately, a smaller one gradually.
        known = self._means.get(kind.resource, 0.0)
        self._means[kind.resource] = max(mean, (known + mean) / 2)


def page_of(answer: Any, kind: Kind, *, size: int = 0) -> Page:
    """Return a decoded list as a page; each item gets the list's apiVersion and kind."""
    head = kind.head
    meta = answer.get("metadata") or {}
    return Page(
        items=tuple(head | item | head for item in answer.get("items") or ()),
        token=meta.get("continue") or "",
        remaining=meta.get("remainingItemCount") or 0,
        resource_version=meta.get("resourceVersion") or "",
        size=size,
    )
