"""Publishes the number of waiting requests to the replicas that record requests."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from reconciler.api.updaterequest import UpdateRequest
from reconciler.errors import ClusterError
from reconciler.requests.overload import Backlog, Thresholds, holders_of
from reconciler.services.jobs import WarnsOnce, repeat
from reconciler.services.ports.requests import BacklogStore
from reconciler.services.processing.dispatch import Dispatcher

_PAUSE = 1.0
"""Seconds between two checks, and so the least time between two writes."""
_TURNS = 50
"""Turns of the event loop, several times as many as kopf needs from an event to its handler."""
_MOST_LATE = 1000
"""Newest arrivals that are kept until the next publication; many more than come in these turns."""


@dataclass(slots=True, kw_only=True)
class BacklogPublisher(WarnsOnce):
    """Publishes the backlog. Only a leader runs it."""

    store: BacklogStore
    dispatcher: Dispatcher
    thresholds: Callable[[], Thresholds]
    _reported: Backlog | None = None
    _noticed: int = 0
    _arrived: deque[tuple[int, tuple[str, ...]]] = field(
        default_factory=lambda: deque(maxlen=_MOST_LATE)
    )

    def __post_init__(self) -> None:
        self.dispatcher.known.arrived.subscribe(self._note)

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
            elif not self._now().outdates(
                self._reported, self.dispatcher.noticed - self._noticed, self.thresholds()
            ):
                return
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
        now = now.with_more(await self._late(now.seen))
        await self.store.write(now)
        self._reported, self._noticed = now, noticed
        self.tell("")

    async def _late(self, seen: int) -> list[tuple[str, ...]]:
        """Return the holders of each request up to a version that is handled only now.

        The handler of a new request may run after that of a newer event of a known one. A replica
        does not count requests up to the published version, so that it would exceed the limit.
        """
        self._arrived.clear()
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        return [owners for version, owners in self._arrived if version <= seen]

    def _note(self, request: UpdateRequest) -> None:
        if request.resource_version.isdecimal():
            self._arrived.append((int(request.resource_version), holders_of(request.spec)))
