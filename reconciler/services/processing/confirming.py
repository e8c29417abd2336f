"""Waits until a triggering request is stored, and says what became of one that is not.

How long it waited is counted by this process from its first look on. Times that other machines
stored are never compared with this one's clock: it may be ahead, and then a trigger would count
as refused that a slow webhook still holds back. A new leader begins to count anew.
"""

from dataclasses import dataclass, field
from typing import Final

from reconciler.api.updaterequest import Reason, UpdateRequest
from reconciler.clock import Clock
from reconciler.requests.lifecycle import Retry, Skip
from reconciler.services.ports.objects import History, Kinds
from reconciler.services.processing.attempt import trigger_gone

_LOOKS: Final = (0.01, 0.02, 0.04, 0.08, 0.15, 0.3, 0.5, 1.0)
"""Pauses between looks at a trigger that is not stored yet, before the status says so."""
_SLOW_LOOK: Final = 2.0


@dataclass(slots=True)
class _Wait:
    """How often one request was looked at, and since when its status says that it waits."""

    looks: int = 0
    since: float | None = None


@dataclass(slots=True, kw_only=True)
class Confirmations:
    """The waits of one process.

    Attributes:
        period: Seconds until a trigger that is not stored counts as refused. They begin when
            the status says that the request waits: from then on nobody adds a trigger to it.
    """

    kinds: Kinds
    history: History
    clock: Clock
    period: float
    _waits: dict[str, _Wait] = field(default_factory=dict)

    async def look(self, request: UpdateRequest) -> float | Retry | Skip:
        """Return the pause until the next look, or what the status has to say.

        Args:
            request: Whose trigger a live read has just not found stored.

        Raises:
            ClusterError: What happened to the trigger could not be asked.
        """
        if request.status.counts.matched:
            # It was there when an earlier attempt came to the targets.
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
        """A request waits no more."""
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
            message += ", or what it created was deleted again at once"
        return Skip(reason=Reason.NOT_STORED, message=message)

    async def _was_stored(self, request: UpdateRequest) -> bool | None:
        """Return whether the object of a CREATE came and went, None where nobody can tell."""
        trigger = request.spec.resource
        if request.spec.operation != "CREATE" or not trigger.uid:
            return False
        found = await self.kinds.find(trigger.api_version, trigger.kind)
        if not found:
            return None
        return await self.history.stored(
            found[0], trigger.namespace, trigger.name, trigger.uid, request.resource_version
        )
