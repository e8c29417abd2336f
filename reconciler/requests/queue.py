"""A queue of request names with due times, in which tenants take turns.

Only one worker at a time works on a name. A name that is pushed while it is in work comes again
afterwards, so no change in between is missed.
"""

import heapq
from collections import Counter, OrderedDict
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field


@dataclass(slots=True)
class RequestQueue:
    """Names by due time; times are seconds of one clock, chosen by the caller.

    Attributes:
        share: How many names of one tenant may be in work at a time; 0 means any number.
    """

    share: int = 0
    _due: dict[str, float] = field(default_factory=dict)
    _heap: list[tuple[float, str]] = field(default_factory=list)
    _tenants: dict[str, str] = field(default_factory=dict)
    _ready: OrderedDict[str, list[tuple[float, str]]] = field(default_factory=OrderedDict)
    _working: dict[str, float | None] = field(default_factory=dict)
    _busy: Counter[str] = field(default_factory=Counter)

    def push(self, name: str, due: float, tenant: str = "") -> None:
        """Schedule a name, or bring it forward; a name in work comes again after it is done.

        Args:
            tenant: The tenant of the name, given with the first push.
        """
        if tenant:
            self._tenants.setdefault(name, tenant)
        if name in self._working:
            planned = self._working[name]
            self._working[name] = due if planned is None else min(planned, due)
        elif name not in self._due or due < self._due[name]:
            self._due[name] = due
            heapq.heappush(self._heap, (due, name))

    def drop(self, name: str) -> None:
        """Forget a name; if it is in work it does not come again."""
        self._due.pop(name, None)
        if name in self._working:
            self._working[name] = None
        else:
            self._tenants.pop(name, None)

    def take(self, now: float) -> str | None:
        """Return a due name and mark it as in work, None where no name may begin.

        The tenants of due names take turns.
        """
        self._sort_out(now)
        tenant = next((one for one in self._ready if self._may_begin(one)), None)
        if tenant is None:
            return None
        _, name = heapq.heappop(self._ready[tenant])
        self._begin(name)
        self._ready.move_to_end(tenant)
        return name

    def take_out_of_turn(self, name: str, now: float) -> bool:
        """Mark a name as in work, regardless of turns; return whether it was due."""
        if self._due.get(name, now + 1) > now:
            return False
        self._begin(name)
        return True

    def _begin(self, name: str) -> None:
        del self._due[name]
        self._working[name] = None
        self._busy[self._tenants.get(name, "")] += 1

    def finish(self, name: str) -> None:
        """End the work on a name."""
        if name not in self._working:
            return
        planned = self._working.pop(name)
        tenant = self._tenants.get(name, "")
        self._busy[tenant] -= 1
        if not self._busy[tenant]:
            del self._busy[tenant]
        if planned is None:
            self._tenants.pop(name, None)
        else:
            self.push(name, planned)

    def next_due(self) -> float | None:
        """Return when the next name that may begin is due, None where there is none."""
        self._clean()
        dues = [names[0][0] for tenant, names in self._ready.items() if self._may_begin(tenant)]
        return min(dues + [due for due, _ in self._heap[:1]], default=None)

    @property
    def working(self) -> AbstractSet[str]:
        """Return the names in work."""
        return self._working.keys()

    @property
    def depth(self) -> int:
        """Return how many names are scheduled or in work."""
        return len(self._due) + len(self._working)

    def _may_begin(self, tenant: str) -> bool:
        return not self.share or self._busy[tenant] < self.share

    def _sort_out(self, now: float) -> None:
        while self._heap and self._heap[0][0] <= now:
            due, name = heapq.heappop(self._heap)
            tenant = self._tenants.get(name, "")
            heapq.heappush(self._ready.setdefault(tenant, []), (due, name))
        self._clean()

    def _clean(self) -> None:
        """Remove entries from the front whose names were dropped or brought forward since."""
        for tenant, names in list(self._ready.items()):
            while names and self._due.get(names[0][1]) != names[0][0]:
                heapq.heappop(names)
            if not names:
                del self._ready[tenant]
        while self._heap and self._due.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
