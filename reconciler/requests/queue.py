"""Which request comes next: a queue of names with due times.

A name is worked on by one worker at a time. A name that is pushed while it is worked on comes
again afterwards, so nothing that happened meanwhile is missed.
"""

import heapq
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field


@dataclass(slots=True)
class RequestQueue:
    """Names by due time; times are seconds of one clock, chosen by the caller."""

    _due: dict[str, float] = field(default_factory=dict)
    _heap: list[tuple[float, str]] = field(default_factory=list)
    _working: dict[str, float | None] = field(default_factory=dict)

    def push(self, name: str, due: float) -> None:
        """Plan a name, or bring it forward; a name in work comes again after it is done."""
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

    def take(self, now: float) -> str | None:
        """Return a due name and mark it as in work, None where nothing is due."""
        while self._heap and self._heap[0][0] <= now:
            due, name = heapq.heappop(self._heap)
            if self._due.get(name) == due:
                del self._due[name]
                self._working[name] = None
                return name
        return None

    def finish(self, name: str) -> None:
        """End the work on a name."""
        planned = self._working.pop(name, None)
        if planned is not None:
            self.push(name, planned)

    def next_due(self) -> float | None:
        """Return when the next name is due, None where none is planned."""
        while self._heap and self._due.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    @property
    def working(self) -> AbstractSet[str]:
        """Return the names in work."""
        return self._working.keys()

    @property
    def depth(self) -> int:
        """Return how many names are planned or in work."""
        return len(self._due) + len(self._working)
