"""The GlobalContextEntries of the cluster, watched and kept in memory for rules to read.

The leader keeps all of them and writes their statuses. An admission server keeps those that rules
read before an object is stored. Reading an entry that is not available raises `NotReady`: an
UpdateRequest waits and is woken later, a webhook call fails.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from reconciler.api.account import ServiceAccount
from reconciler.api.globalcontext import EntryStatus
from reconciler.api.meta import Object
from reconciler.dialects.registry import CallSource, CompiledEntry, ResourceSource, compile_entry
from reconciler.engine.confidential import may_hold_secrets
from reconciler.engine.loads import GlobalLoad, Load
from reconciler.errors import InvalidPolicy, NotReady
from reconciler.services.catalog.globalcontext.held import Held, not_ready
from reconciler.services.catalog.globalcontext.projections import Projections
from reconciler.services.catalog.globalcontext.sources import (
    Dependencies,
    Followed,
    Polled,
    Source,
)
from reconciler.services.jobs import repeat
from reconciler.services.ports.objects import Loader
from reconciler.services.ports.policies import Change, Feed
from reconciler.signals import Signal

_PEEK = 0.05


class Verdicts(Protocol):
    """Receives the status of each entry, at every patrol.

    Attributes:
        judged: Emits an entry whose state changed, and why rules cannot read it (empty: they can).
    """

    judged: Signal[[Object, str]]

    async def take(self, held: Held, status: EntryStatus) -> None:
        """Report what is new about an entry."""


@dataclass(slots=True)
class GlobalContext:
    """The `Loader` of rules: reads entries from memory, everything else through another loader.

    Attributes:
        wanted: The names of the entries to keep, None for all.
        ready: Emitted when an entry becomes readable.
    """

    deps: Dependencies
    verdicts: Verdicts
    wanted: frozenset[str] | None = None
    ready: Signal[[]] = field(default_factory=Signal)
    _held: dict[str, Held] = field(default_factory=dict)
    _unwanted: dict[str, Object] = field(default_factory=dict)
    _missed: dict[str, float] = field(default_factory=dict)
    _feed: Feed | None = None
    _reported: str = ""

    async def load(self, load: Load) -> Any:
        """Return the data that a context entry refers to.

        Raises:
            NotReady: It refers to a GlobalContextEntry that cannot be read now.
        """
        if not isinstance(load, GlobalLoad):
            return await self.deps.loader.load(load)
        name, _, projection = load.name.partition(".")
        pace = self.deps.pace
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pace.grace):
                await self._begun(name)
        held = self._held.get(name)
        if held is None:
            raise self._absent(name)
        try:
            async with asyncio.timeout(pace.patience):
                return await held.read(projection)
        except TimeoutError:
            late = f"it takes longer than {pace.patience:g} s to evaluate"
            raise not_ready(name, held.problem() or late) from None

    def want(self, names: frozenset[str] | None) -> None:
        """Keep only the entries with these names from now on, or all if None."""
        if names == self.wanted:
            return
        self.wanted = names
        self._missed.clear()
        for name in [name for name in self._held if not self._is_wanted(name)]:
            held = self._held.pop(name)
            held.close()
            self._unwanted[name] = held.stored
        for name in [name for name in self._unwanted if self._is_wanted(name)]:
            self._keep(name, self._unwanted.pop(name))

    def stored(self, names: frozenset[str] | None) -> Iterator[CompiledEntry]:
        """Yield the stored entries with these names (None for all) that can be compiled."""
        known = {**self._unwanted, **{name: held.stored for name, held in self._held.items()}}
        for name, entry in known.items():
            if names is None or name in names:
                with contextlib.suppress(InvalidPolicy):
                    yield compile_entry(entry)

    async def begun(self) -> None:
        """Wait until the state of every wanted entry is known, readable or not."""
        # No entry has the empty name, so this only waits for the list of entries.
        await self._begun("")
        names = self._held if self.wanted is None else self.wanted
        await asyncio.gather(*map(self._begun, tuple(names)))

    def acting_as(self, account: ServiceAccount | None) -> Loader:
        """Return a loader that reads everything except global entries as an account."""
        if account is None:
            return self
        return WithEntries(entries=self, loader=self.deps.loader.acting_as(account))

    def readable(self) -> tuple[int, int]:
        """Return the numbers of entries that rules can and cannot read."""
        ready = sum(held.was_ready for held in self._held.values())
        return ready, len(self._held) - ready

    async def run(self) -> None:
        """Keep the wanted entries up to date until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow())
                group.create_task(repeat(self.look, every=self.deps.pace.patrol, at_once=False))
        finally:
            ending = [task for held in self._held.values() for task in held.close()]
            await asyncio.gather(*ending, return_exceptions=True)

    async def _begun(self, name: str) -> None:
        while self._beginning(name):  # noqa: ASYNC110  (several tasks change it, each in its way)
            await asyncio.sleep(_PEEK)

    def _beginning(self, name: str) -> bool:
        held = self._held.get(name)
        if held is not None:
            return held.beginning
        return not self._listed or self._may_come(name)

    def _may_come(self, name: str) -> bool:
        """Return whether a missing entry may exist although the watch has not delivered it yet."""
        if self.wanted is None or name not in self.wanted:
            return False
        now = self.deps.clock.monotonic()
        return now - self._missed.setdefault(name, now) < self.deps.pace.missing

    @property
    def _listed(self) -> bool:
        """Return whether the list of entries has arrived, or is known to fail."""
        feed = self._feed
        return feed is not None and (feed.synced.is_set() or bool(feed.problem))

    def _absent(self, name: str) -> NotReady:
        feed = self._feed
        if feed is not None and feed.synced.is_set():
            return NotReady(f"there is no GlobalContextEntry {name}: create it")
        problem = "" if feed is None else feed.problem
        return NotReady(f"GlobalContextEntries are not listed yet: {problem or 'try again soon'}")

    async def _follow(self) -> None:
        self._feed = self.deps.entries.follow()
        async with contextlib.aclosing(self._feed.events()) as events:
            async for change, entry in events:
                self._take(change, entry)

    def _take(self, change: Change, entry: Object) -> None:
        name = str(entry["metadata"]["name"])
        self._missed.pop(name, None)
        if change == "DELETED":
            self._unwanted.pop(name, None)
            if (gone := self._held.pop(name, None)) is not None:
                gone.close()
        elif self._is_wanted(name):
            self._keep(name, entry)
        else:
            self._unwanted[name] = entry

    def _is_wanted(self, name: str) -> bool:
        return self.wanted is None or name in self.wanted

    def _keep(self, name: str, entry: Object) -> None:
        new, held = self._new(name, entry), self._held.get(name)
        if held is not None and held.identity == new.identity:
            held.on_stored(entry)
            return
        if held is not None:
            held.close()
        self._held[name] = new
        new.begin()

    def _new(self, name: str, entry: Object) -> Held:
        now = self.deps.clock.monotonic()
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
        if isinstance(compiled.source, ResourceSource):
            return Followed(wanted=compiled.source, deps=self.deps)
        return Polled(wanted=compiled.source, deps=self.deps)

    def _projections(self, compiled: CompiledEntry, source: Source) -> Projections | None:
        if not compiled.projections:
            return None
        return Projections(
            source=source,
            expressions=compiled.projections,
            isolation=self.deps.isolation,
            clock=self.deps.clock,
        )

    async def look(self) -> None:
        """Check once which entries became readable or unreadable, and report it."""
        self._tell("" if self._feed is None else self._feed.problem)
        await self._evaluated()
        seen = [(held, held.status()) for held in self._held.values()]
        for held, status in seen:
            if held.turns_ready(ready=not status.problem):
                self.ready.emit()
        for held, status in seen:
            if self._held.get(held.name) is held and not self._is_too_early(held):
                await self.verdicts.take(held, status)

    def _is_too_early(self, held: Held) -> bool:
        age = self.deps.clock.monotonic() - held.since
        return held.beginning and age < self.deps.pace.grace

    async def _evaluated(self) -> None:
        """Start due checks of projections and wait for them, for a moment at most."""
        for held in self._held.values():
            held.problem()
        begun = [held.looking for held in self._held.values() if held.looking is not None]
        if begun:
            await asyncio.wait(begun, timeout=_PEEK)

    def _tell(self, problem: str) -> None:
        if problem and problem != self._reported:
            self.deps.warn(f"GlobalContextEntries: {problem}")
        self._reported = problem


@dataclass(frozen=True, slots=True, kw_only=True)
class WithEntries:
    """A `Loader` that reads global entries from a shared loader and the rest from another."""

    entries: Loader
    loader: Loader

    async def load(self, load: Load) -> Any:
        """Return the data that a context entry refers to."""
        return await (self.entries if isinstance(load, GlobalLoad) else self.loader).load(load)


def _is_confidential(source: ResourceSource | CallSource) -> bool:
    if isinstance(source, ResourceSource):
        return (source.group, source.resource) == ("", "secrets")
    return may_hold_secrets(source.load)
