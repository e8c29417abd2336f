"""Waits until a triggering request is stored, and decides how to end the request if it is not.

This process measures the wait from its own first look on. It never compares times that other
machines stored with its clock: with a clock that is ahead, a trigger would count as refused while
a slow webhook still delays it. A new leader starts counting again.
"""

from dataclasses import dataclass, field
from typing import Final

from reconciler.api.updaterequest import Reason, UpdateRequest
from reconciler.clock import Clock
from reconciler.requests.lifecycle import Retry, Skip
from reconciler.services.ports.objects import History, Kinds
from reconciler.services.processing.trigger import trigger_gone

_LOOKS: Final = (0.01, 0.02, 0.04, 0.08, 0.15, 0.3, 0.5, 1.0)
"""Seconds between reads of a trigger that is not stored yet, before the status reports it."""
_SLOW_LOOK: Final = 2.0


@dataclass(slots=True)
class _Wait:
    """The reads for one request, and when its status was first seen to report the wait."""

    looks: int = 0
    since: float | None = None


@dataclass(slots=True, kw_only=True)
class Confirmations:
    """The waits of one process.

    Attributes:
        period: Seconds until a trigger that is not stored counts as refused. They begin when the
            status reports the wait: from then on no other attempt at the write joins the request.
    """

    kinds: Kinds
    history: History
    clock: Clock
    period: float
    _waits: dict[str, _Wait] = field(default_factory=dict)

    async def look(self, request: UpdateRequest) -> float | Retry | Skip:
        """Return the pause until the next read, or the disposition of the request.

        Args:
            request: A request whose trigger was not stored at a live read just before.

        Raises:
            ClusterError: The history of the trigger could not be read.
        """
        if request.status.counts.matched:
            # An earlier attempt reached the targets, so the trigger was stored then.
            return trigger_gone(request.spec.resource)
        wait = self._waits.setdefault(request.name, _Wait())
        if request.status.reason != Reason.UNCONFIRMED:
            wait.since = None
            if wait.looks < len(_LOOKS):
                wait.looks += 1
                return _LOOKS[wait.looks - 1]
            return await self._unconfirmed(request)
        now = self.clock.monotonic()
        wait.since = now if wait.since is None else wait.since
        if now - wait.since < self.period:
            return _SLOW_LOOK
        return await self._ended(request)

    def forget(self, name: str) -> None:
        """Forget a request that no longer waits."""
        self._waits.pop(name, None)

    async def _unconfirmed(self, request: UpdateRequest) -> Retry | Skip:
        trigger = request.spec.resource
        if await self._was_stored(request):
            return trigger_gone(trigger)
        message = f"waiting until the triggering request on {trigger} is stored"
        return Retry(reason=Reason.UNCONFIRMED, message=message, retry_after=_SLOW_LOOK)

    async def _ended(self, request: UpdateRequest) -> Skip:
        trigger, stored = request.spec.resource, await self._was_stored(request)
        if stored:
            return trigger_gone(trigger)
        message = f"the triggering request on {trigger} was not stored"
        if stored is None:
            message += ", or the object was deleted again immediately"
        return Skip(reason=Reason.NOT_STORED, message=message)

    async def _was_stored(self, request: UpdateRequest) -> bool | None:
        """Return whether the object of a CREATE was stored and deleted again, None if unknown."""
        trigger = request.spec.resource
        if request.spec.operation != "CREATE" or not trigger.uid:
            return False
        found = await self.kinds.find(trigger.api_version, trigger.kind)
        if not found:
            return None
        return await self.history.stored(
            found[0], trigger.namespace, trigger.name, trigger.uid, request.resource_version
        )
