"""The `Watching` and `HookObjects` ports."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from functools import partial
from typing import Any, Final

import orjson

from reconciler.api.meta import Kind, Object, PolicyRef, resource_version
from reconciler.clock import Clock
from reconciler.errors import Forbidden, NoKindMatch, Silent, Unavailable
from reconciler.hooks.declared import HOOK_KINDS, HOOKS
from reconciler.kube.client import Client
from reconciler.kube.decoding import JSON, TooDeep, cut_deep, decode, name_of
from reconciler.kube.definitions import DEFINITIONS
from reconciler.kube.errors import failure
from reconciler.kube.paths import describe
from reconciler.kube.reader import KubeReader, page_of
from reconciler.kube.retrying import jittered
from reconciler.kube.watch import IDLE, PAGE, SERVER_TIMEOUT, Watch
from reconciler.kube.writer import write_status
from reconciler.services.ports.objects import Kinds
from reconciler.services.ports.watching import WatchEvent, WatchScope

_BRIEF: Final = 5
"""Seconds of a brief watch; the API server sends a bookmark about two before its end."""


class KubeWatching:
    """Watches of any kind, starting at a resourceVersion.

    Not a `Watch`, which yields the latest state per object: a hook runs for every event.
    """

    def __init__(self, client: Client, *, idle: float = IDLE) -> None:
        self._client = client
        self._idle = idle

    async def follow(self, scope: WatchScope, since: str) -> AsyncGenerator[WatchEvent]:
        """Yield the events after a resourceVersion, until the connection ends or is silent."""
        # Without bookmarks, as for the kind Event, a quiet connection and a lost one look the
        # same: the next one shows which it was.
        with contextlib.suppress(Silent):
            async with self._client.resource(scope.kind).stream(
                scope.namespace,
                label_selector=scope.labels,
                field_selector=scope.fields,
                allow_watch_bookmarks="true",
                resource_version=since,
                timeout_seconds=_BRIEF if scope.brief else round(jittered(SERVER_TIMEOUT)),
                accept=JSON,
                idle=self._idle,
            ) as lines:
                async for line in lines:
                    event = self._event(scope, line)
                    if event is not None:
                        yield event

    async def stored_at(self, scope: WatchScope, version: str) -> AsyncIterator[Object]:
        """Yield the objects as they were stored at a resourceVersion."""
        moment = {"resource_version": version, "resource_version_match": "Exact"}
        token = ""
        while True:
            answer = await self._client.resource(scope.kind).get(
                namespace=scope.namespace,
                label_selector=scope.labels,
                field_selector=scope.fields,
                limit=PAGE,
                accept=JSON,
                # A continue token implies the moment of its list.
                **({"_continue": token} if token else moment),
            )
            for item in answer.get("items") or ():
                yield {**item, **scope.kind.head}
            token = str((answer.get("metadata") or {}).get("continue") or "")
            if not token:
                return

    def _event(self, scope: WatchScope, line: bytes) -> WatchEvent | None:
        """Return the event in a line, or None if its object is nested too deeply to be read."""
        resource = self._client.resource(scope.kind)
        call = describe("GET", resource.path(namespace=scope.namespace), watch=True)
        try:
            event = decode(line)
        except TooDeep as error:
            which = name_of(error.value["object"])
            said = f"{call}: the event of {which} is left out, because it is nested too deeply"
            self._client.left_out(said)
            return None
        except orjson.JSONDecodeError as error:
            raise Unavailable(f"{call}: a line that is not JSON") from error
        obj = event["object"]
        if event["type"] == "ERROR":
            raise failure(call, int(obj.get("code") or 500), {}, orjson.dumps(obj))
        named = {} if event["type"] == "BOOKMARK" else {**obj, **scope.kind.head}
        return WatchEvent(type=event["type"], version=resource_version(obj), object=named)


class KubeHooks:
    """Hooks of one namespace; without one, ClusterHooks and the Hooks of all namespaces."""

    def __init__(
        self,
        client: Client,
        kinds: Kinds,
        clock: Clock,
        namespace: str = "",
        *,
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._reader = KubeReader(client)
        self._kinds = (HOOKS,) if namespace else HOOK_KINDS
        self._watches = [
            Watch.of_optional(client, kind, clock, kinds, namespace=namespace)
            for kind in self._kinds
        ]
        self._warn = warn
        for watch in self._watches:
            watch.turned.subscribe(partial(self._tell, watch))

    def _tell(self, watch: Watch) -> None:
        if watch.absent and watch.problem:
            self._warn(f"hooks cannot be read, so none of them runs: {watch.problem}")

    async def events(self) -> AsyncIterator[tuple[str, Object]]:
        """Yield ADDED, MODIFIED and DELETED with the object, without end."""
        seen: asyncio.Queue[tuple[str, Object]] = asyncio.Queue(1)

        async def follow(watch: Watch) -> None:
            async for event in watch.events():
                await seen.put(event)

        async with asyncio.TaskGroup() as group:
            for watch in self._watches:
                group.create_task(follow(watch))
            while True:
                yield await seen.get()

    def look(self) -> None:
        """Check now whether the kinds are served, without waiting for the next regular check."""
        for watch in self._watches:
            watch.look()

    async def stored(self) -> list[Object]:
        """Return all stored hooks, without those of a kind that is not served."""
        found: list[Object] = []
        for kind in self._kinds:
            with contextlib.suppress(NoKindMatch):
                found += [
                    item async for item in self._reader.items(kind, namespace=self._namespace)
                ]
        return found

    async def find(self, ref: PolicyRef) -> Object | None:
        """Return a hook as it is stored now; None if it is known not to exist.

        Parts of it that are nested too deeply are left out.
        """
        for kind in self._kinds:
            if kind.kind == ref.kind:
                try:
                    return await self._find(kind, ref)
                except NoKindMatch:
                    if await self._may_be_defined(kind):
                        raise
        return None

    async def _find(self, kind: Kind, ref: PolicyRef) -> Object | None:
        resource, namespace = self._client.resource(kind), ref.namespace
        # A list, because the program may list hooks, and need not get them.
        named = {"namespace": namespace, "field_selector": f"metadata.name={ref.name}"}
        body: Any = await resource.get(**named, accept=JSON, serialize=False)
        found = self._client.decode("GET", resource.path(namespace=namespace), cut_deep(body))
        return next(iter(page_of(found, kind).items), None)

    async def _may_be_defined(self, kind: Kind) -> bool:
        """Return whether objects of a kind that is not served may still be stored.

        With a definition, the API server deletes all of its objects.
        """
        try:
            page = await self._reader.list_page(
                DEFINITIONS, fields=f"metadata.name={kind.resource}"
            )
        except Forbidden:
            # A program for one namespace need not read definitions.
            return True
        return bool(page.items)

    async def write_status(self, hook: Object, status: Mapping[str, Any]) -> Object:
        """Merge into the status of exactly this version of a hook; return the stored object."""
        kind = next(kind for kind in self._kinds if kind.kind == hook["kind"])
        return await write_status(self._client, kind, hook, status)
