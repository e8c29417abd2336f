"""A list followed by a watch, as one lossless stream of events.

After the position is lost (410), everything is listed again, and objects that are not listed any
more are reported as DELETED. Both sides bound the connection: the server ends it after minutes,
and the client when not even a bookmark came for a while, because a dead peer sends nothing.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any, Self

import orjson

from reconciler.api.meta import Kind, Object
from reconciler.clock import Clock
from reconciler.errors import ClusterError, Forbidden, Gone, NoKindMatch, Silent, Unavailable
from reconciler.kube.client import Client
from reconciler.kube.decoding import JSON, TooDeep, decode
from reconciler.kube.errors import failure
from reconciler.kube.paths import describe
from reconciler.kube.reader import METADATA, METADATA_LIST
from reconciler.kube.retrying import jittered
from reconciler.requests.schedule import Backoff
from reconciler.services.ports.objects import Kinds
from reconciler.services.ports.policies import Change
from reconciler.signals import Signal

PAGE = 500
_LIST_TIMEOUT = 60.0
SERVER_TIMEOUT = 270.0
IDLE = 90.0
BEAT = 3.0
"""Seconds between two proofs that a watch is current, where a negative decision needs it."""
_LATE = 1.5
"""Seconds that the end of a beat may be late before the watch counts as silent."""
_SHORTEST = 1.0
_ABSENT = 300.0
"""Seconds between regular checks of whether an optional kind is served by now."""
_REFUSED = 30.0
"""Seconds between these checks for a kind that is served but may not be read."""
_WITHHELD = 10.0
"""Seconds for which an optional kind may be refused until it counts as absent."""
_PAUSES = Backoff(base=0.5, ceiling=30.0)
"""Not by tenacity: each line that arrives resets them, and `look` cuts one short."""
_UNREADABLE = "UNREADABLE"
"""The event type for an object that is nested too deeply."""


class Watch:
    """Watches the objects of one kind; for one consumer.

    Attributes:
        synced: Set once the first list was delivered in full.
        progress: Monotonic time of the last data from the server.
        problem: Why the watch makes no progress; empty while it does.
        beat: Seconds after which the server ends the connection, so that a lost connection and
            a quiet one differ; 0: minutes, for a watch whose `fresh` is not used.
        absent: Whether the optional kind is not served or not readable, so without objects.
        turned: Emitted when `absent` changes.
    """

    def __init__(
        self,
        client: Client,
        kind: Kind,
        clock: Clock,
        *,
        namespace: str = "",
        name: str = "",
        labels: str = "",
        metadata_only: bool = False,
        beat: float = 0.0,
        idle: float = IDLE,
        served: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        """Initialize.

        Args:
            clock: Measures silence.
            namespace: The only namespace that is watched; empty for all.
            name: Name of the only object that is watched; empty for any.
            idle: Seconds of silence after which a connection is replaced by another one.
            served: Returns whether the cluster serves an optional kind, without listing it:
                that fails with 403, not 404, if the right comes with the kind or never.
        """
        self.beat = beat
        self._idle = idle
        self.absent = served is not None
        self.turned: Signal[[]] = Signal()
        self._served = served
        self._refused_at: float | None = None
        self.synced = asyncio.Event()
        self.progress = clock.monotonic()
        self.problem = ""
        self._client = client
        self._kind = kind
        self._head = kind.head
        self._clock = clock
        self._resource = client.resource(kind)
        self._namespace = namespace
        fields = f"metadata.name={name}" if name else ""
        self._selectors = {"label_selector": labels, "field_selector": fields}
        self._metadata_only = metadata_only
        self._known: dict[tuple[str, str], Object] = {}
        self._version = ""
        self._failures = 0
        self._open = False
        self._proved = float("-inf")
        self._hurry = asyncio.Event()

    @classmethod
    def of_optional(
        cls, client: Client, kind: Kind, clock: Clock, kinds: Kinds, *, namespace: str = ""
    ) -> Self:
        """Return the watch of a kind that a cluster need not serve, as discovery reports."""

        async def served() -> bool:
            return bool(await kinds.find(kind.api_version, kind.kind))

        return cls(client, kind, clock, namespace=namespace, served=served)

    async def events(self) -> AsyncGenerator[tuple[Change, Object]]:
        """Yield changes without end.

        A DELETED that was found by listing carries only apiVersion, kind and the identifying
        metadata.
        """
        while True:
            try:
                # A consumer that stops ends the connection immediately, not at garbage collection.
                async with contextlib.aclosing(self._turn()) as turn:
                    async for event in turn:
                        yield event
            except Silent:
                # Some kinds have no bookmarks, such as Event: the next connection shows whether
                # this one was lost or quiet.
                continue
            except ClusterError as error:
                # Changes since then arrive with the next connection, at an unknown time.
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
        """Yield the events of one connection, after a list if one is needed."""
        # `caught_up` may request a list while lines of a watch still arrive.
        if not self._version or not self.synced.is_set():
            if self.absent and self._served is not None and not await self._served():
                raise NoKindMatch(f"the cluster does not serve {self._kind.resource}")
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
        """Check now whether an absent optional kind is served, without waiting."""
        if self.absent:
            self._hurry.set()

    async def caught_up(self) -> None:
        """Return at once while the watch is current, else after everything was listed again.

        A watch with a beat is current while it is `fresh`. Meant for callers that know that the
        API server is reachable, because it has just called them.
        """
        if self.is_caught_up():
            return
        if self.synced.is_set():
            # A watch does not mark the point at which missed events were delivered; a list does.
            self.synced.clear()
            self._version = ""
        self._hurry.set()
        await self.synced.wait()

    def is_caught_up(self) -> bool:
        """Return whether `caught_up` would return at once."""
        if self.absent:
            return True
        return self.synced.is_set() and (self.fresh() if self.beat else self._open)

    def fresh(self) -> bool:
        """Return whether the delivered state is the stored one, up to a few seconds of delay.

        An open connection proves nothing, nor do its lines: a proxy in between may hold back some
        or all of what the server sends. Proof is a list, or the end of the connection that the
        server was asked for, if it comes in time: all events were sent before it.
        """
        fresh = self._clock.monotonic() - self._proved < self.beat + _LATE
        if not fresh:
            # The API server has just called the caller, so it is reachable: reconnect now.
            self._hurry.set()
        return fresh

    async def _wait(self, error: ClusterError) -> None:
        self.problem = str(error)
        self._failures += 1
        pause = jittered(_PAUSES.delay(self._failures))
        await self._pause(max(pause, error.retry_after or 0.0))

    async def _pause(self, pause: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._hurry.wait()
        self._hurry.clear()

    def _is_absence(self, error: ClusterError) -> bool:
        """Return whether an error means that the kind does not exist for this program.

        After a successful read, a refusal may come from an authorizer that has just started.
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
        """Record that the kind has no objects; return the events that follow from it."""
        gone: list[tuple[Change, Object]] = [("DELETED", obj) for obj in self._known.values()]
        self._known.clear()
        self._version = ""
        self._heard()
        # The absence of a kind that was never installed is not a problem.
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
                limit=PAGE,
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
        self._proved = self._clock.monotonic()

    async def _follow(self) -> AsyncGenerator[tuple[Change, Object]]:
        async with self._resource.stream(
            self._namespace,
            allow_watch_bookmarks="true",
            resource_version=self._version,
            timeout_seconds=round(self.beat or jittered(SERVER_TIMEOUT)),
            accept=METADATA if self._metadata_only else JSON,
            idle=self._idle,
            total=self.beat + _LATE if self.beat else None,
            **self._selectors,
        ) as lines:
            self._heard()
            if not self._version:
                return  # `caught_up` requested a list instead.
            self._open = True
            try:
                async for line in lines:
                    for event in self._take(self._decode(line)):
                        yield event
                    self._heard()
                    self._failures = 0
                self._heard()
                self._proved = self._clock.monotonic()
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
            # The consumer must not continue with the previous version of the object.
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
        return {**obj, **self._head}


def _key(obj: Object) -> tuple[str, str]:
    meta = obj["metadata"]
    return str(meta.get("namespace", "")), str(meta["name"])
