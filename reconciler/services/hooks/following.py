"""Informer of a binding's objects in one namespace or in all: it turns events into records.

An informer that ran before resumes where its records end, and finds what happened meanwhile,
deletions too. A new one, or one whose version is gone, starts with a list.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import partial
from hashlib import blake2b
from typing import Any, Final, Protocol

from reconciler.api.meta import Kind, Object, ref_of, resource_version, version_number
from reconciler.clock import Clock
from reconciler.engine.confidential import is_secret
from reconciler.errors import Gone, NoKindMatch, Unavailable
from reconciler.hooks.bindings import DELETED, KubernetesBinding
from reconciler.hooks.contexts import Context, of_change, of_synchronization
from reconciler.hooks.monitor import Monitor, ObservedObject
from reconciler.hooks.records import Passed, Record
from reconciler.services.hooks.accounts import HookAccount
from reconciler.services.hooks.filtering import ObjectFilter
from reconciler.services.jobs import repeat
from reconciler.services.ports.jq import Jq
from reconciler.services.ports.objects import Kinds, Page, Reader
from reconciler.services.ports.reporting import Event, Events
from reconciler.services.ports.watching import WatchEvent, Watching, WatchScope

_SHORTEST: Final = 1.0
_TOGETHER: Final = 500
_RENEWED: Final = 2
"""Watches without an event after which the objects are listed; each lasts 90 seconds."""
_EVENTS: Final = {"ADDED": "Added", "MODIFIED": "Modified", "DELETED": "Deleted"}


@dataclass(slots=True, kw_only=True)
class SnapshotBudget:
    """The bytes of JSON that all snapshots together may hold; 0 for no limit."""

    most: int
    held: int = 0

    def change(self, size: int) -> bool:
        """Add bytes, or subtract them; return whether the total is within the limit."""
        self.held += size
        return not self.most or self.held <= self.most


@dataclass(frozen=True, slots=True, kw_only=True)
class InformerDeps:
    """Dependencies that all informers share."""

    kinds: Kinds
    reader: Reader
    watching: Watching
    jq: Jq
    clock: Clock
    budget: SnapshotBudget
    events: Events


class Beginning(Enum):
    """What a hook receives of the objects that exist when one of its watches starts."""

    SYNCHRONIZATION = auto()
    EVENTS = auto()
    NOTHING = auto()


class _Left(Exception):
    """All objects of a left namespace are reported to the hook as deleted."""


async def events_of(
    deps: InformerDeps, scope: WatchScope, since: str
) -> AsyncGenerator[WatchEvent]:
    """Yield watch events until the connection ends.

    Raises:
        Gone: The API server no longer has the events since that version.
        Unavailable: The connection ended as soon as it had begun.
    """
    started = deps.clock.monotonic()
    stream = deps.watching.follow(scope, since)
    async with contextlib.aclosing(stream) as events:
        async for event in events:
            yield event
    if deps.clock.monotonic() - started < _SHORTEST:
        raise Unavailable("the API server closed the watch immediately")


async def pages_of(deps: InformerDeps, scope: WatchScope) -> AsyncGenerator[Page]:
    """Yield the pages of a list; the version of the first is that of the list."""
    token = ""
    while True:
        page = await deps.reader.list_page(
            scope.kind,
            namespace=scope.namespace,
            labels=scope.labels,
            fields=scope.fields,
            token=token,
        )
        yield page
        token = page.token
        if not token:
            return


class Records(Protocol):
    """Receives records, and how far the watches have come."""

    async def add(self, record: Record) -> None:
        """Accept a record; return when the caller may forget it."""

    def passed(self, marker: Passed) -> None:
        """Accept that nothing else has to be recorded up to a version."""


@dataclass(slots=True, kw_only=True)
class Informer:
    """One list and watch of a binding.

    Attributes:
        scope: Its namespace, empty for all.
        synchronized: Called when its snapshot is complete.
        beginning: What the hook receives at the start if no cursor is recorded.
        introduced: Set once one of the binding's watches has recorded a Synchronization. It has
            the objects of all that start with it, because a run waits until they are listed.
        synced: Set while its snapshot is complete.
    """

    deps: InformerDeps
    account: HookAccount
    recorder: Records
    binding: KubernetesBinding
    scope: str
    synchronized: Callable[[], None]
    beginning: Beginning = Beginning.SYNCHRONIZATION
    introduced: asyncio.Event = field(default_factory=asyncio.Event)
    synced: asyncio.Event = field(default_factory=asyncio.Event)
    _leaving: bool = False
    _starting: bool = True
    _quiet: int = 0
    _monitor: Monitor = field(init=False)
    _filter: ObjectFilter = field(init=False)
    _kind: Kind | None = None
    _digest: str = ""
    _version: str = ""
    _listed: str = ""
    _counted: int = 0

    def __post_init__(self) -> None:
        self._monitor = Monitor(self.binding)
        report = partial(self.account.tell_left_out, self.binding.name, self.scope)
        self._filter = ObjectFilter(binding=self.binding, jq=self.deps.jq, report=report)

    def snapshot(self) -> list[dict[str, Any]]:
        """Return the objects as contexts show them."""
        return self._monitor.snapshot()

    async def run(self) -> None:
        """Follow the objects until cancelled."""
        try:
            await repeat(self._turn, every=0.0, pauses=(0.5, 30.0), tell=self._tell)
        finally:
            self.deps.budget.change(-self._counted)
            self._counted = 0

    async def leave(self) -> None:
        """Report all known objects to the hook as deleted, after the events up to now.

        No other task may run this informer meanwhile.
        """
        self._leaving = True
        with contextlib.suppress(_Left):
            await self.run()
        self._tell("")
        self._filter.forget()

    def _tell(self, problem: str) -> None:
        said = f"{self.binding.name}: {problem}" if problem else ""
        self.account.tell(self.binding.name, self.scope, said)

    async def _turn(self) -> None:
        if not self._version:
            await self._begin()
        await self._release()
        try:
            # A bookmark ends a replay; a brief watch sends one soon, others once a minute.
            scope = replace(self._watched(), brief=self._leaving)
            stream = events_of(self.deps, scope, self._version)
            async with contextlib.aclosing(stream) as events:
                self._tell("")
                async for event in events:
                    await self._take(event)
                    await self._release()
            self._quiet += 1
            if self._quiet >= _RENEWED:
                await self._relist(dropped=False)
        except Gone:
            await self._relist(dropped=True)
        except NoKindMatch:
            if await self._served() == self._kind:
                raise
            # Another version of the kind is served now, in which the hook starts anew.
            self._forget()

    async def _release(self) -> None:
        """Record the objects of a namespace to leave as deleted, once the replay has ended."""
        if not self._leaving or _is_later(self._listed, self._version):
            return
        for change in self._monitor.replace(()):
            context, obj = of_change(self.binding, change), self._named(change.observed)
            await self._record(context, self._version, obj, partial=True)
        self.recorder.passed(replace(self._passed(self._version), left=True))
        raise _Left

    async def _begin(self) -> None:
        """List, and choose the version at which the watch starts."""
        self._kind = await self._served()
        self._digest = self._digested()
        cursor = self.account.cursors.get((self.binding.name, self.scope))
        since = cursor.since(self._digest, leaving=self._leaving) if cursor is not None else ""
        if self._leaving and not since:
            raise _Left
        if since:
            self._listed, self._version = await self._list(since), since
        else:
            # The cursor of a binding with other settings does not apply to this one.
            self.account.cursors.pop((self.binding.name, self.scope), None)
            await self._introduce()
        self._starting = False
        self.synced.set()
        self.synchronized()

    def _forget(self) -> None:
        self._monitor = Monitor(self.binding)
        self._filter.forget()
        self.deps.budget.change(-self._counted)
        self._counted, self._version = 0, ""
        self.synced.clear()

    async def _list(self, since: str) -> str:
        """Load the existing objects; return the version of the list."""
        self._forget()
        version = ""
        async for page in pages_of(self.deps, self._watched()):
            version = version or page.resource_version
            for obj, observed in await self._filter.observed(page.items):
                self._monitor.resume(observed, given=not _is_later(resource_version(obj), since))
            self._count()
        return version

    async def _introduce(self) -> None:
        """Load the existing objects, and record what the hook receives of them."""
        if self.beginning is Beginning.EVENTS:
            self._forget()
            await self._compare(self._monitor)
            return
        self._listed = self._version = await self._list("")
        context = of_synchronization(self.binding)
        wanted = self.beginning is Beginning.SYNCHRONIZATION
        if wanted and context is not None and not (self._starting and self.introduced.is_set()):
            self.introduced.set()
            await self._record(context, self._listed, self.account.object)
        else:
            self.recorder.passed(self._passed(self._listed))

    async def _relist(self, *, dropped: bool) -> None:
        """Continue from a list, because events are dropped, or soon are where none arrive."""
        given = self._monitor
        if _is_later(self._listed, self._version):
            # The list is newer than the last event: the hook has received the state back then.
            try:
                given = await self._recalled()
            except Gone:
                # What a watch has not replayed for so long has not happened.
                if dropped:
                    self.deps.events.emit(self._missed())
                    self.account.cursors.pop((self.binding.name, self.scope), None)
                    # Deletions are lost; a namespace to leave goes on with what is listed.
                    self._version = self._listed if self._leaving else ""
                    return
        await self._compare(given)

    def _missed(self) -> Event:
        given = "the hook receives the objects that exist now"
        if of_synchronization(self.binding) is None and self.beginning is not Beginning.EVENTS:
            given = (
                "the hook receives none of the existing objects, because"
                " executeHookOnSynchronization is false"
            )
        return Event(
            regarding=ref_of(self.account.object).reference,
            severity="Warning",
            reason="EventsMissed",
            action="Synchronize",
            note=f"{self.binding.name}: the API server no longer has the events after the last one"
            f" received; {given}",
        )

    async def _recalled(self) -> Monitor:
        """Return what the hook had received up to the version that the watch has reached."""
        found = Monitor(self.binding)
        objects: list[Object] = []
        async for obj in self.deps.watching.stored_at(self._watched(), self._version):
            objects.append(obj)
            if len(objects) == _TOGETHER:
                await self._resume(found, objects)
        await self._resume(found, objects)
        return found

    async def _resume(self, monitor: Monitor, objects: list[Object]) -> None:
        for _, observed in await self._filter.observed(objects):
            monitor.resume(observed, given=True)
        objects.clear()

    async def _compare(self, given: Monitor) -> None:
        """Record the changes since the watch ended, as a list shows them.

        Deleted objects come first, then existing ones in the order of their versions: if the
        process ends after a part of them is recorded, the next one finds the rest.
        """
        since = self._version
        self._filter.forget()
        listed: list[tuple[Object, ObservedObject]] = []
        version = ""
        async for page in pages_of(self.deps, self._watched()):
            version = version or page.resource_version
            listed += await self._filter.observed(page.items)
        objects = {observed.key: obj for obj, observed in listed}
        found = []
        for change in given.replace(observed for _, observed in listed):
            obj = objects.get(change.observed.key)
            there = obj is not None and change.event != DELETED
            obj = obj or self._named(change.observed)
            found.append((resource_version(obj) if there else since or version, change, obj))
        self._monitor, self._listed, self._version, self._quiet = given, version, version, 0
        for at, change, obj in sorted(found, key=lambda item: version_number(item[0])):
            await self._record(of_change(self.binding, change), at, obj, partial=not since)
        self._count()
        self.recorder.passed(self._passed(version))

    async def _take(self, event: WatchEvent) -> None:
        said = _EVENTS.get(event.type)
        change = None
        for _, observed in await self._filter.observed([event.object] if said else []):
            replayed = not _is_later(event.version, self._listed)
            change = self._monitor.take(str(said), observed, replayed=replayed)
        if said == DELETED:
            self._filter.forget([event.object])
        if change is not None:
            await self._record(of_change(self.binding, change), event.version, event.object)
        else:
            self.recorder.passed(self._passed(event.version))
        self._version, self._quiet = event.version, 0
        self._count()

    async def _record(
        self, context: Context, version: str, obj: Object, *, partial: bool = False
    ) -> None:
        record = Record(
            context=context,
            queue=self.binding.queue,
            allow_failure=self.binding.allow_failure,
            scope=self.scope,
            at=version,
            resource=ref_of(obj),
            watched=self._digest,
            confidential=bool(context.shown)
            and not context.group
            and is_secret(self._followed.group, self._followed.kind),
            partial=partial,
        )
        await self.recorder.add(record)

    def _count(self) -> None:
        size = self._monitor.size
        within = self.deps.budget.change(size - self._counted)
        self._counted = size
        if not within:
            held, most = self.deps.budget.held, self.deps.budget.most
            self._forget()
            raise Unavailable(
                f"all snapshots together would hold {held >> 10} KiB, and --max-snapshots is"
                f" {most >> 10} KiB: select fewer objects, or keep results only"
                " (keepFullObjectsInMemory: false)"
            )

    def _passed(self, version: str) -> Passed:
        return Passed(
            binding=self.binding.name, scope=self.scope, version=version, watched=self._digest
        )

    async def _served(self) -> Kind:
        kind = await self.deps.kinds.named(self.binding.api_version, self.binding.kind)
        if kind is None:
            where = f" in {self.binding.api_version}" if self.binding.api_version else ""
            raise NoKindMatch(f"the cluster serves no {self.binding.kind!r}{where}")
        if self.scope and not kind.namespaced:
            raise NoKindMatch(
                f"{kind.kind} is cluster-scoped: omit namespace, in a ClusterHook or an executable"
            )
        return kind

    @property
    def _followed(self) -> Kind:
        if self._kind is None:
            raise NoKindMatch(f"{self.binding.kind!r} was not looked up")
        return self._kind

    def _watched(self) -> WatchScope:
        selection = self.binding.selection
        fields = [test.server for test in selection.fields or ()]
        if selection.names and len(selection.names) == 1:
            fields.append(f"metadata.name={selection.names[0]}")
        return WatchScope(
            kind=self._followed,
            namespace=self.scope,
            labels="" if selection.labels is None else selection.labels.server,
            fields=",".join(fields),
        )

    def _digested(self) -> str:
        """Return a digest of what is watched; if it changes, the hook starts anew."""
        binding = self.binding
        names = binding.selection.names
        text = repr((self._watched(), names, binding.jq_filter, binding.keep_full_objects))
        return blake2b(text.encode(), digest_size=8).hexdigest()

    def _named(self, observed: ObservedObject) -> Object:
        """Return a deleted object, reduced to its kind, namespace and name."""
        kind = self._followed
        return {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"namespace": observed.namespace, "name": observed.name},
        }


def _is_later(version: str, other: str) -> bool:
    """Return whether a version is later than another one; False if the other one is empty."""
    return bool(other) and version_number(version) > version_number(other)
