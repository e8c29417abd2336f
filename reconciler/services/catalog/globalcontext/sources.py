"""The sources of an entry's data: watched objects, or a call that is repeated."""

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
from reconciler.services.ports.isolation import Isolation
from reconciler.services.ports.objects import Kinds, RuleLoader
from reconciler.services.ports.policies import Entries, Feed

STALE = 30.0
"""Seconds without a message from a failing watch after which its objects count as stale."""

UNREAD = "its data was not read yet"
"""The problem of a source while no data has arrived and no error is known."""
_HOPELESS = (Forbidden, NotFound, Invalid, NoKindMatch)
"""Errors that an immediate retry does not fix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Intervals and timeouts, in seconds.

    Attributes:
        patrol: Between two checks of which entries are ready.
        grace: How long a read waits for an entry that has only just begun.
        missing: How long after the first failed read a wanted entry counts as not delivered by
            the watch yet, rather than as absent.
        patience: How long a read then waits for a projection, None for no limit.
        again: From the end of a watch to the next one.
        too_much: From exceeding the size limit of the objects to the next attempt.
        first: From a failed refresh to the next one; doubled after each failure.
        longest: The limit of this doubling.
        quick: Between the tries of one refresh; doubled after each, up to `again`.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """The dependencies of global entries.

    Attributes:
        loader: Reads the data of entries, and everything else that rules read.
        spread: Adds jitter: returns a random pause near the given one.
        most_bytes: The largest size of the objects of one entry, as JSON; beyond it none are kept.
    """

    entries: Entries
    kinds: Kinds
    loader: RuleLoader
    clock: Clock
    spread: Callable[[float], float]
    warn: Callable[[str], None]
    isolation: Isolation
    most_bytes: int
    protection: Protection = field(default_factory=Protection)
    pace: Pace = field(default_factory=Pace)


class Source(Protocol):
    """The data of an entry and its state.

    Attributes:
        revision: Increases with each change of the data.
        refreshed: When data last arrived, None if none has arrived yet.
    """

    revision: int
    refreshed: datetime | None

    @property
    def problem(self) -> str:
        """Return why the data may not be used, empty if it may."""

    def data(self) -> Any:
        """Return the data, which the caller must not change."""

    async def run(self) -> None:
        """Keep the data up to date until cancelled."""


@dataclass(slots=True, kw_only=True)
class Followed:
    """All objects of a resource, kept up to date by a list and a watch."""

    wanted: ResourceSource
    deps: Dependencies
    revision: int = 0
    refreshed: datetime | None = None
    _objects: dict[tuple[str, str], tuple[Object, int]] = field(default_factory=dict)
    _bytes: int = 0
    _list: list[Object] | None = None
    _feed: Feed | None = None
    _error: str = ""

    @property
    def problem(self) -> str:
        """Return why the objects may not be used, empty if they may."""
        feed = self._feed
        if self._error or feed is None:
            return self._error or UNREAD
        if not feed.synced.is_set():
            return feed.problem or UNREAD
        silent = self.deps.clock.monotonic() - feed.progress
        return feed.problem if feed.problem and silent > STALE else ""

    def data(self) -> list[Object]:
        """Return the objects, by namespace and name."""
        if self._list is None:
            self._list = [self._objects[key][0] for key in sorted(self._objects)]
        return self._list

    async def run(self) -> None:
        """Keep the objects up to date until cancelled."""
        while True:
            pause = self.deps.pace.again
            try:
                await self._follow(await self._kind())
            except _TooMuchError as error:
                self._error, pause = str(error), self.deps.pace.too_much
            except ClusterError as error:
                self._error = str(error)
            await asyncio.sleep(pause)

    async def _kind(self) -> Kind:
        wanted = self.wanted
        if reason := self.deps.protection.of_read(wanted.group, wanted.resource, wanted.namespace):
            raise Invalid(f"kubernetesResource: {reason}")
        kind = await self.deps.kinds.of_resource(wanted.group, wanted.version, wanted.resource)
        if kind is None:
            where = f"{wanted.group}/{wanted.version}" if wanted.group else wanted.version
            raise NoKindMatch(f"the cluster does not serve {wanted.resource} of {where}")
        if wanted.namespace and not kind.namespaced:
            raise Invalid(
                f"{wanted.resource} are in no namespace: remove kubernetesResource.namespace"
            )
        return kind

    async def _follow(self, kind: Kind) -> None:
        self._feed = self.deps.entries.follow_objects(kind, self.wanted.namespace)
        self._error = ""
        self.refreshed = self.deps.clock.now()
        try:
            async with contextlib.aclosing(self._feed.events()) as events:
                async for change, obj in events:
                    if not self.deps.protection.hides(kind, obj):
                        self._take(obj, gone=change == "DELETED")
                    # The first list arrives all at once; let other tasks run in between.
                    await asyncio.sleep(0)
        finally:
            self._objects, self._bytes, self._list = {}, 0, None
            self.revision += 1

    def _take(self, obj: Object, *, gone: bool) -> None:
        meta = obj["metadata"]
        key = str(meta.get("namespace", "")), str(meta["name"])
        self._bytes -= self._objects.pop(key, (None, 0))[1]
        if not gone:
            # Often half of an object's size, and of no use to a rule.
            kept = {name: value for name, value in meta.items() if name != "managedFields"}
            lean = {**obj, "metadata": kept}
            size = _size(lean, key)
            self._objects[key] = lean, size
            self._bytes += size
        if self._bytes > self.deps.most_bytes:
            raise _TooMuchError(
                f"the objects are more than {self.deps.most_bytes} bytes (--max-entry): name a"
                " namespace, or use an apiCall with a labelSelector"
            )
        self._list = None
        self.revision += 1
        self.refreshed = self.deps.clock.now()


def _size(obj: Object, key: tuple[str, str]) -> int:
    try:
        return len(orjson.dumps(obj))
    except orjson.JSONEncodeError as error:
        place = "/".join(filter(None, key))
        raise _TooMuchError(f"{place} is nested too deeply to be kept: {error}") from error


@dataclass(slots=True, kw_only=True)
class Polled:
    """The response of a call that is repeated at an interval.

    After a failed refresh the data may not be used. What a rule writes from a stale response is
    never corrected, while an UpdateRequest that waits loses nothing.
    """

    wanted: CallSource
    deps: Dependencies
    revision: int = 0
    refreshed: datetime | None = None
    problem: str = UNREAD
    _answer: Any = None

    def data(self) -> Any:
        """Return the decoded response."""
        return self._answer

    async def run(self) -> None:
        """Repeat the call until cancelled."""
        interval, pause = self.wanted.interval, self.deps.pace.first
        while True:
            error = await self._refresh()
            if error is None:
                self.problem, pause = "", self.deps.pace.first
                await asyncio.sleep(interval)
                continue
            self.problem = str(error)
            await asyncio.sleep(self.deps.spread(min(interval, pause)))
            pause = min(pause * 2, self.deps.pace.longest)

    async def _refresh(self) -> ClusterError | None:
        failed: ClusterError | None = None
        for attempt in range(self.wanted.tries):
            if attempt:
                await asyncio.sleep(
                    min(self.deps.pace.quick * 2 ** (attempt - 1), self.deps.pace.again)
                )
            try:
                answer = await self.deps.loader.load(self.wanted.load)
            except ClusterError as error:
                failed = error
                if isinstance(error, _HOPELESS):
                    return failed
            else:
                if answer != self._answer or self.refreshed is None:
                    self._answer = answer
                    self.revision += 1
                self.refreshed = self.deps.clock.now()
                return None
        return failed


class _TooMuchError(Exception):
    """The objects of an entry exceed its limits of size and depth."""
