"""Notices that a right is granted which requests wait for, long before their next attempt is due.

Watching roles and bindings would need rights to read all of RBAC, and an authorizer may be
something else than RBAC. So the API server is asked: one review per distinct missing right and
round, however many requests lack it, and none while nothing is missing.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from reconciler.api.rights import Right, parse_right
from reconciler.clock import Clock
from reconciler.errors import ClusterError
from reconciler.services.ports import Access

_LONGEST_REST = 300.0


class Waiting(Protocol):
    """What holds the waiting requests."""

    def missing_permissions(self) -> Mapping[str, frozenset[str]]:
        """Return the rights that they lack, by policy."""
        ...

    def wake_lacking(self, permission: str) -> None:
        """Try those again that wait for a right."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rest:
    """After requests were woken for a right and lack it still, they rest ever longer."""

    until: float
    pause: float


@dataclass(slots=True, kw_only=True)
class Grants:
    """Wakes the requests whose missing right is there now; only a leader runs it.

    Attributes:
        waiting: Where the requests wait; the dispatcher.
        pause: Seconds between two rounds.
        most: Rights that one round asks about; the others follow in the next ones.
    """

    waiting: Waiting
    access: Access
    clock: Clock
    pause: float = 5.0
    most: int = 20
    _asked: dict[str, int] = field(default_factory=dict)
    _rests: dict[str, _Rest] = field(default_factory=dict)
    _round: int = 0

    async def run(self) -> None:
        """Ask until cancelled; an error is tried again in the next round."""
        while True:
            await asyncio.sleep(self.pause)
            try:
                await self.look()
            except ClusterError:
                continue

    async def look(self) -> None:
        """Ask once for what is missing and wake who waited for what is granted."""
        rights = frozenset[str]().union(*self.waiting.missing_permissions().values())
        self._forget_all_but(rights)
        self._round += 1
        for text in self._next(rights):
            self._asked[text] = self._round
            right = parse_right(text)
            if right is None:
                continue
            if not await self._granted(right):
                self._rests.pop(text, None)
            elif self._rested(text):
                self.waiting.wake_lacking(text)

    def _next(self, rights: Iterable[str]) -> list[str]:
        # Who was not asked about for the longest time comes first.
        return sorted(rights, key=lambda text: (self._asked.get(text, 0), text))[: self.most]

    async def _granted(self, right: Right) -> bool:
        if await self.access.may(right):
            return True
        # Targets are put where patch is not granted.
        return right.verb == "patch" and await self.access.may(replace(right, verb="update"))

    def _rested(self, text: str) -> bool:
        """Tell whether to wake now; a right that seems to be there and is not is asked rarely."""
        now = self.clock.monotonic()
        rest = self._rests.get(text)
        if rest is not None and now < rest.until:
            return False
        pause = self.pause if rest is None else min(rest.pause * 2, _LONGEST_REST)
        self._rests[text] = _Rest(until=now + pause, pause=pause)
        return True

    def _forget_all_but(self, rights: frozenset[str]) -> None:
        for table in (self._asked, self._rests):
            for text in table.keys() - rights:
                del table[text]
