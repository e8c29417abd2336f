"""How many bytes of users' objects are in memory at the same time.

Each use has its own budget, and whoever holds one waits only for budgets further down in
`InFlight`: so nobody waits in a circle. An object that is larger than a budget passes alone.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

import orjson

from reconciler.config import ControllerSettings

_UNKNOWN: Final = 1024 * 1024
"""What an object of a kind is taken for of which none was seen: about the largest there is."""
_LEAST_PART: Final = 32
_FADE: Final = 0.99


@dataclass(slots=True)
class Reservation:
    """Bytes that somebody has in memory."""

    budget: "MemoryBudget"
    size: int

    def resize(self, size: int) -> None:
        """Say how many they are indeed; that waits for nothing, because they are there."""
        self.budget.used += size - self.size
        self.size = size
        self.budget.admit()


@dataclass(slots=True)
class MemoryBudget:
    """Lets so many bytes in, first come first served; 0: any."""

    limit: int = 0
    used: int = 0
    _waiting: deque[tuple[int, asyncio.Future[None]]] = field(default_factory=deque)

    @contextlib.asynccontextmanager
    async def hold(self, size: int) -> AsyncIterator[Reservation]:
        """Wait until so many bytes fit, and keep the place for them."""
        if self._waiting or not self.fits(size):
            await self._wait(size)
        else:
            self.used += size
        hold = Reservation(self, size)
        try:
            yield hold
        finally:
            hold.resize(0)

    @contextlib.contextmanager
    def byte_allowance(self) -> Iterator["ByteAllowance"]:
        """Give a place for what may be kept without waiting, until the end."""
        byte_allowance = ByteAllowance(self)
        try:
            yield byte_allowance
        finally:
            self.used -= byte_allowance.taken
            self.admit()

    @property
    def crowded(self) -> bool:
        """Return whether somebody waits."""
        return any(not turn.done() for _, turn in self._waiting)

    def fits(self, size: int) -> bool:
        """Return whether so many bytes fit now."""
        return not self.limit or not self.used or self.used + size <= self.limit

    def admit(self) -> None:
        """Let those in who fit now."""
        while self._waiting and self.fits(self._waiting[0][0]):
            size, turn = self._waiting.popleft()
            if not turn.done():
                self.used += size
                turn.set_result(None)

    async def _wait(self, size: int) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.used -= size
            self.admit()
            raise


@dataclass(slots=True)
class ByteAllowance:
    """What somebody keeps."""

    budget: MemoryBudget
    taken: int = 0

    def take(self, size: int) -> bool:
        """Take the place of so many bytes if there is any now."""
        if not self.budget.fits(size):
            return False
        self.budget.used += size
        self.taken += size
        return True


@dataclass(slots=True, kw_only=True)
class InFlight:
    """The budgets of a process, in the order in which one may wait for the next.

    Attributes:
        page: The largest page of a list.
        pages: Lists that somebody walks, for as long as a page is worked on.
        triggers: Of requests, until their targets are done.
        lists: Pages of a target's list, until it is known which objects are meant.
        kept: Objects out of such a page, until they are patched; nobody waits for it.
        targets: While they are evaluated and written.
    """

    page: int = 0
    pages: MemoryBudget = field(default_factory=MemoryBudget)
    triggers: MemoryBudget = field(default_factory=MemoryBudget)
    lists: MemoryBudget = field(default_factory=MemoryBudget)
    kept: MemoryBudget = field(default_factory=MemoryBudget)
    targets: MemoryBudget = field(default_factory=MemoryBudget)
    _largest: dict[str, float] = field(default_factory=dict)
    _pages: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, settings: ControllerSettings) -> Self:
        """Return the gates that a controller with these settings has."""
        limit = settings.max_in_flight
        return cls(
            page=settings.page_bytes,
            pages=MemoryBudget(limit // 4),
            triggers=MemoryBudget(limit // 4),
            lists=MemoryBudget(limit // 8),
            kept=MemoryBudget(limit // 8),
            targets=MemoryBudget(limit // 4),
        )

    @property
    def used(self) -> int:
        """Return the bytes that are held now; without a limit nothing is counted."""
        budgets = (self.pages, self.triggers, self.lists, self.kept, self.targets)
        return sum(budget.used for budget in budgets)

    def expected(self, resource: str) -> int:
        """Return what an object of a kind is taken for before it is read: the largest lately.

        At least so much that no more than 64 are being read at the same time: small ones are read
        in a moment, and whoever expects nothing else must not be surprised by hundreds.
        """
        if not self.page:
            return 0
        return max(self.page // _LEAST_PART, int(self._largest.get(resource, _UNKNOWN)))

    def weigh(self, resource: str, obj: Mapping[str, Any]) -> int:
        """Return the bytes of an object that was read, and remember them for its kind."""
        if not self.page:
            return 0
        try:
            size = len(orjson.dumps(obj))
        except orjson.JSONEncodeError:
            # A number beyond 64 bits: no object of a cluster is larger than this.
            size = _UNKNOWN
        self._largest[resource] = max(size, self._largest.get(resource, 0.0) * _FADE)
        return size

    def expected_page(self, resource: str) -> int:
        """Return what a page of a kind is taken for before it is read."""
        return int(self._pages.get(resource, self.page))

    def weigh_page(self, resource: str, size: int) -> int:
        """Return the bytes of a page that was read, and remember them for its kind."""
        if not self.page:
            return 0
        self._pages[resource] = max(size, self._pages.get(resource, 0.0) * _FADE)
        return size
