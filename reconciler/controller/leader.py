"""The work of a leader."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from reconciler.controller.jobs import Jobs
from reconciler.observe.loops import run_loops
from reconciler.observe.observers import Observers
from reconciler.services.processing.dispatch import Dispatcher
from reconciler.signals import Signal


@dataclass(slots=True, kw_only=True)
class Leadership:
    """Starts the work when the Lease is acquired and stops it when it is lost or released.

    Attributes:
        prepared: Returns when the work may begin.
        failed: Emitted when a bug ended the work; a leader that does nothing must not go on.
    """

    dispatcher: Dispatcher
    observers: Observers
    jobs: Jobs
    prepared: Callable[[], Awaitable[None]]
    failed: Signal[[BaseException]] = field(default_factory=Signal)
    _task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the work."""
        self._task = asyncio.create_task(self._lead(), name="leader")
        self._task.add_done_callback(self._ended)

    async def stop(self, drain: float) -> None:
        """Finish the work in progress within ``drain`` seconds, then stop."""
        if self._task is None:
            return
        self.dispatcher.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._finish(), drain)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None

    async def _finish(self) -> None:
        await self.dispatcher.drain()
        await self.observers.progress.flush()

    async def _lead(self) -> None:
        await self.prepared()
        self.observers.progress.begin()
        await run_loops({name: run() for name, run in self.jobs.items()})

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failed.emit(error)
