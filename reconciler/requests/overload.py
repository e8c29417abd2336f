"""When recording turns from one request per trigger to one per rule, and when that is done.

Rule 1: above the waiting limit it turns, below the low mark it turns back; between them nothing
changes, so that it does not flutter.
Rule 2: a replica counts what the leader published last, and what it stored itself and the leader
had not seen by then. So an old figure never lets through more than the limit.
Rule 3: an aggregate request covers a trigger when a list began at least one request timeout of the
API server after the trigger raised its sequence: by then it is stored, or never will be.
Rule 4: a namespace and a policy have a share of both limits. Who is over it is diverted or refused
alone, so that the flood of one does not meet the others.
"""

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

_STEP = 10
"""Parts of the limit by which a figure may differ before it is worth telling."""
_GRAIN = 1.0
"""Seconds within which the sequences of an aggregate request are taken for one."""
_AGGREGATES = 1000
_MOST_HOLDERS: Final = 50
_NAMESPACE: Final = "namespace/"
_POLICY: Final = "policy/"


def holders(policy: str, namespace: str) -> tuple[str, ...]:
    """Return whose shares a request counts in: its policy's, and its trigger's namespace's."""
    own = f"{_POLICY}{policy}"
    return (own, f"{_NAMESPACE}{namespace}") if namespace else (own,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Numbers of waiting requests.

    Attributes:
        limit: From here on rules that can be rebuilt are diverted; 0: they never are.
        hard: From here on other rules are not recorded any more.
        namespace: Hundredths of both that the triggers of one namespace may take.
        policy: The same for one policy.
    """

    limit: int
    hard: int
    namespace: int = 100
    policy: int = 100

    def of(self, holder: str) -> "Thresholds":
        """Return the limits of one of `holders`."""
        part = self.policy if holder.startswith(_POLICY) else self.namespace
        hard = max(self.hard, self.limit)
        return Thresholds(
            limit=max(1, self.limit * part // 100) if self.limit else 0,
            hard=max(1, hard * part // 100),
        )

    @property
    def low(self) -> int:
        """Return the number below which recording turns back."""
        return self.limit - self.limit // 5

    def diverts(self, waiting: int, *, before: bool) -> bool:
        """Return whether rules are diverted now, given whether they were."""
        if not self.limit:
            return False
        return waiting >= (self.low if before else self.limit)

    def full(self, waiting: int) -> bool:
        """Return whether nothing more is recorded one by one."""
        return waiting >= max(self.hard, self.limit)

    @property
    def step(self) -> int:
        """Return by how much a number may differ before it is worth telling."""
        return max(1, (self.limit or self.hard) // _STEP)

    def largest(self, held: Counter[str]) -> dict[str, int]:
        """Return the holders that are worth telling of."""
        return {
            key: number for key, number in held.most_common(_MOST_HOLDERS) if number >= self.step
        }

    def side(self, waiting: int) -> tuple[bool, ...]:
        """Return which of the marks a number has reached."""
        return waiting >= self.low, waiting >= self.limit, self.full(waiting)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """What the leader tells the replicas that record.

    Attributes:
        waiting: Requests that are not final.
        seen: The highest resourceVersion of a request that it knew of.
        of: How many each of the largest `holders` has; who is not named has few.
    """

    waiting: int = 0
    seen: int = 0
    of: Mapping[str, int] = field(default_factory=dict)

    def outdates(self, reported: "Backlog", noticed: int, thresholds: Thresholds) -> bool:
        """Return whether it is worth telling, after another and so many new requests.

        New requests count although they are done: until they are published, a replica takes those
        that it stored for waiting ones.
        """
        step = thresholds.step
        if any(
            abs(self.of.get(key, 0) - reported.of.get(key, 0)) >= step
            for key in {*self.of, *reported.of}
        ):
            return True
        if abs(self.waiting - reported.waiting) >= step or noticed >= step:
            return True
        return thresholds.side(self.waiting) != thresholds.side(reported.waiting)


@dataclass(slots=True)
class Settling:
    """The sequences of aggregate requests, and since when each is known, by the caller's clock."""

    _known: dict[str, deque[tuple[int, float, float]]] = field(default_factory=dict)

    def note(self, aggregate: str, sequence: int, now: float) -> None:
        """Note the sequence of an aggregate request as it is stored now."""
        known = self._known.setdefault(aggregate, deque())
        begun = now
        if known:
            last, since, _ = known[-1]
            if sequence <= last:
                return
            if now - since < _GRAIN:
                # Kept together with the one before, whose time then is the later one.
                begun = since
                known.pop()
        known.append((sequence, begun, now))
        if len(self._known) > _AGGREGATES:
            # One that is worked on still waits for its sequence once more.
            self._known.pop(next(iter(self._known)))

    def settled(self, aggregate: str, since: float) -> int:
        """Return the highest sequence that is known since then, 0 where none is."""
        old = [item[0] for item in self._known.get(aggregate, ()) if item[2] <= since]
        return max(old, default=0)

    def first(self, aggregate: str) -> float:
        """Return since when the first sequence is known that is not dropped."""
        known = self._known.get(aggregate)
        return known[0][2] if known else 0.0

    def drop(self, aggregate: str, upto: int) -> None:
        """Forget the sequences that are seen to."""
        known = self._known.get(aggregate, deque())
        while known and known[0][0] <= upto:
            known.popleft()
        if not known:
            self._known.pop(aggregate, None)
