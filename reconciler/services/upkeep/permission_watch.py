"""Polling for missing rights, so that requests resume long before their next attempt is due.

Watching roles and bindings would need rights to read all of RBAC, and the authorizer may not be
RBAC at all. So each round sends one access review per distinct missing right, however many
requests lack it, and none while nothing is missing. A right may also be granted for single
objects (``resourceNames``), so a few of the objects are also checked by name.
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
"""A missing right and the name of the object that it is needed for, empty for any object."""


class Waiting(Protocol):
    """The component that holds the waiting requests."""

    def objects_out_of_reach(self) -> Mapping[MissingRight, frozenset[str]]:
        """Return, by missing right, the names of the objects that it is missing for."""

    def wake_lacking(self, missing: MissingRight, name: str = "") -> None:
        """Retry the requests that wait for a right on a named object, or on any if empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rest:
    """The backoff for a right that seems granted while the woken requests still lack it."""

    until: float
    pause: float


@dataclass(slots=True, kw_only=True)
class PermissionWatch:
    """Wakes the requests whose missing right has been granted; run by the leader only.

    Attributes:
        waiting: Holds the waiting requests: the dispatcher.
        pause: Seconds between two rounds.
        most: The number of rights that one round checks; the others follow in the next ones.
        most_named: The number of rights on single objects that one round checks.
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
        """Check every round until cancelled; an error is retried in the next round."""
        await repeat(self.look, every=self.pause, at_once=False)

    async def look(self) -> None:
        """Check the missing rights once and wake the requests whose right is granted."""
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
        # The right that has not been checked for the longest time comes first.
        return sorted(questions, key=lambda item: (self._asked.get(item, 0), str(item)))[:most]

    def _rested(self, question: _Question) -> bool:
        """Return whether to wake requests now; repeated wakes for the same right back off."""
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
    # Without the patch right, targets are written with an update.
    return right.verb == "patch" and await access.may(replace(right, verb="update"))
