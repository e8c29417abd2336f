"""Informers of a binding's objects in the namespaces that currently have certain labels.

A namespace that gains the labels is listed, and each of its objects becomes an event. If one loses
them or is deleted, the hook receives its objects as deleted. The cursors tell which namespaces the
hook has received objects of, so that both are also found after a time without a leader.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Any, Final

from reconciler.api.meta import NAMESPACES, ref_of
from reconciler.errors import Gone
from reconciler.hooks.bindings import KubernetesBinding
from reconciler.hooks.contexts import of_synchronization
from reconciler.hooks.records import Passed, Record
from reconciler.services.hooks.accounts import HookAccount
from reconciler.services.hooks.following import (
    Beginning,
    Informer,
    InformerDeps,
    Records,
    events_of,
    pages_of,
)
from reconciler.services.jobs import repeat
from reconciler.services.ports.watching import WatchEvent, WatchScope

_DELETED: Final = "DELETED"
_BOOKMARK: Final = "BOOKMARK"


@dataclass(slots=True, kw_only=True)
class NamespaceInformers:
    """The informers of a binding that selects namespaces by labels, one for each of them.

    Attributes:
        synchronized: Called when the snapshot is complete.
        scope: The key of the cursor that records the Synchronization of the hook.
        synced: Set when all namespaces of the first list are listed.
    """

    deps: InformerDeps
    account: HookAccount
    recorder: Records
    binding: KubernetesBinding
    synchronized: Callable[[], None]
    scope: str = ""
    synced: asyncio.Event = field(default_factory=asyncio.Event)
    _informers: dict[str, Informer] = field(default_factory=dict)
    _tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _leaving: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _introduced: bool = False
    _version: str = ""

    def snapshot(self) -> list[dict[str, Any]]:
        """Return the objects of all the namespaces as contexts show them."""
        found = (self._informers[name] for name in sorted(self._informers))
        return [shown for informer in found for shown in informer.snapshot()]

    async def run(self) -> None:
        """Follow the namespaces and their objects until cancelled."""
        async with asyncio.TaskGroup() as group:
            await repeat(
                partial(self._turn, group), every=0.0, pauses=(0.5, 30.0), tell=self._tell
            )

    def _tell(self, problem: str) -> None:
        said = f"{self.binding.name}: {problem}" if problem else ""
        if said or self._informers.keys() <= self._synced_names():
            self.account.tell(self.binding.name, self.scope, said)

    def _synced_names(self) -> frozenset[str]:
        return frozenset(name for name, item in self._informers.items() if item.synced.is_set())

    async def _turn(self, group: asyncio.TaskGroup) -> None:
        if not self._version:
            await self._begin(group)
        try:
            stream = events_of(self.deps, self._watched(), self._version)
            async with contextlib.aclosing(stream) as events:
                async for event in events:
                    await self._take(group, event)
        except Gone:
            self._version = ""

    async def _begin(self, group: asyncio.TaskGroup) -> None:
        """Follow exactly the namespaces that a list shows."""
        names, version = await self._list()
        cursor = self.account.cursors.get((self.binding.name, self.scope))
        known = cursor is not None and cursor.watched == self._digested()
        beginning = Beginning.EVENTS
        if not (self._introduced or known):
            beginning = Beginning.NOTHING
            self.account.restart(self.binding.name)
            await self._synchronize(version)
        self._introduced = True
        left = (self.account.scopes_of(self.binding.name) | self._informers.keys()) - names
        for name in sorted(left):
            await self._leave(group, name)
        for name in sorted(names - self._informers.keys()):
            await self._join(group, name, beginning)
        self._version = version
        self._look()

    async def _synchronize(self, version: str) -> None:
        """Record the Synchronization of the hook: all objects of all the namespaces."""
        watched = self._digested()
        context = of_synchronization(self.binding)
        if context is None:
            marker = Passed(
                binding=self.binding.name, scope=self.scope, version=version, watched=watched
            )
            self.recorder.passed(marker)
            return
        record = Record(
            context=context,
            queue=self.binding.queue,
            allow_failure=self.binding.allow_failure,
            scope=self.scope,
            at=version,
            resource=ref_of(self.account.object),
            watched=watched,
        )
        await self.recorder.add(record)

    async def _take(self, group: asyncio.TaskGroup, event: WatchEvent) -> None:
        if event.type != _BOOKMARK:
            name = str((event.object.get("metadata") or {}).get("name", ""))
            if event.type == _DELETED:
                await self._leave(group, name)
            elif name in self._chosen([name]) and name not in self._informers:
                await self._join(group, name, Beginning.EVENTS)
        self._version = event.version

    async def _join(self, group: asyncio.TaskGroup, name: str, beginning: Beginning) -> None:
        leaving = self._leaving.pop(name, None)
        if leaving is not None:
            await asyncio.wait({leaving})
        informer = self._informers[name] = self._informer(name, beginning)
        self._tasks[name] = group.create_task(informer.run(), name=f"objects in {name}")

    async def _leave(self, group: asyncio.TaskGroup, name: str) -> None:
        given = self.account.scopes_of(self.binding.name)
        # Its cursor says that a namespace is left only once everything before is recorded.
        self._leaving = {
            left: task for left, task in self._leaving.items() if left in given or not task.done()
        }
        if name in self._leaving:
            return
        task, informer = self._tasks.pop(name, None), self._informers.pop(name, None)
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
        if informer is None and name not in given:
            return
        informer = informer or self._informer(name, Beginning.NOTHING)
        self._leaving[name] = group.create_task(informer.leave(), name=f"objects of {name} before")
        self._look()

    def _informer(self, name: str, beginning: Beginning) -> Informer:
        return Informer(
            deps=self.deps,
            account=self.account,
            recorder=self.recorder,
            binding=self.binding,
            scope=name,
            synchronized=self._look,
            beginning=beginning,
        )

    def _look(self) -> None:
        """Mark the snapshot as complete once all namespaces of the first list are listed."""
        if not self._version or self.synced.is_set():
            return
        if self._informers.keys() <= self._synced_names():
            self.synced.set()
            self._tell("")
            self.synchronized()

    async def _list(self) -> tuple[frozenset[str], str]:
        """Return the names of the namespaces that have the labels, and the version of the list."""
        names: list[str] = []
        version = ""
        async for page in pages_of(self.deps, self._watched()):
            version = version or page.resource_version
            names += [item["metadata"]["name"] for item in page.items]
        return self._chosen(names), version

    def _chosen(self, names: Iterable[str]) -> frozenset[str]:
        allowed = self.binding.selection.namespaces
        return frozenset(name for name in names if not allowed or name in allowed)

    def _watched(self) -> WatchScope:
        labels = self.binding.selection.namespace_labels
        return WatchScope(kind=NAMESPACES, labels="" if labels is None else labels.server)

    def _digested(self) -> str:
        """Return a digest of what is watched; if it changes, the hook starts anew."""
        return blake2b(self.binding.watched.encode(), digest_size=8).hexdigest()


Informers = tuple[Informer | NamespaceInformers, ...]


def informers_of(
    deps: InformerDeps,
    bindings: Iterable[KubernetesBinding],
    account: HookAccount,
    recorder: Records,
    *,
    synchronized: Callable[[], None],
) -> Iterator[Informer | NamespaceInformers]:
    """Yield the informers of a hook's bindings, which call back when a snapshot is complete."""
    for binding in bindings:
        selection = binding.selection
        if selection.namespace_labels is not None:
            yield NamespaceInformers(
                deps=deps,
                account=account,
                recorder=recorder,
                binding=binding,
                synchronized=synchronized,
            )
            continue
        # Each named namespace has its own watch; the empty name means all.
        introduced = asyncio.Event()
        for scope in dict.fromkeys(selection.namespaces or ("",)):
            yield Informer(
                deps=deps,
                account=account,
                recorder=recorder,
                binding=binding,
                scope=scope,
                synchronized=synchronized,
                introduced=introduced,
            )


def snapshot_of(informers: Informers, binding: str) -> list[dict[str, Any]]:
    """Return the current snapshot of the binding with a name."""
    found = [item for item in informers if item.binding.name == binding]
    found.sort(key=lambda item: item.scope)
    return [shown for informer in found for shown in informer.snapshot()]
