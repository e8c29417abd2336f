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
from reconciler.recent import Recent
from reconciler.services.processing.fairness import FairGate, Size

Count: TypeAlias = Callable[[int], None]
"""Counts bytes as read."""
_UNKNOWN: Final = 1024 * 1024
"""Bytes assumed for the first object of a kind: about the largest size there is."""
_LEAST_PART: Final = 32
_READING_AT_ONCE: Final = 256
_FADE: Final = 0.99
_ANY: Final = ""
"""In place of a tenant: all of them."""


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
        hold = await self.reserve(lambda: size, tenant)
        try:
            yield hold
        finally:
            hold.resize(0)

    async def reserve(self, size: Size, tenant: str = "") -> Reservation:
        """Wait until this many bytes fit; the caller returns them with `Reservation.resize`."""
        return Reservation(self, tenant, await self._wait(tenant, size) if size() else 0)

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
class Readings:
    """What context entries read, until the work that needs it is done.

    Only an evaluation shows what is read. So work counts as much as the work of its rule that read
    most lately, of its own tenant if any has ended. This holds also while it waits: the first one
    to end decides for the others.

    Attributes:
        budget: The bytes; with a limit of 0 nothing is counted.
        unknown: Bytes that work counts before any of its rule has ended.
        least: Bytes that it counts at least.
    """

    budget: MemoryBudget = field(default_factory=MemoryBudget)
    unknown: int = 0
    least: int = 0
    _most: Recent[tuple[str, str], float] = field(default_factory=Recent)

    @classmethod
    def before_storing(cls, limit: int) -> Self:
        """Return the budget of a program that reads while the API server waits.

        Work enters it only when it reads, and its reads begin at the same time. So the first
        counts as a large object, and none as so little that hundreds begin at once.
        """
        budget = MemoryBudget(limit, share=limit * 3 // 4)
        return cls(budget=budget, unknown=_UNKNOWN, least=limit // _READING_AT_ONCE)

    async def begin(self, rule: str, tenant: str) -> "Reading":
        """Wait until the reads of a rule fit; the caller ends what is returned."""
        if not self.budget.limit:
            return Reading(self, (rule, tenant), Reservation(self.budget, tenant, 0))
        hold = await self.budget.reserve(lambda: self._expected(rule, tenant), tenant)
        return Reading(self, (rule, tenant), hold)

    @contextlib.asynccontextmanager
    async def reading(self, rule: str, tenant: str) -> AsyncIterator[Count]:
        """Hold what a rule reads until the context ends; yield what counts bytes."""
        reading = await self.begin(rule, tenant)
        try:
            yield reading.count
        finally:
            reading.end()

    def _expected(self, rule: str, tenant: str) -> int:
        of_any = self._most.get((rule, _ANY), self.unknown)
        return max(self.least, int(self._most.get((rule, tenant), of_any)))

    def learn(self, key: tuple[str, str], read: int) -> None:
        """Remember how many bytes the work of a rule and tenant has read."""
        for known in (key, (key[0], _ANY)):
            self._most.keep(known, max(read, self._most.get(known, 0.0) * _FADE))


@dataclass(slots=True)
class Reading:
    """What one piece of work has read."""

    readings: Readings
    key: tuple[str, str]
    hold: Reservation
    read: int = 0
    ended: bool = False

    def count(self, size: int) -> None:
        """Count bytes as read, without waiting, because they are in memory already."""
        # A read may outlive the work that was cancelled, and nobody would return its bytes.
        if self.readings.budget.limit and not self.ended:
            self.read += size
            self.hold.resize(max(self.hold.size, self.read))

    def end(self) -> None:
        """Return all bytes."""
        self.ended = True
        self.readings.learn(self.key, self.read)
        self.hold.resize(0)


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
    loaded: Readings = field(default_factory=Readings)
    lists: MemoryBudget = field(default_factory=MemoryBudget)
    kept: MemoryBudget = field(default_factory=MemoryBudget)
    targets: MemoryBudget = field(default_factory=MemoryBudget)
    _largest: Recent[str, float] = field(default_factory=Recent)
    _pages: Recent[str, float] = field(default_factory=Recent)

    @classmethod
    def of(cls, settings: ControllerSettings) -> Self:
        """Return the budgets of a controller with these settings."""
        limit = settings.max_in_flight
        return cls(
            page=settings.page_bytes,
            # Two pages of the largest size fit, and one tenant has one of them.
            pages=MemoryBudget(limit // 4, share=limit // 8),
            triggers=MemoryBudget(limit // 4, share=limit * 3 // 16),
            # The first ones count little: most read little, and wait for a service.
            loaded=Readings(
                budget=MemoryBudget(limit // 4, share=limit * 3 // 16),
                unknown=settings.page_bytes // _LEAST_PART,
            ),
            lists=MemoryBudget(limit // 8),
            kept=MemoryBudget(limit // 8),
            targets=MemoryBudget(limit // 4, share=limit * 3 // 16),
        )

    @property
    def used(self) -> int:
        """Return the bytes that are held now; without a limit nothing is counted."""
        before = self.pages.used + self.triggers.used + self.loaded.budget.used
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
        self._largest.keep(resource, max(size, self._largest.get(resource, 0.0) * _FADE))
        return size

    def expected_page(self, resource: str) -> int:
        """Return the bytes to reserve before a page of a kind is read."""
        return int(self._pages.get(resource, self.page))

    def weigh_page(self, resource: str, size: int) -> int:
        """Return the bytes of a page that was read, and remember them for its kind."""
        if not self.page:
            return 0
        self._pages.keep(resource, max(size, self._pages.get(resource, 0.0) * _FADE))
        return size


def size_of(value: Any) -> int:
    """Return the bytes of a value as JSON."""
    try:
        return len(orjson.dumps(value))
    except orjson.JSONEncodeError:
        # A number beyond 64 bits: no object of a cluster is larger than this.
        return _UNKNOWN
