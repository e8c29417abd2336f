"""Fair turns: a tenant with much waiting work gets only a share and delays no other tenant."""

import asyncio
import contextlib
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from reconciler.api.meta import PolicyRef
from reconciler.api.updaterequest import RequestSpec

Size: TypeAlias = Callable[[], int]
"""Returns how much waits; asked again until it is admitted, because more is known later."""
_Turn: TypeAlias = tuple[Size, asyncio.Future[int]]


def tenant_of(spec: RequestSpec) -> str:
    """Return the tenant of a request."""
    return tenant_in(spec.resource.namespace, spec.policy)


def tenant_in(namespace: str, policy: PolicyRef) -> str:
    """Return whose work it is: of the namespace of the object, or else of the policy."""
    return namespace or f"policy {policy}"


@dataclass(slots=True)
class FairGate:
    """Limits how much is in work at the same time, in turns by tenant.

    Attributes:
        limit: The most slots in work, or bytes; 0 admits any number.
        share: The most of one tenant, because other tenants may come at any time; 0: the limit.
        used: What is in work now.
    """

    limit: int = 0
    share: int = 0
    used: int = 0
    _held: Counter[str] = field(default_factory=Counter)
    _waiting: OrderedDict[str, deque[_Turn]] = field(default_factory=OrderedDict)

    @contextlib.asynccontextmanager
    async def enter(self, tenant: str) -> AsyncIterator[None]:
        """Wait for a slot, and keep it until the context ends."""
        await self._wait(tenant, lambda: 1)
        try:
            yield
        finally:
            self.add(-1, tenant)

    @property
    def crowded(self) -> bool:
        """Return whether anyone waits."""
        return bool(self._waiting)

    def fits(self, size: int) -> bool:
        """Return whether this much fits now; what is larger than the limit fits alone."""
        return not self.limit or not self.used or self.used + size <= self.limit

    def add(self, size: int, tenant: str = "") -> None:
        """Change what a tenant has in work, without waiting, and admit what fits then."""
        self.used += size
        self._held[tenant] += size
        if not self._held[tenant]:
            del self._held[tenant]
        self._admit()

    async def _wait(self, tenant: str, size: Size) -> int:
        """Return how much was admitted."""
        turn: _Turn = size, asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(tenant, deque())
        waiting.append(turn)
        self._admit()
        try:
            return await turn[1]
        except asyncio.CancelledError:
            if turn[1].cancelled():
                self._leave(tenant, turn)
                self._admit()
            else:
                self.add(-turn[1].result(), tenant)
            raise

    def _admit(self) -> None:
        while (chosen := self._next()) is not None:
            tenant, admitted = chosen
            turn = self._waiting[tenant][0]
            self._leave(tenant, turn)
            if turn[1].cancelled():
                continue  # Its task has not run since.
            if tenant in self._waiting:
                self._waiting.move_to_end(tenant)
            self.used += admitted
            self._held[tenant] += admitted
            turn[1].set_result(admitted)

    def _leave(self, tenant: str, turn: _Turn) -> None:
        waiting = self._waiting.get(tenant, deque())
        if turn in waiting:
            waiting.remove(turn)
            if not waiting:
                del self._waiting[tenant]

    def _next(self) -> tuple[str, int] | None:
        """Return whose turn it is, and its size; who waits for the limit is not overtaken."""
        for tenant, waiting in self._waiting.items():
            size = waiting[0][0]()
            held = self._held[tenant]
            if not self.share or not held or held + size <= self.share:
                return (tenant, size) if self.fits(size) else None
        return None
