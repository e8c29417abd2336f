"""Fair turns: a tenant with much waiting work gets only a share and delays no other tenant."""

import asyncio
import contextlib
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from reconciler.api.updaterequest import RequestSpec


def tenant_of(spec: RequestSpec) -> str:
    """Return the tenant of a request: the namespace of its trigger, or else its policy."""
    return spec.resource.namespace or f"policy {spec.policy}"


@dataclass(slots=True, kw_only=True)
class FairGate:
    """Limits how much work is done at the same time, in turns by tenant.

    Attributes:
        slots: The number of slots.
        share: The most slots of one tenant, because other tenants may come at any time.
    """

    slots: int
    share: int
    _used: Counter[str] = field(default_factory=Counter)
    _waiting: OrderedDict[str, deque[asyncio.Future[None]]] = field(default_factory=OrderedDict)

    @contextlib.asynccontextmanager
    async def enter(self, tenant: str) -> AsyncIterator[None]:
        """Wait for a slot, and keep it until the context ends."""
        if self._free(tenant) and tenant not in self._waiting:
            self._used[tenant] += 1
        else:
            await self._wait(tenant)
        try:
            yield
        finally:
            self._leave(tenant)

    def _free(self, tenant: str) -> bool:
        return self._used.total() < self.slots and self._used[tenant] < self.share

    async def _wait(self, tenant: str) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._leave(tenant)
            raise

    def _leave(self, tenant: str) -> None:
        self._used[tenant] -= 1
        if not self._used[tenant]:
            del self._used[tenant]
        self._admit()

    def _admit(self) -> None:
        while (tenant := self._next()) is not None:
            waiting = self._waiting[tenant]
            turn = waiting.popleft()
            if not waiting:
                del self._waiting[tenant]
            else:
                self._waiting.move_to_end(tenant)
            if not turn.done():
                self._used[tenant] += 1
                turn.set_result(None)

    def _next(self) -> str | None:
        return next((tenant for tenant in self._waiting if self._free(tenant)), None)
