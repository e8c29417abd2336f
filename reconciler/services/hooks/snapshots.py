"""Snapshots for hooks that answer the API server, which every replica does.

Recording is the leader's work; these informers follow objects for their snapshots only.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

from reconciler.hooks.bindings import HookConfig
from reconciler.hooks.contexts import SnapshotOf
from reconciler.hooks.ports import HookRef
from reconciler.hooks.records import Passed, Record
from reconciler.services.hooks.accounts import HookAccount
from reconciler.services.hooks.following import InformerDeps
from reconciler.services.hooks.namespaces import Informers, informers_of, snapshot_of


class Unrecorded:
    """Discards everything that an informer records."""

    async def add(self, record: Record) -> None:
        """Discard a record."""

    def passed(self, marker: Passed) -> None:
        """Discard the progress of a watch."""


@dataclass(frozen=True, slots=True)
class HookSnapshots:
    """Follows the objects in the snapshots of hooks that answer the API server."""

    _informers: Mapping[HookRef, Informers]

    @classmethod
    def following(cls, deps: InformerDeps, hooks: Mapping[HookRef, HookConfig]) -> Self:
        """Return the informers for the snapshots that the answered bindings of hooks include."""
        return cls({hook: _informers(deps, config) for hook, config in hooks.items()})

    def of(self, hook: HookRef) -> SnapshotOf:
        """Return a function that returns the snapshot of a binding of the hook by name."""
        return partial(snapshot_of, self._informers[hook])

    def problem(self, hook: HookRef, bindings: Sequence[str]) -> str:
        """Return why snapshots of these bindings are incomplete; empty if they are complete."""
        for name in bindings:
            for informer in self._informers[hook]:
                if informer.binding.name == name and not informer.synced.is_set():
                    problems = informer.account.problems.items()
                    said = (problem for (binding, _), problem in problems if binding == name)
                    return next(filter(None, said), f"{name}: its objects are not listed yet")
        return ""

    @property
    def missing(self) -> str:
        """Return why a snapshot is incomplete; empty if all are complete."""
        problems = (
            self.problem(hook, [item.binding.name for item in informers])
            for hook, informers in self._informers.items()
        )
        return next(filter(None, problems), "")

    async def run(self) -> None:
        """Follow objects until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informers in self._informers.values():
                for informer in informers:
                    group.create_task(informer.run())
            # Keep running even if there is nothing to follow.
            await asyncio.Event().wait()


def _informers(deps: InformerDeps, config: HookConfig) -> Informers:
    wanted = {name for binding in config.answered for name in binding.snapshots}
    chosen = (
        replace(binding, events=(), on_synchronization=False)
        for binding in config.kubernetes
        if binding.name in wanted
    )
    account = HookAccount(object={})
    # No queue waits for these snapshots.
    return tuple(informers_of(deps, chosen, account, Unrecorded(), synchronized=lambda: None))
