"""Defers work by the annotations of its policy; deferred requests stay Pending.

Rates are kept in memory. Each policy has one line in which its sweeps and triggers wait, and a
new leader begins a new line.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from reconciler.api.meta import PolicyRef
from reconciler.api.updaterequest import Reason
from reconciler.clock import Clock
from reconciler.errors import InvalidPolicy
from reconciler.requests.lifecycle import Defer
from reconciler.requests.limits import FAILURES, NO_LIMITS, Limits
from reconciler.services.catalog.policy_store import PolicyStore

_LATE: Final = 1.0
"""Seconds by which a busy process may be late for a turn without lowering the rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    """A monotonic time, the same as a status reports it, and the seconds until the next turn."""

    begin: float
    until: datetime
    seconds: float

    @property
    def end(self) -> float:
        return self.begin + self.seconds


@dataclass(slots=True, kw_only=True)
class _Line:
    """The turns of one policy that are not taken yet.

    Attributes:
        rate: Triggers per second.
        free: The end of the last turn.
        taken: The end of the last turn that was taken; no other is taken before it.
    """

    rate: float
    free: float = 0.0
    taken: float = 0.0
    turns: dict[str, _Turn] = field(default_factory=dict)

    def take(self, name: str, now: float) -> None:
        """Use a turn; one that is taken late, as after a pause, moves all that follow it."""
        turn = self.turns.pop(name)
        begin = now if now - turn.begin > _LATE else turn.begin
        self.taken = max(self.taken, begin + turn.seconds)
        self.free = max(self.free, self.taken)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pacer:
    """Applies the limits of all policies, and gives requests their turns."""

    index: PolicyStore
    clock: Clock
    _lines: dict[PolicyRef, _Line] = field(default_factory=dict)

    def limits(self, policy: PolicyRef) -> Limits:
        """Return the limits of a policy; limits that cannot be parsed count as none."""
        stored = self.index.entry(policy)
        found = NO_LIMITS if stored is None else stored.limits
        return NO_LIMITS if isinstance(found, InvalidPolicy) else found

    def closed(self, policy: PolicyRef) -> Defer | None:
        """Return why no work of a policy may be done now, None where it may.

        An annotation that cannot be parsed defers all work, because it is unknown which work it
        was meant to prevent, or which account to act as.
        """
        stored = self.index.entry(policy)
        if stored is None:
            return None
        if reason := self.index.languages.standing_by(policy):
            return Defer(reason=Reason.STANDING_BY, message=reason)
        if stored.misnamed is not None:
            return Defer(reason=Reason.INVALID_ACCOUNT, message=str(stored.misnamed))
        if isinstance(stored.limits, InvalidPolicy):
            return Defer(reason=Reason.INVALID_LIMIT, message=str(stored.limits))
        return stored.limits.hold(self.clock.now())

    def turn(self, policy: PolicyRef, name: str, triggers: int = 1) -> Defer | None:
        """Return when it is the turn of a request, None where it is now.

        Args:
            policy: The policy whose rate counts.
            name: Name of the request, which keeps its turn however often this is called.
            triggers: The number of triggers that it is about to work on.
        """
        rate = self.limits(policy).rate
        if not rate:
            self._lines.pop(policy, None)
            return None
        line = self._lines.get(policy)
        if line is None or line.rate != rate:
            for gone in [ref for ref in self._lines if self.index.entry(ref) is None]:
                del self._lines[gone]
            # After a change of the rate, the waiting requests line up again.
            line = self._lines[policy] = _Line(rate=rate)
        now = self.clock.monotonic()
        if name not in line.turns:
            line.turns[name] = self._turn(max(now, line.free), triggers / rate)
            line.free = line.turns[name].end
        elif line.turns[name].begin <= now < line.taken:
            self._line_up(line)  # After a pause, many turns are due at once.
        turn = line.turns[name]
        if turn.begin <= now:
            line.take(name, now)
            return None
        message = f"the policy is limited to {rate * 60:g} triggers per minute"
        return Defer(reason=Reason.RATE_LIMITED, message=message, until=turn.until)

    def take(self, policy: PolicyRef, name: str) -> None:
        """Use the turn of a request that has waited for it."""
        if (line := self._lines.get(policy)) is not None and name in line.turns:
            line.take(name, self.clock.monotonic())

    def forget(self, name: str) -> None:
        """Give back the turn of a request that no longer needs it."""
        for line in self._lines.values():
            line.turns.pop(name, None)

    def close_gaps(self) -> Mapping[str, float]:
        """Bring turns forward into those that were given back; return when the moved ones are."""
        moved: dict[str, float] = {}
        for line in self._lines.values():
            moved |= self._line_up(line, forward=True)
        return moved

    def _line_up(self, line: _Line, *, forward: bool = False) -> Mapping[str, float]:
        """Let turns follow each other from now on; return when the moved ones are.

        Args:
            forward: No turn is moved back, so that one that stays unused, because its request
                cannot be worked on, does not delay the others each time.
        """
        moved: dict[str, float] = {}
        line.free = line.taken
        for name, turn in sorted(line.turns.items(), key=lambda item: item[1].begin):
            begin = max(self.clock.monotonic(), line.free)
            if forward:
                begin = min(begin, turn.begin)
            if begin != turn.begin:
                line.turns[name] = self._turn(begin, turn.seconds)
                moved[name] = begin
            line.free = max(line.free, begin + turn.seconds)
        return moved

    def _turn(self, begin: float, seconds: float) -> _Turn:
        wait = timedelta(seconds=begin - self.clock.monotonic())
        return _Turn(begin=begin, until=self.clock.now() + wait, seconds=seconds)

    def chunk(self, policy: PolicyRef, most: int) -> int:
        """Return how many triggers a sweep works on before its next turn, from one to ``most``."""
        limits = self.limits(policy)
        return max(1, min(most, limits.batch or most, math.ceil(limits.rate) or most))

    def side_by_side(self, policy: PolicyRef, most: int, failed: int, *, allowed: int = 0) -> int:
        """Return how many triggers may be worked on at the same time, from one to ``most``.

        Args:
            failed: Triggers that failed so far; no more may run at once than may still fail.
            allowed: The limit on failures where the policy sets none; 0 for no limit.
        """
        allowed = self.limits(policy).failures or allowed
        return max(1, min(most, allowed - failed)) if allowed else most

    def stopped(self, policy: PolicyRef, failed: int, *, allowed: int = 0) -> Defer | None:
        """Return why a sweep stops after this many failures, None where it goes on.

        Args:
            failed: Triggers of the sweep that failed.
            allowed: The limit on failures where the policy sets none; 0 for no limit.
        """
        said = self.limits(policy).failures
        if not (said or allowed) or failed < (said or allowed):
            return None
        who, cure = (
            (f"the policy allows {said}", "raise or remove its annotation")
            if said
            else (f"{allowed} are allowed", "set a higher number with the policy's annotation")
        )
        message = f"{failed} triggers failed, and {who}: correct the cause, then {cure} {FAILURES}"
        return Defer(reason=Reason.TOO_MANY_FAILURES, message=message)
