"""Publishes the number of waiting requests to the replicas that record requests."""

from collections.abc import Callable
from dataclasses import dataclass

from reconciler.errors import ClusterError
from reconciler.requests.overload import Backlog, Thresholds
from reconciler.services.jobs import WarnsOnce, repeat
from reconciler.services.ports.requests import BacklogStore
from reconciler.services.processing.dispatch import Dispatcher

_PAUSE = 1.0
"""Seconds between two checks, and so the least time between two writes."""


@dataclass(slots=True, kw_only=True)
class BacklogPublisher(WarnsOnce):
    """Publishes the backlog. Only a leader runs it."""

    store: BacklogStore
    dispatcher: Dispatcher
    thresholds: Callable[[], Thresholds]
    _reported: Backlog | None = None
    _noticed: int = 0

    async def run(self) -> None:
        """Check the backlog once a second until cancelled."""
        await repeat(self.look, every=_PAUSE, at_once=False)

    async def look(self) -> None:
        """Publish the backlog if it has changed enough."""
        if not self.dispatcher.known.listed:
            return
        try:
            if self._reported is None:
                # What an earlier leader has seen counts as seen.
                self.dispatcher.saw((await self.store.read()).seen)
                await self._tell()
            elif self._now().outdates(
                self._reported, self.dispatcher.noticed - self._noticed, self.thresholds()
            ):
                await self._tell()
        except ClusterError as error:
            self.tell(f"cannot publish the number of waiting requests: {error}")

    def _now(self) -> Backlog:
        return Backlog(
            waiting=self.dispatcher.waiting,
            seen=self.dispatcher.seen,
            of=self.thresholds().largest(self.dispatcher.known.held_by),
        )

    async def _tell(self) -> None:
        now, noticed = self._now(), self.dispatcher.noticed
        await self.store.write(now)
        self._reported, self._noticed = now, noticed
        self.tell("")
