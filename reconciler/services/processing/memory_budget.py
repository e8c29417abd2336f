"""Budgets for the bytes of users' objects that are in memory at the same time.

Each use has its own budget. The holder of one waits only for budgets further down in `InFlight`,
so there is no deadlock. An object that is larger than a budget is admitted alone. What is held
while a policy's calls and writes are made has a share per tenant, because these may be slow.
"""

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self, TypeAlias

import orjson

from reconciler.config import ControllerSettings
from reconciler.services.processing.fairness import FairGate
from reconciler.services.processing.known_requests import Recent

Count: TypeAlias = Callable[[int], None]
"""Counts bytes as read."""
_UNKNOWN: Final = 1024 * 1024
"""Bytes assumed for the first object of a kind: about the largest size there is."""
_LEAST_PART: Final = 32
_FADE: Final = 0.99


@dataclass(slots=True)
class Reservation:
    """Bytes of a budget that a task holds."""

    budget: "MemoryBudget"
    tenant: str
    size: int

    def resize(self, size: int) -> None:
        """Set the actual number of bytes, without waiting, because they are in memory already."""
        change, self.size = size - self.size, size
        self.budget.add(change, self.tenant)


@dataclass(slots=True)
class MemoryBudget(FairGate):
    """Admits bytes up to a limit, in turns by tenant; a limit of 0 admits any number."""

    @contextlib.asynccontextmanager
    async def hold(self, size: int, tenant: str = "") -> AsyncIterator[Reservation]:
        """Wait until this many bytes fit, and hold them until the context ends."""
        if size:
            await self._wait(tenant, size)
        hold = Reservation(self, tenant, size)
        try:
            yield hold
        finally:
            hold.resize(0)

    @contextlib.contextmanager
    def byte_allowance(self) -> Iterator["ByteAllowance"]:
        """Yield an allowance that takes bytes without waiting and returns them at the end."""
        byte_allowance = ByteAllowance(self)
        try:
            yield byte_allowance
        finally:
            self.add(-byte_allowance.taken)


@dataclass(slots=True)
class ByteAllowance:
    """Bytes of a budget that a task keeps, taken without waiting."""

    budget: MemoryBudget
    taken: int = 0

    def take(self, size: int) -> bool:
        """Take this many bytes if they fit now, and return whether they did."""
        if not self.budget.fits(size):
            return False
        self.budget.add(size)
        self.taken += size
        return True


@dataclass(slots=True, kw_only=True)
class InFlight:
    """The budgets of a process, in the order in which a task may wait for them.

    Attributes:
        page: Bytes of the largest page of a list; with 0 nothing is counted.
        pages: Pages of lists that are walked, for as long as a page is worked on.
        triggers: Triggers of requests, until their targets are done.
        loaded: What context entries read for a trigger, until its targets are done.
        lists: Pages of a target's list, until the targets among its objects are selected.
        kept: Objects from such a page, until they are patched; no task waits for it.
        targets: Targets, while they are evaluated and written.
    """

    page: int = 0
    pages: MemoryBudget = field(default_factory=MemoryBudget)
    triggers: MemoryBudget = field(default_factory=MemoryBudget)
    loaded: MemoryBudget = field(default_factory=MemoryBudget)
    lists: MemoryBudget = field(default_factory=MemoryBudget)
    kept: MemoryBudget = field(default_factory=MemoryBudget)
    targets: MemoryBudget = field(default_factory=MemoryBudget)
    _largest: dict[str, float] = field(default_factory=dict)
    _pages: dict[str, float] = field(default_factory=dict)
    _read: Recent[str, float] = field(default_factory=Recent)

    @classmethod
    def of(cls, settings: ControllerSettings) -> Self:
        """Return the budgets of a controller with these settings."""
        limit = settings.max_in_flight
        return cls(
            page=settings.page_bytes,
            # Two pages of the largest size fit, and one tenant has one of them.
            pages=MemoryBudget(limit // 4, share=limit // 8),
            triggers=MemoryBudget(limit // 4, share=limit * 3 // 16),
            loaded=MemoryBudget(limit // 4, share=limit * 3 // 16),
            lists=MemoryBudget(limit // 8),
            kept=MemoryBudget(limit // 8),
            targets=MemoryBudget(limit // 4, share=limit * 3 // 16),
        )

    @property
    def used(self) -> int:
        """Return the bytes that are held now; without a limit nothing is counted."""
        before = self.pages.used + self.triggers.used + self.loaded.used
        return before + self.lists.used + self.kept.used + self.targets.used

    def expected(self, resource: str) -> int:
        """Return the bytes to reserve before an object is read: the largest of its kind lately.

        The minimum lets no more than 64 objects be read at the same time: small ones are read in
        a moment, and hundreds that are larger than expected must not arrive at once.
        """
        if not self.page:
            return 0
        return max(self.page // _LEAST_PART, int(self._largest.get(resource, _UNKNOWN)))

    def weigh(self, resource: str, obj: Mapping[str, Any]) -> int:
        """Return the bytes of an object that was read, and remember them for its kind."""
        if not self.page:
            return 0
        size = size_of(obj)
        self._largest[resource] = max(size, self._largest.get(resource, 0.0) * _FADE)
        return size

    def expected_page(self, resource: str) -> int:
        """Return the bytes to reserve before a page of a kind is read."""
        return int(self._pages.get(resource, self.page))

    def weigh_page(self, resource: str, size: int) -> int:
        """Return the bytes of a page that was read, and remember them for its kind."""
        if not self.page:
            return 0
        self._pages[resource] = max(size, self._pages.get(resource, 0.0) * _FADE)
        return size

    @contextlib.asynccontextmanager
    async def reading(self, rule: str, tenant: str) -> AsyncIterator[Count]:
        """Hold what the context entries of a rule read for a trigger; yield what counts bytes.

        Only an evaluation shows what is read, so later triggers count as the one that read most
        lately. The first ones count little: most read little, and wait for a service.
        """
        expected, read = int(self._read.get(rule, self.page // _LEAST_PART)), 0

        def count(size: int) -> None:
            nonlocal read
            if self.page:
                read += size
                hold.resize(max(hold.size, read))

        async with self.loaded.hold(expected, tenant) as hold:
            try:
                yield count
            finally:
                self._read.keep(rule, max(read, self._read.get(rule, 0.0) * _FADE))


def size_of(value: Any) -> int:
    """Return the bytes of a value as JSON."""
    try:
        return len(orjson.dumps(value))
    except orjson.JSONEncodeError:
        # A number beyond 64 bits: no object of a cluster is larger than this.
        return _UNKNOWN
