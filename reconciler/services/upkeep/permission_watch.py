"""Notices that a right is granted which requests wait for, long before their next attempt is due.

Watching roles and bindings would need rights to read all of RBAC, and an authorizer may be
something else than RBAC. So the API server is asked: one review per distinct missing right and
round, however many requests lack it, and none while nothing is missing. A right may also be
granted for single objects (``resourceNames``), so a few of the objects are asked about by name.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Protocol

from reconciler.api.account import MissingRight
from reconciler.api.rights import Right, parse_right
from reconciler.clock import Clock
from reconciler.services.jobs import repeat
from reconciler.services.ports.access import Access, Accesses

_LONGEST_REST = 300.0
_OF_ONE_OBJECT = frozenset({"get", "patch", "update"})


_Question = tuple[MissingRight, str]
"""A right, and the name of the object that it is wanted for; empty: any."""


class Waiting(Protocol):
    """What holds the waiting requests."""

    def objects_out_of_reach(self) -> Mapping[MissingRight, frozenset[str]]:
        """Return the names of the objects for which a right is lacked, by right."""
        ...

    def wake_lacking(self, missing: MissingRight, name: str = "") -> None:
        """Try those again that wait for a right, on the object of a name or on any."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rest:
    """After requests were woken for a right and lack it still, they rest ever longer."""

    until: float
    pause: float


@dataclass(slots=True, kw_only=True)
class PermissionWatch:
    """Wakes the requests whose missing right is there now; only a leader runs it.

    Attributes:
        waiting: Where the requests wait; the dispatcher.
        pause: Seconds between two rounds.
        most: Rights that one round asks about; the others follow in the next ones.
        most_named: The same for rights on single objects.
    """

    waiting: Waiting
    access: Accesses
    clock: Clock
    pause: float = 5.0
    most: int = 20
    most_named: int = 10
    _asked: dict[_Question, int] = field(default_factory=dict)
    _rests: dict[_Question, _Rest] = field(default_factory=dict)
    _round: int = 0

    async def run(self) -> None:
        """Ask until cancelled; an error is tried again in the next round."""
        await repeat(self.look, every=self.pause, at_once=False)

    async def look(self) -> None:
        """Ask once for what is missing and wake who waited for what is granted."""
        found = self.waiting.objects_out_of_reach()
        self._forget_all_but({(right, name) for right in found for name in ("", *found[right])})
        self._round += 1
        rights = self._next([(right, "") for right in found], self.most)
        refused = [question[0] for question in rights if not await self._ask(question)]
        named = [
            (right, name)
            for right in refused
            if right.permission.partition(" ")[0] in _OF_ONE_OBJECT
            for name in found[right]
        ]
        for question in self._next(named, self.most_named):
            await self._ask(question)

    async def _ask(self, question: _Question) -> bool:
        missing, name = question
        self._asked[question] = self._round
        right, access = parse_right(missing.permission), self.access.of(missing.account)
        if right is None or not await _granted(access, replace(right, name=name)):
            self._rests.pop(question, None)
            return False
        if self._rested(question):
            self.waiting.wake_lacking(missing, name)
        return True

    def _next(self, questions: Iterable[_Question], most: int) -> list[_Question]:
        # What was not asked for the longest time comes first.
        return sorted(questions, key=lambda item: (self._asked.get(item, 0), str(item)))[:most]

    def _rested(self, question: _Question) -> bool:
        """Return whether to wake now; a right that only seems to be there is asked for rarely."""
        now = self.clock.monotonic()
        rest = self._rests.get(question)
        if rest is not None and now < rest.until:
            return False
        pause = self.pause if rest is None else min(rest.pause * 2, _LONGEST_REST)
        self._rests[question] = _Rest(until=now + pause, pause=pause)
        return True

    def _forget_all_but(self, questions: AbstractSet[_Question]) -> None:
        for table in (self._asked, self._rests):
            for question in table.keys() - questions:
                del table[question]


async def _granted(access: Access, right: Right) -> bool:
    if await access.may(right):
        return True
    # Targets are put where patch is not granted.
    return right.verb == "patch" and await access.may(replace(right, verb="update"))
