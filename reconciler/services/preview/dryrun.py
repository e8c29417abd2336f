"""A view of the cluster as if all writes of a preview had been carried out.

It is a `Reader` and a `Writer` for the same services that work on the real cluster: a write is
kept as a patch, which the next read applies. Reads are cached for a while, because a preview reads
the same namespace, target or list many times.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, replace
from typing import Generic, Self, TypeVar

import jsonpatch
import orjson
from jsonpatch import JsonPatchException, JsonPointerException

from reconciler.api.account import ServiceAccount
from reconciler.api.meta import ANNOTATION_APPLIED, FIELD_MANAGER, Kind, Object
from reconciler.engine.patch import json_diff
from reconciler.errors import ClusterError, Conflict, Forbidden, Unreadable
from reconciler.recent import Recent
from reconciler.services.ports.objects import Page, Reader, Writer

T = TypeVar("T")

_OBJECTS = 1_000
_PAGES = 4
"""Pages may hold hundreds of objects of up to a megabyte."""

Identity = tuple[str, str, str, str, str]
"""apiVersion, kind, namespace, name and subresource, as `requests.lifecycle.identity`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """A change that would be written.

    Attributes:
        after: Without the marker that the controller leaves on a target.
        repeats: The rule would change its own result again, so the controller leaves a marker.
    """

    before: Object
    after: Object
    repeats: bool


class DryRun:
    """Reads from the cluster, and keeps the writes.

    Attributes:
        writes: By target, since the caller last emptied it; changes of one target accumulate.
        refused: The targets whose change the API server refused in a dry run, since then.
        permissions: Missing rights, as they have to be granted.
    """

    def __init__(self, reader: Reader, server: Writer | None = None) -> None:
        """Create a view of a reader's cluster, with an optional writer of server-side dry runs."""
        self.writes: dict[Identity, Write] = {}
        self.refused: set[Identity] = set()
        self.permissions: set[str] = set()
        self._reader = reader
        self._server = server
        self._objects: _Memory[Object] = _Memory(_OBJECTS)
        self._pages: _Memory[Page] = _Memory(_PAGES)
        self._patches: dict[Identity, bytes] = {}
        self._others: dict[ServiceAccount, Self] = {}

    def acting_as(self, account: ServiceAccount | None) -> Self:
        """Return a view that reads and tries as an account; None returns this one.

        Both share the kept writes, but not the cached reads.
        """
        if account is None:
            return self
        other = self._others.get(account)
        if other is None:
            server = None if self._server is None else self._server.acting_as(account)
            other = self._others[account] = type(self)(self._reader.acting_as(account), server)
            other.writes, other.refused = self.writes, self.refused
            other.permissions = self.permissions
            other._patches = self._patches  # noqa: SLF001 - its own class
        return other

    async def get(self, kind: Kind, namespace: str, name: str) -> Object:
        """Return the object with the kept writes applied."""
        live = await self._live(kind, namespace, name)
        return self._changed(_identity(kind, namespace, name), live)

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
        """Return a page with the kept writes applied; selectors match the stored objects."""
        page = await self._noted(
            self._pages.get(
                (kind, namespace, labels, fields, limit, token),
                lambda: self._reader.list_page(
                    kind,
                    namespace=namespace,
                    labels=labels,
                    fields=fields,
                    limit=limit,
                    token=token,
                ),
            )
        )
        return replace(page, items=tuple(self._seen(kind, item) for item in page.items))

    async def change(
        self, kind: Kind, before: Object, after: Object, *, manager: str = FIELD_MANAGER
    ) -> Object:
        """Keep a change, if the API server accepts it in a dry run where there is one."""
        meta = before.get("metadata") or {}
        namespace, name = str(meta.get("namespace") or ""), str(meta.get("name") or "")
        key = _identity(kind, namespace, name)
        shown = _unmarked(after, before)
        live = await self._live(kind, namespace, name) if key in self._patches else before
        if self._server is not None:
            await self._try(kind, key, self._server.change(kind, live, after, manager=manager))
        earlier = self.writes.get(key)
        self.writes[key] = Write(
            before=before if earlier is None else earlier.before,
            after=shown,
            repeats=shown is not after,
        )
        self._patches[key] = orjson.dumps(json_diff(live, shown))
        return shown

    async def _try(self, kind: Kind, key: Identity, change: Awaitable[Object]) -> None:
        try:
            await self._noted(change)
        except Conflict:
            # The object changed meanwhile, and the next read has to see that.
            self._objects.forget((kind, key[2], key[3]))
            self._pages.clear()
            raise
        except ClusterError:
            self.refused.add(key)
            raise

    async def _live(self, kind: Kind, namespace: str, name: str) -> Object:
        return await self._noted(
            self._objects.get(
                (kind, namespace, name), lambda: self._reader.get(kind, namespace, name)
            )
        )

    async def _noted(self, work: Awaitable[T]) -> T:
        try:
            return await work
        except Forbidden as error:
            self.permissions.add(error.permission)
            raise

    def _seen(self, kind: Kind, obj: Object) -> Object:
        meta = obj["metadata"]
        return self._changed(_identity(kind, meta.get("namespace", ""), meta["name"]), obj)

    def _changed(self, key: Identity, live: Object) -> Object:
        patch = self._patches.get(key)
        if patch is None:
            return live
        try:
            changed: Object = jsonpatch.apply_patch(live, orjson.loads(patch))
        except RecursionError:
            raise Unreadable(f"{'/'.join(key[:4])} is nested too deeply to be copied") from None
        except (JsonPatchException, JsonPointerException):
            # The object changed since, and the kept patch no longer applies.
            del self._patches[key]
            return live
        return changed


class _Memory(Generic[T]):
    """Cache of the last answers; concurrent requests for one key share a call."""

    def __init__(self, size: int) -> None:
        self._kept: Recent[Hashable, asyncio.Future[T]] = Recent(size)

    async def get(self, key: Hashable, ask: Callable[[], Awaitable[T]]) -> T:
        known = self._kept.get(key)
        if known is None:
            known = asyncio.ensure_future(ask())
        self._kept.keep(key, known)
        # Cancelling one waiter must not cancel the shared call.
        return await asyncio.shield(known)

    def forget(self, key: Hashable) -> None:
        self._kept.pop(key, None)

    def clear(self) -> None:
        self._kept.clear()


def _identity(kind: Kind, namespace: str, name: str) -> Identity:
    return kind.api_version, kind.kind, namespace, name, kind.subresource


def _unmarked(after: Object, before: Object) -> Object:
    """Return an object with the marker that it had before; the same object if unchanged."""
    marker = _annotations(after).get(ANNOTATION_APPLIED)
    old = _annotations(before).get(ANNOTATION_APPLIED)
    if marker == old:
        return after
    annotations = {**_annotations(after), ANNOTATION_APPLIED: old}
    annotations = {name: text for name, text in annotations.items() if text is not None}
    meta = {**after["metadata"], "annotations": annotations}
    if not annotations:
        del meta["annotations"]
    return {**after, "metadata": meta}


def _annotations(obj: Object) -> Object:
    found: Object = (obj.get("metadata") or {}).get("annotations") or {}
    return found
