"""One request for all attempts at one write of a trigger.

Where writers of one object collide, the API server runs admission for each attempt, and stores at
most one of those that carry the same version. These attempts share a request, by its name: the
later ones join it. The request is processed when the object has another version, and by then all
of them are decided.

An attempt may join as long as the request waits and its status does not report that the trigger is
not stored yet. After that report the controller waits for another confirmation period before it
ends the request as refused. An attempt that joined before is stored within one request timeout of
the API server, or never, so it cannot be missed. A later attempt has a request of its own.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Final

from reconciler.api.updaterequest import Reason
from reconciler.clock import Clock
from reconciler.errors import NotFound
from reconciler.recent import Recent
from reconciler.requests.draft import Draft
from reconciler.requests.lifecycle import FINAL
from reconciler.services.ports.requests import Requests

_OPEN: Final = 5.0
"""Seconds for which a request that could be joined is taken to be joinable still. That is far less
than the difference between a confirmation period and the request timeout."""


@dataclass(slots=True, kw_only=True)
class SharedRequests:
    """The shared requests that one replica has stored or joined lately."""

    requests: Requests
    clock: Clock
    _open: Recent[str, float] = field(default_factory=Recent)
    _underway: dict[str, asyncio.Task[str]] = field(default_factory=dict)

    async def store(self, draft: Draft) -> str:
        """Store a request for an attempt or join one; return its version, empty if it joined.

        Raises:
            ClusterError: The request could not be stored.
        """
        name = draft.name
        if self.clock.monotonic() - self._open.get(name, float("-inf")) < _OPEN:
            return ""
        if (task := self._underway.get(name)) is not None:
            await asyncio.shield(task)
            return ""
        task = asyncio.create_task(self._store(draft), name=f"store {name}")
        self._underway[name] = task
        task.add_done_callback(lambda done: self._stored(name, done))
        # Any caller may stop waiting, also the first one, while others still wait.
        return await asyncio.shield(task)

    async def _store(self, draft: Draft) -> str:
        version = await self.requests.create(draft.name, draft.labels, draft.spec)
        if not version and not await self._joinable(draft.name):
            # Later attempts may join this request, because it has only just been stored.
            version = await self.requests.create(draft.alone, draft.labels, draft.spec)
        self._open.keep(draft.name, self.clock.monotonic())
        return version

    async def _joinable(self, name: str) -> bool:
        try:
            status = (await self.requests.get(name)).status
        except NotFound:
            return False
        return status.state not in FINAL and status.reason != Reason.UNCONFIRMED

    def _stored(self, name: str, done: asyncio.Task[str]) -> None:
        del self._underway[name]
        if not done.cancelled():
            done.exception()
