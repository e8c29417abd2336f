"""Follows the objects of one binding in one namespace, or in all: what happens becomes records.

A informer that was here before begins where its records end, and finds what happened meanwhile,
deletions too. One that is new, or comes too late for that, begins with a list.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final

from reconciler.api.meta import Kind, Object, ref_of, resource_version
from reconciler.clock import Clock
from reconciler.errors import EvaluationError, Gone, NoKindMatch, Unavailable
from reconciler.hooks.bindings import KubernetesBinding
from reconciler.hooks.contexts import Context, of_change, of_synchronization
from reconciler.hooks.monitor import Monitor, ObservedObject, observe
from reconciler.hooks.records import Passed, Record
from reconciler.services.hooks.accounts import HookAccount
from reconciler.services.hooks.recorder import Recorder
from reconciler.services.jobs import repeat
from reconciler.services.ports.jq import Jq
from reconciler.services.ports.objects import Kinds, Page, Reader
from reconciler.services.ports.reporting import Event, Events
from reconciler.services.ports.watching import WatchEvent, Watching, WatchScope

_SHORTEST: Final = 1.0
_EVENTS: Final = {"ADDED": "Added", "MODIFIED": "Modified", "DELETED": "Deleted"}
_SECRET: Final = ("", "Secret")


@dataclass(slots=True, kw_only=True)
class SnapshotBudget:
    """The bytes of JSON that all snapshots together may hold; 0: any."""

    most: int
    held: int = 0

    def change(self, size: int) -> bool:
        """Count bytes more or less; return whether all of it is within the limit."""
        self.held += size
        return not self.most or self.held <= self.most


@dataclass(frozen=True, slots=True, kw_only=True)
class InformerDeps:
    """What all informers stand on."""

    kinds: Kinds
    reader: Reader
    watching: Watching
    jq: Jq
    clock: Clock
    budget: SnapshotBudget
    events: Events


@dataclass(slots=True, kw_only=True)
class Informer:
    """One watch of a binding.

    Attributes:
        scope: Its namespace, empty for all.
        synchronized: Called when its snapshot is complete.
        synced: Set while it is.
    """

    deps: InformerDeps
    account: HookAccount
    recorder: Recorder
    binding: KubernetesBinding
    scope: str
    synchronized: Callable[[], None]
    synced: asyncio.Event = field(default_factory=asyncio.Event)
    _monitor: Monitor = field(init=False)
    _kind: Kind | None = None
    _digest: str = ""
    _version: str = ""
    _listed: str = ""
    _counted: int = 0

    def __post_init__(self) -> None:
        """Begin with nothing."""
        self._monitor = Monitor(self.binding)

    def snapshot(self) -> list[dict[str, Any]]:
        """Return what contexts show of its objects."""
        return self._monitor.snapshot()

    async def run(self) -> None:
        """Follow until cancelled."""
        try:
            await repeat(self._turn, every=0.0, pauses=(0.5, 30.0), tell=self._tell)
        finally:
            self.deps.budget.change(-self._counted)

    def _tell(self, problem: str) -> None:
        said = f"{self.binding.name}: {problem}" if problem else ""
        self.account.tell(self.binding.name, said)

    async def _turn(self) -> None:
        if not self._version:
            await self._begin()
        started = self.deps.clock.monotonic()
        try:
            stream = self.deps.watching.follow(self._watched(), self._version)
            async with contextlib.aclosing(stream) as events:
                self._tell("")
                async for event in events:
                    await self._take(event)
        except Gone:
            await self._miss()
            return
        if self.deps.clock.monotonic() - started < _SHORTEST:
            raise Unavailable("the API server ends the watch at once")

    async def _begin(self) -> None:
        """List, and decide where the watch begins."""
        self._kind = await self._served()
        self._digest = self._digested()
        cursor = self.account.cursors.get((self.binding.name, self.scope))
        since = cursor.version if cursor is not None and cursor.watched == self._digest else ""
        self._listed = await self._list(since)
        self._version = since or self._listed
        if not since:
            # That of a binding that was another one says nothing of this one.
            self.account.cursors.pop((self.binding.name, self.scope), None)
            await self._synchronize()
        self.synced.set()
        self.synchronized()

    def _forget(self) -> None:
        self._monitor = Monitor(self.binding)
        self.deps.budget.change(-self._counted)
        self._counted, self._version = 0, ""
        self.synced.clear()

    async def _list(self, since: str) -> str:
        """Take the objects that are there; return the version of the list."""
        self._forget()
        version = token = ""
        while True:
            page = await self._page(token)
            version = version or page.resource_version
            for obj, observed in await self._observed(page.items):
                self._monitor.resume(observed, given=not _is_later(resource_version(obj), since))
            self._count()
            token = page.token
            if not token:
                return version

    async def _page(self, token: str) -> Page:
        scope = self._watched()
        return await self.deps.reader.list_page(
            scope.kind,
            namespace=scope.namespace,
            labels=scope.labels,
            fields=scope.fields,
            token=token,
        )

    async def _synchronize(self) -> None:
        """Record what the hook is given of the objects that are there at the start."""
        context = of_synchronization(self.binding)
        if context is None:
            self.recorder.passed(self._passed(self._listed))
        else:
            await self._record(context, self._listed, self.account.object)

    async def _miss(self) -> None:
        """Begin anew where the API server does not know any more what happened since."""
        if not _is_later(self._listed, self._version):
            # What was given is known, so that a list shows what must have happened.
            await self._compare()
            return
        self.deps.events.emit(_missed(self.account.object, self.binding.name))
        self.account.cursors.pop((self.binding.name, self.scope), None)
        self._version = ""

    async def _compare(self) -> None:
        """Record what a list shows to have happened since the watch ended."""
        listed: list[tuple[Object, ObservedObject]] = []
        version = token = ""
        while True:
            page = await self._page(token)
            version = version or page.resource_version
            listed += await self._observed(page.items)
            token = page.token
            if not token:
                break
        objects = {observed.key: obj for obj, observed in listed}
        for change in self._monitor.replace(observed for _, observed in listed):
            obj = objects.get(change.observed.key) or self._named(change.observed)
            await self._record(of_change(self.binding, change), version, obj)
        self._count()
        self._listed = self._version = version
        self.recorder.passed(self._passed(version))

    async def _take(self, event: WatchEvent) -> None:
        said = _EVENTS.get(event.type)
        change = None
        for _, observed in await self._observed([event.object] if said else []):
            replayed = not _is_later(event.version, self._listed)
            change = self._monitor.take(str(said), observed, replayed=replayed)
        if change is not None:
            await self._record(of_change(self.binding, change), event.version, event.object)
        else:
            self.recorder.passed(self._passed(event.version))
        self._version = event.version
        self._count()

    async def _record(self, context: Context, version: str, obj: Object) -> None:
        record = Record(
            context=context,
            queue=self.binding.queue,
            allow_failure=self.binding.allow_failure,
            scope=self.scope,
            at=version,
            resource=ref_of(obj),
            watched=self._digest,
            confidential=bool(context.shown) and not context.group and self._is_secret,
        )
        await self.recorder.add(record)

    async def _observed(self, objects: Sequence[Object]) -> list[tuple[Object, ObservedObject]]:
        """Return those of the objects that count, as the binding keeps them."""
        found = [obj for obj in objects if self._accepts(obj)]
        if not self.binding.jq_filter or not found:
            return [(obj, observe(self.binding, obj, None)) for obj in found]
        results = await self.deps.jq.evaluate(self.binding.jq_filter, found)
        seen = []
        for obj, result in zip(found, results, strict=True):
            if isinstance(result, EvaluationError):
                self._tell(
                    f"jqFilter fails at {ref_of(obj)}, which is left out: {result.without_values}"
                )
            else:
                seen.append((obj, observe(self.binding, obj, result)))
        return seen

    def _accepts(self, obj: Object) -> bool:
        names = self.binding.selection.names
        return not names or (obj.get("metadata") or {}).get("name") in names

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
                f"{kind.kind} is in no namespace: use a ClusterHook without namespace"
            )
        return kind

    @property
    def _followed(self) -> Kind:
        if self._kind is None:
            raise NoKindMatch(f"{self.binding.kind!r} was not looked up")
        return self._kind

    @property
    def _is_secret(self) -> bool:
        return (self._followed.group, self._followed.kind) == _SECRET

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
        """Return a digest of what is watched: where it changes, the hook begins anew."""
        binding = self.binding
        names = binding.selection.names
        text = repr((self._watched(), names, binding.jq_filter, binding.keep_full_objects))
        return blake2b(text.encode(), digest_size=8).hexdigest()

    def _named(self, observed: ObservedObject) -> Object:
        """Return an object that is gone, as far as its place is known."""
        kind = self._followed
        return {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"namespace": observed.namespace, "name": observed.name},
        }


def _is_later(version: str, other: str) -> bool:
    """Tell whether a version came after another one; without another everything is older."""
    try:
        return bool(other) and int(version) > int(other)
    except ValueError:
        return False


def _missed(hook: Object, binding: str) -> Event:
    ref = ref_of(hook)
    return Event(
        regarding={
            "apiVersion": ref.api_version,
            "kind": ref.kind,
            "namespace": ref.namespace,
            "name": ref.name,
            "uid": ref.uid,
        },
        severity="Warning",
        reason="EventsMissed",
        action="Synchronize",
        note=f"{binding}: the API server does not know any more what has happened since the last"
        " event; the hook gets all objects that are there now",
    )
