"""All GlobalContextEntries of the cluster: followed, read by rules, accounted for in their status.

Only the process that leads keeps them, so that a service is asked once and a status has one
writer. What a rule reads and cannot be read yet is `NotReady`: the request waits, and is woken.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from reconciler.api.account import ServiceAccount
from reconciler.api.globalcontext import EntryStatus, render_refresh, render_status
from reconciler.api.meta import Object
from reconciler.clock import Clock
from reconciler.dialects.registry import CallSource, CompiledEntry, ResourceSource, compile_entry
from reconciler.engine.confidential import may_hold_secrets
from reconciler.engine.loads import GlobalLoad, Load
from reconciler.errors import ClusterError, Conflict, InvalidPolicy, NotFound, NotReady
from reconciler.services.catalog.globalcontext.held import Held
from reconciler.services.catalog.globalcontext.projections import Projections
from reconciler.services.catalog.globalcontext.sources import Followed, Pace, Polled, Source
from reconciler.services.catalog.protection import Protection
from reconciler.services.jobs import repeat
from reconciler.services.ports.isolation import Isolation
from reconciler.services.ports.objects import Kinds, Loader, RuleLoader
from reconciler.services.ports.policies import Change, Entries, Feed
from reconciler.signals import Signal

_PEEK = 0.05
_STATUS_PAUSE = 2.0
_REFRESH_PAUSE = 30.0
"""Seconds between two writes that tell nothing but the age of the data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """What entries need of the world.

    Attributes:
        loader: Reads everything that is no GlobalContextEntry.
        spread: Gives a pause a random length near the wanted one.
        say: Gets a sentence for the log.
        isolation: Evaluates projections that take long.
        most_bytes: Size of the objects of one entry, as JSON, at which they are not kept.
        protection: Tells what no entry keeps.
    """

    entries: Entries
    kinds: Kinds
    loader: RuleLoader
    clock: Clock
    spread: Callable[[float], float]
    say: Callable[[str], None]
    isolation: Isolation
    most_bytes: int
    protection: Protection = field(default_factory=Protection)
    pace: Pace = field(default_factory=Pace)


@dataclass(slots=True)
class GlobalContext:
    """The `Loader` of rules: reads entries from memory and everything else through another one.

    Attributes:
        ready: An entry can be read that could not before.
        judged: The status of an entry, as stored, says something new: why rules cannot read it
            (empty: they can).
        failures: How often an entry could not be read any more, or never yet.
    """

    world: Dependencies
    ready: Signal[[]] = field(default_factory=Signal)
    judged: Signal[[Object, str]] = field(default_factory=Signal)
    failures: int = 0
    _held: dict[str, Held] = field(default_factory=dict)
    _feed: Feed | None = None
    _told: str = ""

    async def load(self, load: Load) -> Any:
        """Return what a context entry asks for.

        Raises:
            NotReady: It asks for a GlobalContextEntry that cannot be read now.
        """
        if not isinstance(load, GlobalLoad):
            return await self.world.loader.load(load)
        name, _, projection = load.name.partition(".")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.world.pace.grace):
                await self._begun(name)
        return await self._read(name, projection)

    def acting_as(self, account: ServiceAccount | None) -> Loader:
        """Return one by which everything but the entries is read in an account's name."""
        if account is None:
            return self
        return _InThatName(entries=self, loader=self.world.loader.acting_as(account))

    def readable(self) -> tuple[int, int]:
        """Return how many entries rules can read, and how many they cannot."""
        ready = sum(held.was_ready for held in self._held.values())
        return ready, len(self._held) - ready

    async def run(self) -> None:
        """Keep all entries until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow())
                group.create_task(self._patrol())
        finally:
            ending = [task for held in self._held.values() for task in held.close()]
            await asyncio.gather(*ending, return_exceptions=True)

    async def _begun(self, name: str) -> None:
        while self._beginning(name):  # noqa: ASYNC110  (several tasks change it, each in its way)
            await asyncio.sleep(_PEEK)

    def _beginning(self, name: str) -> bool:
        feed, held = self._feed, self._held.get(name)
        if held is not None:
            return held.beginning
        return feed is None or not (feed.synced.is_set() or feed.problem)

    async def _read(self, name: str, projection: str) -> Any:
        held = self._held.get(name)
        if held is not None:
            return await held.read(projection)
        feed = self._feed
        if feed is not None and feed.synced.is_set():
            raise NotReady(f"there is no GlobalContextEntry {name}: create it")
        problem = "" if feed is None else feed.problem
        raise NotReady(f"GlobalContextEntries are not listed yet: {problem or 'it goes on soon'}")

    async def _follow(self) -> None:
        self._feed = self.world.entries.follow()
        async with contextlib.aclosing(self._feed.events()) as events:
            async for change, entry in events:
                self._take(change, entry)

    def _take(self, change: Change, entry: Object) -> None:
        name = str(entry["metadata"]["name"])
        held = self._held.get(name)
        if change == "DELETED":
            if (gone := self._held.pop(name, None)) is not None:
                gone.close()
            return
        new = self._new(name, entry)
        if held is not None and held.identity == new.identity:
            held.on_stored(entry)
            return
        if held is not None:
            held.close()
        self._held[name] = new
        new.begin()

    def _new(self, name: str, entry: Object) -> Held:
        now = self.world.clock.monotonic()
        try:
            compiled = compile_entry(entry)
        except InvalidPolicy as error:
            return Held(name=name, stored=entry, source=None, fault=str(error), since=now)
        source = self._source(compiled)
        return Held(
            name=name,
            stored=entry,
            source=source,
            projections=self._projections(compiled, source),
            confidential=_is_confidential(compiled.source),
            since=now,
        )

    def _source(self, compiled: CompiledEntry) -> Source:
        world = self.world
        if isinstance(compiled.source, ResourceSource):
            return Followed(
                wanted=compiled.source,
                entries=world.entries,
                kinds=world.kinds,
                clock=world.clock,
                most_bytes=world.most_bytes,
                protection=world.protection,
                pace=world.pace,
            )
        return Polled(
            wanted=compiled.source,
            loader=world.loader,
            clock=world.clock,
            spread=world.spread,
            pace=world.pace,
        )

    def _projections(self, compiled: CompiledEntry, source: Source) -> Projections | None:
        if not compiled.projections:
            return None
        return Projections(
            source=source,
            expressions=compiled.projections,
            isolation=self.world.isolation,
            clock=self.world.clock,
        )

    async def _patrol(self) -> None:
        await repeat(self.look, every=self.world.pace.patrol, at_once=False)

    async def look(self) -> None:
        """Look once at what became ready or stopped to be, and write what is new in statuses."""
        self._tell("" if self._feed is None else self._feed.problem)
        await self._evaluated()
        seen = [(held, held.status()) for held in self._held.values()]
        for held, status in seen:
            if held.turns_ready(ready=not status.problem):
                self.ready.emit()
        for held, status in seen:
            if self._held.get(held.name) is held:
                await self._account(held, status)

    async def _evaluated(self) -> None:
        """Wait for what evaluates projections, but for no long one."""
        for held in self._held.values():
            held.problem()
        begun = [held.looking for held in self._held.values() if held.looking is not None]
        if begun:
            await asyncio.wait(begun, timeout=_PEEK)

    async def _account(self, held: Held, status: EntryStatus) -> None:
        now = self.world.clock.monotonic()
        if now - held.written < _STATUS_PAUSE or (
            held.beginning and now - held.since < self.world.pace.grace
        ):
            return
        before = held.stored.get("status") or {}
        wanted = render_status(status, before, self.world.clock.now())
        if wanted is None and now - held.written >= _REFRESH_PAUSE:
            wanted = _newer(render_refresh(status), before)
        if not wanted:
            return
        held.note_write(now)
        if "conditions" in wanted:
            self._judge(held, status.problem)
        try:
            held.on_stored(await self.world.entries.write_status(held.stored, wanted))
        except (Conflict, NotFound):
            return  # The newer version is on its way.
        except ClusterError as error:
            held.note_write(now + _REFRESH_PAUSE)
            self.world.say(f"GlobalContextEntry {held.name}: its status: {error}")

    def _judge(self, held: Held, problem: str) -> None:
        if problem:
            self.failures += 1
            self.world.say(f"GlobalContextEntry {held.name}: {problem}")
        self.judged.emit(held.stored, problem)

    def _tell(self, problem: str) -> None:
        if problem and problem != self._told:
            self.world.say(f"GlobalContextEntries: {problem}")
        self._told = problem


@dataclass(frozen=True, slots=True, kw_only=True)
class _InThatName:
    """Entries are for all rules, whoever reads them; the rest is asked for in one's own name."""

    entries: GlobalContext
    loader: Loader

    async def load(self, load: Load) -> Any:
        return await (self.entries if isinstance(load, GlobalLoad) else self.loader).load(load)


def _newer(refresh: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """Return the refresh time where it is worth a write."""
    new, old = refresh.get("lastRefreshTime", ""), before.get("lastRefreshTime", "")
    if not new or not old:
        return refresh
    passed = datetime.fromisoformat(new) - datetime.fromisoformat(old)
    return refresh if passed.total_seconds() >= 1.0 else {}


def _is_confidential(source: ResourceSource | CallSource) -> bool:
    if isinstance(source, ResourceSource):
        return (source.group, source.resource) == ("", "secrets")
    return may_hold_secrets(source.load)
