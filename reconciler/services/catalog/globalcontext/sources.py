"""Where the data of an entry comes from: objects that are followed, a call that is repeated."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

import orjson

from reconciler.api.meta import Kind, Object
from reconciler.clock import Clock
from reconciler.dialects.registry import CallSource, ResourceSource
from reconciler.errors import ClusterError, Forbidden, Invalid, NoKindMatch, NotFound
from reconciler.services.catalog.protection import Protection
from reconciler.services.ports.objects import Kinds, Loader
from reconciler.services.ports.policies import Entries, Feed

STALE = 30.0
"""Seconds without news, while something is in the way, after which objects count as old."""

_UNREAD = "its data was not read yet"
_HOPELESS = (Forbidden, NotFound, Invalid, NoKindMatch)
"""What a repetition within moments does not cure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Seconds between two times at which something is done.

    Attributes:
        patrol: Between two looks at what became ready.
        grace: That a read waits for an entry that has only just begun.
        missing: For so long after the first read that missed an entry, it counts as one that was
            not heard of yet.
        patience: That a read waits for a projection after that, None: as long as it takes.
        again: From the end of a watch to the next one.
        too_much: From objects that were too many to the next look at them.
        first: From a failed refresh to the next one; it doubles.
        longest: What it doubles to.
        quick: Between the tries of one refresh; it doubles, to `again`.
    """

    patrol: float = 0.5
    grace: float = 2.0
    missing: float = 0.0
    patience: float | None = None
    again: float = 5.0
    too_much: float = 300.0
    first: float = 1.0
    longest: float = 60.0
    quick: float = 0.2


class Source(Protocol):
    """Data and how good it is.

    Attributes:
        revision: Another one after each change of the data.
        refreshed: When the data came, None where none came yet.
    """

    revision: int
    refreshed: datetime | None

    @property
    def problem(self) -> str:
        """Return why the data may not be used, empty where it may."""
        ...

    @property
    def beginning(self) -> bool:
        """Return whether nothing has come yet, and nothing is known to be in the way."""
        ...

    def data(self) -> Any:
        """Return the data, which the caller must not change."""
        ...

    async def run(self) -> None:
        """Keep the data up to date until cancelled."""
        ...


@dataclass(slots=True, kw_only=True)
class Followed:
    """All objects of a resource, kept by a list and a watch.

    Attributes:
        most_bytes: Size as JSON at which nothing is kept any more.
        protection: Tells what is never kept.
    """

    wanted: ResourceSource
    entries: Entries
    kinds: Kinds
    clock: Clock
    most_bytes: int
    protection: Protection = field(default_factory=Protection)
    pace: Pace = field(default_factory=Pace)
    revision: int = 0
    refreshed: datetime | None = None
    _objects: dict[tuple[str, str], tuple[Object, int]] = field(default_factory=dict)
    _bytes: int = 0
    _list: list[Object] | None = None
    _feed: Feed | None = None
    _error: str = ""

    @property
    def problem(self) -> str:
        """Return why the objects may not be used, empty where they may."""
        feed = self._feed
        if self._error or feed is None:
            return self._error or _UNREAD
        if not feed.synced.is_set():
            return feed.problem or _UNREAD
        silent = self.clock.monotonic() - feed.progress
        return feed.problem if feed.problem and silent > STALE else ""

    @property
    def beginning(self) -> bool:
        """Return whether the first list is still on its way."""
        return self.problem == _UNREAD

    def data(self) -> list[Object]:
        """Return the objects, by namespace and name."""
        if self._list is None:
            self._list = [self._objects[key][0] for key in sorted(self._objects)]
        return self._list

    async def run(self) -> None:
        """Keep the objects up to date until cancelled."""
        while True:
            pause = self.pace.again
            try:
                await self._follow(await self._kind())
            except _TooMuchError as error:
                self._error, pause = str(error), self.pace.too_much
            except ClusterError as error:
                self._error = str(error)
            await asyncio.sleep(pause)

    async def _kind(self) -> Kind:
        wanted = self.wanted
        if reason := self.protection.of_read(wanted.group, wanted.resource, wanted.namespace):
            raise Invalid(f"kubernetesResource: {reason}")
        kind = await self.kinds.of_resource(wanted.group, wanted.version, wanted.resource)
        if kind is None:
            where = f"{wanted.group}/{wanted.version}" if wanted.group else wanted.version
            raise NoKindMatch(f"the cluster does not serve {wanted.resource} of {where}")
        if wanted.namespace and not kind.namespaced:
            raise Invalid(
                f"{wanted.resource} are in no namespace: remove kubernetesResource.namespace"
            )
        return kind

    async def _follow(self, kind: Kind) -> None:
        self._feed = self.entries.follow_objects(kind, self.wanted.namespace)
        self._error = ""
        self.refreshed = self.clock.now()
        try:
            async with contextlib.aclosing(self._feed.events()) as events:
                async for change, obj in events:
                    if not self.protection.hides(kind, obj):
                        self._take(obj, gone=change == "DELETED")
                    # A first list comes at once, and the others want to go on.
                    await asyncio.sleep(0)
        finally:
            self._objects, self._bytes, self._list = {}, 0, None

    def _take(self, obj: Object, *, gone: bool) -> None:
        meta = obj["metadata"]
        key = str(meta.get("namespace", "")), str(meta["name"])
        self._bytes -= self._objects.pop(key, (None, 0))[1]
        if not gone:
            # Half of many an object, and of no use to a rule.
            kept = {name: value for name, value in meta.items() if name != "managedFields"}
            lean = {**obj, "metadata": kept}
            size = len(orjson.dumps(lean))
            self._objects[key] = lean, size
            self._bytes += size
        if self._bytes > self.most_bytes:
            raise _TooMuchError(
                f"the objects are more than {self.most_bytes} bytes (--max-entry): name a"
                " namespace, or use an apiCall with a labelSelector"
            )
        self._list = None
        self.revision += 1
        self.refreshed = self.clock.now()


@dataclass(slots=True, kw_only=True)
class Polled:
    """The answer of a call that is made again and again.

    A refresh that fails leaves no data that may be used: a rule writes, and what it writes out of
    an old answer nobody corrects, while a request that waits loses nothing.
    """

    wanted: CallSource
    loader: Loader
    clock: Clock
    spread: Callable[[float], float]
    pace: Pace = field(default_factory=Pace)
    revision: int = 0
    refreshed: datetime | None = None
    problem: str = _UNREAD
    _answer: Any = None

    @property
    def beginning(self) -> bool:
        """Return whether the first answer is still on its way."""
        return self.problem == _UNREAD

    def data(self) -> Any:
        """Return the decoded answer."""
        return self._answer

    async def run(self) -> None:
        """Repeat the call until cancelled."""
        interval, pause = self.wanted.interval, self.pace.first
        while True:
            error = await self._refresh()
            if error is None:
                self.problem, pause = "", self.pace.first
                await asyncio.sleep(interval)
                continue
            self.problem = str(error)
            await asyncio.sleep(self.spread(min(interval, pause)))
            pause = min(pause * 2, self.pace.longest)

    async def _refresh(self) -> ClusterError | None:
        failed: ClusterError | None = None
        for attempt in range(self.wanted.tries):
            if attempt:
                await asyncio.sleep(min(self.pace.quick * 2 ** (attempt - 1), self.pace.again))
            try:
                answer = await self.loader.load(self.wanted.load)
            except ClusterError as error:
                failed = error
                if isinstance(error, _HOPELESS):
                    return failed
            else:
                if answer != self._answer or self.refreshed is None:
                    self._answer = answer
                    self.revision += 1
                self.refreshed = self.clock.now()
                return None
        return failed


class _TooMuchError(Exception):
    """The objects do not fit into memory."""
