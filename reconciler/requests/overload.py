"""When recording switches from one request per trigger to one per rule, and what that covers.

Rule 1: recording switches above the waiting limit and switches back below the low mark; between
them nothing changes, so that it does not flap.
Rule 2: a replica adds the requests that it stored itself, and the leader had not seen yet, to the
number that the leader published last. So an old number never admits more than the limit.
Rule 3: an aggregate request covers a trigger when a list began at least one request timeout of the
API server after the trigger raised its sequence: by then it is stored, or never will be.
Rule 4: a namespace and a policy have a share of both limits. Only the holder above its share is
diverted or refused, so that its flood does not affect the others.
"""

from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from reconciler.api.updaterequest import RequestSpec

_STEP = 10
"""The limit divided by this is the change from which a number is published again."""
_GRAIN = 1.0
"""Seconds within which the sequences of an aggregate request are merged into one."""
_AGGREGATES = 1000
_MOST_HOLDERS: Final = 50
_NAMESPACE: Final = "namespace/"
_POLICY: Final = "policy/"


def holders(policy: str, namespace: str) -> tuple[str, ...]:
    """Return the holders of the shares that a request counts in: its policy and namespace."""
    own = f"{_POLICY}{policy}"
    return (own, f"{_NAMESPACE}{namespace}") if namespace else (own,)


def holders_of(spec: RequestSpec) -> tuple[str, ...]:
    """Return the `holders` of a request with this spec."""
    return holders(spec.policy.key, spec.resource.namespace)


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Numbers of waiting requests.

    Attributes:
        limit: From here on, rules that can be rebuilt are diverted; 0 means never.
        hard: From here on, other rules are no longer recorded.
        namespace: Percentage of both that the triggers of one namespace may use.
        policy: The same for one policy.
    """

    limit: int
    hard: int
    namespace: int = 100
    policy: int = 100

    def of(self, holder: str) -> "Thresholds":
        """Return the thresholds of one of `holders`."""
        part = self.policy if holder.startswith(_POLICY) else self.namespace
        hard = max(self.hard, self.limit)
        return Thresholds(
            limit=max(1, self.limit * part // 100) if self.limit else 0,
            hard=max(1, hard * part // 100),
        )

    @property
    def low(self) -> int:
        """Return the number below which recording switches back."""
        return self.limit - self.limit // 5

    def diverts(self, waiting: int, *, before: bool) -> bool:
        """Return whether rules are diverted now, given whether they were before."""
        if not self.limit:
            return False
        return waiting >= (self.low if before else self.limit)

    def full(self, waiting: int) -> bool:
        """Return whether no trigger is recorded one by one any more."""
        return waiting >= max(self.hard, self.limit)

    @property
    def step(self) -> int:
        """Return the change from which a number is published again."""
        return max(1, (self.limit or self.hard) // _STEP)

    def largest(self, held: Counter[str]) -> dict[str, int]:
        """Return the holders with a number large enough to publish."""
        return {
            key: number for key, number in held.most_common(_MOST_HOLDERS) if number >= self.step
        }

    def side(self, waiting: int) -> tuple[bool, ...]:
        """Return which of the three marks a number has reached."""
        return waiting >= self.low, waiting >= self.limit, self.full(waiting)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """The waiting requests, as the leader publishes them to the replicas that record.

    Attributes:
        waiting: Number of requests that are not final.
        seen: The highest resourceVersion of a request that the leader has seen.
        of: The number of each of the largest `holders`; a holder that is missing has few.
    """

    waiting: int = 0
    seen: int = 0
    of: Mapping[str, int] = field(default_factory=dict)

    def with_more(self, requests: Collection[Sequence[str]]) -> "Backlog":
        """Return it with more requests, each given by its `holders`."""
        more = Counter(holder for request in requests for holder in request)
        of = {holder: number + more[holder] for holder, number in self.of.items()}
        return replace(self, waiting=self.waiting + len(requests), of=of)

    def outdates(self, reported: "Backlog", noticed: int, thresholds: Thresholds) -> bool:
        """Return whether to publish it, given the last published one and the new requests.

        New requests count even when they are done: until they are published, a replica counts
        those that it stored as waiting.
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
    """The sequences of aggregate requests, and when each was noted, on the caller's clock.

    An aggregate request is given by its uid: a later one of the same rule may have its name.
    """

    _known: dict[str, deque[tuple[int, float, float]]] = field(default_factory=dict)

    def note(self, aggregate: str, sequence: int, now: float) -> None:
        """Note the sequence of an aggregate request as it is stored at this time."""
        known = self._known.setdefault(aggregate, deque())
        begun = now
        if known:
            last, since, _ = known[-1]
            if sequence <= last:
                return
            if now - since < _GRAIN:
                # Merged with the one before, whose time then is the later one.
                begun = since
                known.pop()
        known.append((sequence, begun, now))
        if len(self._known) > _AGGREGATES:
            # If it is still worked on, it only has to wait for its sequence once more.
            self._known.pop(next(iter(self._known)))

    def settled(self, aggregate: str, since: float) -> int:
        """Return the highest sequence that was noted by then, 0 where none was."""
        old = [item[0] for item in self._known.get(aggregate, ()) if item[2] <= since]
        return max(old, default=0)

    def first(self, aggregate: str) -> float:
        """Return when the first sequence that is not dropped was noted, 0 where there is none."""
        known = self._known.get(aggregate)
        return known[0][2] if known else 0.0

    def drop(self, aggregate: str, upto: int) -> None:
        """Forget the sequences that are covered."""
        known = self._known.get(aggregate, deque())
        while known and known[0][0] <= upto:
            known.popleft()
        if not known:
            self._known.pop(aggregate, None)
