"""What runs while this process leads."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from reconciler.api.updaterequest import Reason
from reconciler.controller.observers import Observers
from reconciler.errors import ClusterError
from reconciler.observe.loops import run_loops
from reconciler.services.catchup.passes import Rounds
from reconciler.services.processing.backlog_publisher import BacklogPublisher
from reconciler.services.upkeep.permission_watch import PermissionWatch
from reconciler.wiring import Services


@dataclass(slots=True)
class Leadership:
    """Starts the work when the Lease is won and stops it when it is lost or given back.

    Attributes:
        resync: Seconds between lists of all waiting requests.
        say: Gets a sentence for the log.
        on_failed: Told of a fault of our own; whoever leads and does nothing must not go on.
        prepared: Returns when the work may begin.
    """

    services: Services
    accounts: Observers
    permission_watch: PermissionWatch
    backlog_publisher: BacklogPublisher
    rounds: Rounds
    resync: float
    say: Callable[[str], None]
    on_failed: Callable[[BaseException], None]
    prepared: Callable[[], Awaitable[None]]
    _task: asyncio.Task[None] | None = field(default=None)

    def start(self) -> None:
        """The Lease was won."""
        self._task = asyncio.create_task(self._lead(), name="leader")
        self._task.add_done_callback(self._ended)

    async def stop(self, drain: float) -> None:
        """Finish what is in work within ``drain`` seconds, then stop."""
        if self._task is None:
            return
        self.services.dispatcher.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._finish(), drain)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None

    async def _finish(self) -> None:
        await self.services.dispatcher.drain()
        await self.accounts.progress.flush()

    async def _lead(self) -> None:
        await self.prepared()
        self.accounts.progress.begin()
        services, accounts = self.services, self.accounts
        loops: dict[str, Awaitable[None]] = {
            "list of requests": self._refill(),
            "dispatcher": services.dispatcher.run(),
            "global context": services.entries.run(),
            "collector": services.collector.run(),
            "retries": services.collector.retries.run(),
            "rollout": services.rollout.run(),
            "missing rights": self.permission_watch.run(),
            "backlog": self.backlog_publisher.run(),
            "catch-up": self.rounds.run(),
            "policy status": accounts.progress.run(),
        }
        if accounts.reports.enabled:
            loops["reports"] = accounts.reports.run()
        await run_loops(loops)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.on_failed(error)

    async def _refill(self) -> None:
        pause = 0.5
        collected = False
        while True:
            try:
                await self.services.dispatcher.resync()
                if not collected:
                    # An entry that they wait for may have become ready before they were known.
                    self.services.dispatcher.wake_parked(Reason.ENTRY_NOT_READY)
                    await self.services.collector.resync(self.accounts.on_recovered)
                    collected = True
            except ClusterError as error:
                self.say(f"the waiting requests cannot be listed: {error}")
                await asyncio.sleep(pause)
                pause = min(pause * 2, 15.0)
            else:
                pause = 0.5
                await asyncio.sleep(self.resync)
