"""A list and a watch that follows it, as one stream of events that loses nothing.

After the position is lost (410) everything is listed again, and what is not there any more is
reported as DELETED. Both sides bound the connection: the server ends it after minutes, and so do
we when not even a bookmark came for a while, because a dead peer says nothing.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any, Self

import orjson

from reconciler.api.meta import Kind, Object
from reconciler.clock import Clock
from reconciler.errors import ClusterError, Forbidden, Gone, NoKindMatch, Unavailable
from reconciler.kube.client import Client
from reconciler.kube.decoding import JSON, TooDeep, decode
from reconciler.kube.errors import failure
from reconciler.kube.paths import describe
from reconciler.kube.reader import METADATA, METADATA_LIST
from reconciler.kube.retrying import Backoff, jittered
from reconciler.services.ports.objects import Kinds
from reconciler.services.ports.policies import Change
from reconciler.signals import Signal

_PAGE = 500
_LIST_TIMEOUT = 60.0
_SERVER_TIMEOUT = 270.0
_IDLE = 90.0
BEAT = 3.0
"""Seconds between two signs of life of a watch on which a no rests."""
_LATE = 1.5
"""Seconds that a beat may come late before it counts as silence."""
_SHORTEST = 1.0
_ABSENT = 300.0
"""Seconds until somebody looks, unasked, whether a kind is served by now that need not be."""
_REFUSED = 30.0
"""The same where it is served, and may not be read."""
_WITHHELD = 10.0
"""Seconds for which a kind that need not be served may be refused until it counts as absent."""
_UNREADABLE = "UNREADABLE"
"""The type given to an event whose object is nested too deeply."""


class Watch:
    """Follows the objects of one kind; for one consumer.

    Attributes:
        synced: Set once the first list was handed over in full.
        progress: Monotonic time at which the server last said anything.
        problem: Why it makes no progress; empty while it does.
        beat: Seconds after which the server ends the connection, so that silence and quiet
            differ; 0: minutes, and nobody asks whether it is `fresh`.
        absent: The kind is optional, and not served, or not to be read: there are no objects.
        turned: It became absent, or is there.
    """

    def __init__(
        self,
        client: Client,
        kind: Kind,
        clock: Clock,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        metadata_only: bool = False,
        beat: float = 0.0,
        served: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        """Prepare it.

        Args:
            client: Lists and watches.
            kind: Of the objects.
            clock: Measures silence.
            namespace: The only one that is followed; empty for all.
            labels: Selects the objects.
            fields: The same.
            metadata_only: Of each object only its metadata is wanted.
            beat: See the class.
            served: Tells of an optional kind whether the cluster serves it, without trying to
                list it: that is refused where the right came with the kind, or did not come.
        """
        self.beat = beat
        self.absent = served is not None
        self.turned: Signal[[]] = Signal()
        self._served = served
        self._refused_at: float | None = None
        self.synced = asyncio.Event()
        self.progress = clock.monotonic()
        self.problem = ""
        self._client = client
        self._kind = kind
        self._clock = clock
        self._resource = client.resource(kind)
        self._namespace = namespace
        self._selectors = {"label_selector": labels, "field_selector": fields}
        self._metadata_only = metadata_only
        self._known: dict[tuple[str, str], Object] = {}
        self._version = ""
        self._backoff = Backoff(first=0.5, longest=30.0)
        self._open = False
        self._proved = float("-inf")
        self._hurry = asyncio.Event()

    @classmethod
    def of_optional(
        cls, client: Client, kind: Kind, clock: Clock, kinds: Kinds, *, namespace: str = ""
    ) -> Self:
        """Return the watch of a kind that a cluster need not serve: discovery tells if it does."""

        async def served() -> bool:
            return bool(await kinds.find(kind.api_version, kind.kind))

        return cls(client, kind, clock, namespace=namespace, served=served)

    async def events(self) -> AsyncGenerator[tuple[Change, Object]]:
        """Yield changes for ever.

        A DELETED that was found out by listing carries only apiVersion, kind and the identifying
        metadata.
        """
        while True:
            try:
                # Whoever stops listening ends the connection with that, and not some time later.
                async with contextlib.aclosing(self._turn()) as turn:
                    async for event in turn:
                        yield event
            except ClusterError as error:
                # What came since comes with the next connection, when nobody knows.
                self._proved = float("-inf")
                if isinstance(error, Gone):
                    self._version = ""
                if not self._is_absence(error):
                    await self._wait(error)
                    continue
                for event in self._nothing(error):
                    yield event
                await self._pause(_ABSENT if isinstance(error, NoKindMatch) else _REFUSED)

    async def _turn(self) -> AsyncGenerator[tuple[Change, Object]]:
        """Yield what one connection brings, after a list where one is needed."""
        # Somebody may want a list while the lines of a watch still come.
        if not self._version or not self.synced.is_set():
            if self.absent and self._served is not None and not await self._served():
                raise NoKindMatch(f"the cluster does not serve {self._kind.resource}", status=404)
            async for event in self._list():
                yield event
            self.synced.set()
        started = self._clock.monotonic()
        async with contextlib.aclosing(self._follow()) as lines:
            async for event in lines:
                yield event
        if self._version and self._clock.monotonic() - started < _SHORTEST:
            kind = self._kind.resource
            await self._wait(Unavailable(f"watch {kind}: the API server ends it at once"))

    def look(self) -> None:
        """Look now whether an optional kind is there by now, where it was not."""
        if self.absent:
            self._hurry.set()

    async def caught_up(self) -> None:
        """Return at once while the watch goes on, else when everything was listed again.

        One with a beat goes on while it is `fresh`.

        For who knows that the API server is there, because it has just called.
        """
        if self.is_caught_up():
            return
        if self.synced.is_set():
            # A watch does not tell when it has given what was missed; a list does.
            self.synced.clear()
            self._version = ""
        self._hurry.set()
        await self.synced.wait()

    def is_caught_up(self) -> bool:
        """Return whether `caught_up` returns at once."""
        if self.absent:
            return True
        return self.synced.is_set() and (self.fresh() if self.beat else self._open)

    def fresh(self) -> bool:
        """Return whether what was handed over is, but for seconds, what is stored.

        That a connection is open proves nothing, nor do its lines: somebody between may hold back
        what the server sends, or some of it. What proves it is a list, and the end that the server
        was asked for, where it comes in time: everything that was sent is before it.
        """
        fresh = self._clock.monotonic() - self._proved < self.beat + _LATE
        if not fresh:
            # Who asks has just been called by the API server, so it is there.
            self._hurry.set()
        return fresh

    def _prove(self) -> None:
        self._proved = self._clock.monotonic()

    async def _wait(self, error: ClusterError) -> None:
        self.problem = str(error)
        await self._pause(max(self._backoff.pause(), error.retry_after or 0.0))

    async def _pause(self, pause: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._hurry.wait()
        self._hurry.clear()

    def _is_absence(self, error: ClusterError) -> bool:
        """Return whether an error says that there is no such kind for this program.

        Where it was read already, a refusal may be one of an authorizer that has just started.
        """
        if self._served is None or isinstance(error, NoKindMatch):
            return self._served is not None
        if not isinstance(error, Forbidden):
            self._refused_at = None
            return False
        now = self._clock.monotonic()
        self._refused_at = now if self._refused_at is None else self._refused_at
        return self.absent or now - self._refused_at >= _WITHHELD

    def _nothing(self, error: ClusterError) -> list[tuple[Change, Object]]:
        """Take in that there are no objects of the kind, and return what that changes."""
        gone: list[tuple[Change, Object]] = [("DELETED", obj) for obj in self._known.values()]
        self._known.clear()
        self._version = ""
        self._heard()
        # That a kind is not there which nobody has installed is in nobody's way.
        self.problem = str(error) if isinstance(error, Forbidden) else ""
        self.synced.set()
        self._turn_to(absent=True)
        return gone

    def _turn_to(self, *, absent: bool) -> None:
        if absent != self.absent:
            self.absent = absent
            self.turned.emit()

    def _heard(self) -> None:
        self.progress = self._clock.monotonic()
        self.problem = ""

    async def _list(self) -> AsyncIterator[tuple[Change, Object]]:
        seen: set[tuple[str, str]] = set()
        token, version = "", ""
        while True:
            answer = await self._resource.get(
                namespace=self._namespace,
                limit=_PAGE,
                _continue=token,
                accept=METADATA_LIST if self._metadata_only else JSON,
                timeout=_LIST_TIMEOUT,
                **self._selectors,
            )
            self._heard()
            self._refused_at = None
            self._turn_to(absent=False)
            meta = answer.get("metadata") or {}
            version = version or str(meta.get("resourceVersion") or "")
            for item in answer.get("items") or ():
                obj = self._named(item)
                seen.add(_key(obj))
                for event in self._upsert(obj):
                    yield event
            token = meta.get("continue") or ""
            if not token:
                break
        for key in self._known.keys() - seen:
            yield "DELETED", self._known.pop(key)
        self._version = version
        self._prove()

    async def _follow(self) -> AsyncGenerator[tuple[Change, Object]]:
        async with self._resource.stream(
            self._namespace,
            allow_watch_bookmarks="true",
            resource_version=self._version,
            timeout_seconds=round(self.beat or jittered(_SERVER_TIMEOUT)),
            accept=METADATA if self._metadata_only else JSON,
            idle=_IDLE,
            total=self.beat + _LATE if self.beat else None,
            **self._selectors,
        ) as lines:
            self._heard()
            if not self._version:
                return  # Somebody needs a list instead.
            self._open = True
            try:
                async for line in lines:
                    for event in self._take(self._decode(line)):
                        yield event
                    self._heard()
                    self._backoff.reset()
                self._heard()
                self._prove()
            finally:
                self._open = False

    def _decode(self, line: bytes) -> Any:
        try:
            return decode(line)
        except TooDeep as error:
            return {**error.value, "type": _UNREADABLE}
        except orjson.JSONDecodeError as error:
            raise Unavailable(f"watch {self._kind.resource}: a line that is not JSON") from error

    def _take(self, event: Any) -> list[tuple[Change, Object]]:
        kind, obj = event["type"], event["object"]
        if kind == "ERROR":
            path = self._resource.path(namespace=self._namespace)
            call = describe("GET", path, watch=True)
            raise failure(call, int(obj.get("code") or 500), {}, orjson.dumps(obj))
        self._version = str(obj["metadata"]["resourceVersion"])
        if kind == "BOOKMARK":
            return []
        if kind == _UNREADABLE:
            # Whoever follows must not go on with what it was before.
            self._client.left_out(
                f"watch {self._kind.resource}: {_key(obj)[1]} is nested too deeply"
            )
            old = self._known.pop(_key(obj), None)
            return [] if old is None else [("DELETED", old)]
        obj = self._named(obj)
        if kind == "DELETED":
            self._known.pop(_key(obj), None)
            return [("DELETED", obj)]
        return self._upsert(obj)

    def _upsert(self, obj: Object) -> list[tuple[Change, Object]]:
        key, meta = _key(obj), obj["metadata"]
        old = self._known.get(key)
        self._known[key] = {
            "apiVersion": obj["apiVersion"],
            "kind": obj["kind"],
            "metadata": {
                name: meta[name]
                for name in ("namespace", "name", "uid", "resourceVersion")
                if name in meta
            },
        }
        if old is None:
            return [("ADDED", obj)]
        if old["metadata"].get("uid") != meta.get("uid"):
            return [("DELETED", old), ("ADDED", obj)]
        if old["metadata"].get("resourceVersion") == meta.get("resourceVersion"):
            return []
        return [("MODIFIED", obj)]

    def _named(self, obj: Object) -> Object:
        return {**obj, "apiVersion": self._kind.api_version, "kind": self._kind.kind}


def _key(obj: Object) -> tuple[str, str]:
    meta = obj["metadata"]
    return str(meta.get("namespace", "")), str(meta["name"])
