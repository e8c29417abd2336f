"""Queues of hooks: they determine the next run, its tasks, and the backoff after a failure.

A queue is an immutable value; each method returns the next one. The dispatcher stores the tasks
durably and rebuilds the queue from them after a crash, so nothing here depends on how a hook runs
or on the clock.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Final

from reconciler.hooks.contexts import Context, ContextType
from reconciler.requests.schedule import Backoff

_LONGEST: Final = 32.0
_BACKOFF: Final = Backoff(base=5.0, ceiling=_LONGEST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Contexts that a hook runs for, at a position in a queue.

    Attributes:
        order: Position, unique in its queue; later tasks have higher ones.
        allow_failure: A failure of its run is counted, but does not block the queue.
    """

    order: int
    hook: str
    contexts: tuple[Context, ...]
    allow_failure: bool = False

    @property
    def is_startup(self) -> bool:
        """Return whether it is for the hook's run at the start, which is a run of its own."""
        return any(context.type is ContextType.STARTUP for context in self.contexts)


@dataclass(frozen=True, slots=True)
class Run:
    """A run of a hook to start now, for all of these tasks."""

    tasks: tuple[Task, ...]

    def within(self, orders: Collection[int]) -> "Run":
        """Return the run limited to its leading tasks with these orders."""
        return Run(tuple(takewhile(lambda task: task.order in orders, self.tasks)))

    @property
    def contexts(self) -> tuple[Context, ...]:
        """Return the contexts of all tasks, in order."""
        return tuple(context for task in self.tasks for context in task.contexts)


@dataclass(frozen=True, slots=True)
class Pause:
    """A time before which no run may start.

    Attributes:
        until: On the caller's clock, in seconds.
    """

    until: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """One queue: a single run at a time, strictly in order.

    Attributes:
        waiting: In the order in which they run.
        running: The tasks of the current run; tasks added meanwhile are for the next one.
        failures: Consecutive failures of the first task.
        retry_at: When the first task is retried.
    """

    waiting: tuple[Task, ...] = ()
    running: tuple[Task, ...] = field(default=())
    failures: int = 0
    retry_at: float = 0.0

    @classmethod
    def of(cls, tasks: Iterable[Task], *, failures: int = 0, retry_at: float = 0.0) -> "Queue":
        """Return a queue of stored tasks, given in any order."""
        return cls(waiting=_ordered(tasks), failures=failures, retry_at=retry_at)

    def add(self, task: Task) -> "Queue":
        """Return the queue with a task at its position, unless it has the task already."""
        last = (*self.running, *self.waiting)[-1:]
        if not last or last[0].order < task.order:
            return replace(self, waiting=(*self.waiting, task))
        if task.order in {known.order for known in (*self.running, *self.waiting)}:
            return self
        return replace(self, waiting=_ordered((*self.waiting, task)))

    def without(self, order: int) -> "Queue":
        """Return the queue without a waiting task; what was not in a failed run is not delayed."""
        left = tuple(item for item in self.waiting if item.order != order)
        if self.running or (left and left[0] in self._together()):
            return replace(self, waiting=left)
        return Queue(waiting=left)

    def next(self, now: float, *, ready_at: float = 0.0) -> Run | Pause | None:
        """Return the next run or pause; None if there is nothing to do until another event.

        Args:
            now: In seconds.
            ready_at: When the pace of the first task's hook allows its next run.
        """
        if self.running or not self.waiting:
            return None
        if max(self.retry_at, ready_at) > now:
            return Pause(max(self.retry_at, ready_at))
        return Run(self._together())

    def begin(self, run: Run) -> "Queue":
        """Return the queue with a run that `next` returned in progress."""
        return replace(self, waiting=self.waiting[len(run.tasks) :], running=run.tasks)

    def succeed(self) -> "Queue":
        """Return the queue after a successful run, without its tasks."""
        return Queue(waiting=self.waiting)

    def fail(self, now: float, *, jitter: float = 0.0) -> "Queue":
        """Return the queue after a failed run: its tasks are retried, unless they may fail.

        Args:
            now: In seconds.
            jitter: The share by which the pause is extended, within [0, 1).
        """
        if all(task.allow_failure for task in self.running):
            return self.succeed()
        return self.again(now, jitter=jitter)

    def again(self, now: float, *, jitter: float = 0.0) -> "Queue":
        """Return the queue after a run whose outcome could not be stored.

        Its tasks are retried first, whether or not they may fail; see `fail`.
        """
        failures = self.failures + 1
        pause = min(_BACKOFF.delay(failures, jitter), _LONGEST)
        return Queue(
            waiting=(*self.running, *self.waiting), failures=failures, retry_at=now + pause
        )

    def _together(self) -> tuple[Task, ...]:
        """Return the first task and the following ones that can share its run."""
        first = self.waiting[0]
        if first.is_startup:
            return (first,)
        # Tasks that may fail do not share a run with tasks that must not be lost.
        alike = first.hook, first.allow_failure
        return tuple(
            takewhile(
                lambda task: (task.hook, task.allow_failure) == alike and not task.is_startup,
                self.waiting,
            )
        )


def _ordered(tasks: Iterable[Task]) -> tuple[Task, ...]:
    return tuple(sorted(tasks, key=lambda task: task.order))
