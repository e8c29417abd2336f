"""One request for all attempts at one write of a trigger.

Where writers of one object collide, the API server runs admission for each attempt, and at most
one of those that carry the same version is stored. They share a request, by its name. Whoever
comes second joins it: it is processed when the object has another version, which is when all of
them are decided.

An attempt may join as long as the request waits and its status does not say that the trigger is
not stored yet. From that word on the controller looks for another confirmation period before it
ends the request as refused; an attempt that joined before is stored within one request timeout of
the API server, or never. So it cannot be missed. Who comes later has a request of its own.
"""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from reconciler.api.updaterequest import Reason, UpdateRequest
from reconciler.clock import Clock
from reconciler.errors import NotFound
from reconciler.requests.draft import Draft
from reconciler.requests.lifecycle import FINAL
from reconciler.services.ports.requests import Requests

_OPEN: Final = 5.0
"""Seconds for which a request that could be joined counts as one that can: far less than what a
confirmation period is longer than the request timeout."""
_REMEMBERED: Final = 10_000


@dataclass(slots=True, kw_only=True)
class SharedRequests:
    """The shared requests that one replica knows of."""

    requests: Requests
    clock: Clock
    _open: OrderedDict[str, float] = field(default_factory=OrderedDict)
    _underway: dict[str, asyncio.Task[str]] = field(default_factory=dict)

    async def store(self, draft: Draft) -> str:
        """Return when a request stands for the attempt: its version, or empty where it joined.

        Raises:
            ClusterError: It could not be stored.
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
        # All who wait for it may give up, and some of them later than the first.
        return await asyncio.shield(task)

    async def _store(self, draft: Draft) -> str:
        version = await self.requests.create(draft.name, draft.labels, draft.spec)
        if not version and not await self._joinable(draft.name):
            # Who comes next may join this one: it is as new as one can be.
            version = await self.requests.create(draft.alone, draft.labels, draft.spec)
        self._remember(draft.name)
        return version

    async def _joinable(self, name: str) -> bool:
        try:
            return _waits(await self.requests.get(name))
        except NotFound:
            return False

    def _remember(self, name: str) -> None:
        self._open[name] = self.clock.monotonic()
        self._open.move_to_end(name)
        if len(self._open) > _REMEMBERED:
            self._open.popitem(last=False)

    def _stored(self, name: str, done: asyncio.Task[str]) -> None:
        del self._underway[name]
        if not done.cancelled():
            done.exception()


def _waits(request: UpdateRequest) -> bool:
    status = request.status
    return status.state not in FINAL and status.reason != Reason.UNCONFIRMED
