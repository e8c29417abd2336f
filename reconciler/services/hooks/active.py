"""A hook at work: its informers, its recorder and its runner."""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from reconciler.api.updaterequest import UpdateRequest
from reconciler.hooks.bindings import MAIN_QUEUE
from reconciler.hooks.contexts import STARTUP, Context, ContextType, render
from reconciler.hooks.declared import DeclaredHook
from reconciler.hooks.records import Record
from reconciler.services.hooks.accounts import HookAccount
from reconciler.services.hooks.namespaces import Informers, snapshot_of
from reconciler.services.hooks.recorder import Recorder
from reconciler.services.hooks.running import HookRun, RunOutcome

_STORED_WITHIN = 5.0
"""The most seconds for which other hooks wait until a run at the start is stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveHook:
    """One hook in one generation.

    Attributes:
        informers: One for each namespace that a Kubernetes binding names; namespaces that are
            selected by labels share one.
    """

    declared: DeclaredHook
    account: HookAccount
    recorder: Recorder
    informers: Informers
    runner: HookRun

    @property
    def synced(self) -> bool:
        """Return whether all snapshots of the hook are complete."""
        return all(informer.synced.is_set() for informer in self.informers)

    def knows(self, context: Context) -> bool:
        """Return whether the hook still has the binding of a context."""
        config = self.declared.config
        if context.type is ContextType.STARTUP:
            return config.startup is not None
        return context.binding in {binding.name for binding in config.recorded}

    async def attempt(
        self, covered: Sequence[UpdateRequest], contexts: Sequence[Context], *, repeated: bool
    ) -> RunOutcome:
        """Run the hook for requests that belong together; see `HookRun.attempt`."""
        given = partial(render, contexts, partial(snapshot_of, self.informers))
        return await self.runner.attempt(covered, given, repeated=repeated)

    async def run(self, begun: asyncio.Event, all_begun: asyncio.Event) -> None:
        """Follow objects and record events until cancelled.

        Args:
            begun: Set here once the run at the start is stored, or cannot be for some seconds.
            all_begun: Set once all hooks have begun; what exists is recorded after that.
        """
        async with asyncio.TaskGroup() as group:
            group.create_task(self.recorder.run())
            await self._start_up()
            begun.set()
            await all_begun.wait()
            for informer in self.informers:
                group.create_task(informer.run())

    async def _start_up(self) -> None:
        """Store the run at the start, once for each generation."""
        generation = self.declared.generation
        if self.declared.config.startup is None or self.account.started == generation:
            return
        record = Record(
            context=STARTUP,
            queue=MAIN_QUEUE,
            allow_failure=False,
            scope="",
            at=str(generation),
            resource=self.declared.ref.as_object(self.declared.uid),
        )
        self.recorder.put(record)
        # One that the API server refuses must not stop the other hooks.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STORED_WITHIN):
                await self.recorder.stored()
