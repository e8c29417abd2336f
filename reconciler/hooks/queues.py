"""The queues of hooks: what runs next, with what, and what happens when it fails.

A queue is a value. What happens to it gives the next one, and what to do; whoever acts on it keeps
the tasks where a crash does not reach them, and makes the queue of them again. So nothing here
knows how a hook runs, or what time it is.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Final

from reconciler.hooks.bindings import Pace
from reconciler.hooks.contexts import Context, ContextType
from reconciler.requests.schedule import Backoff

_LONGEST: Final = 32.0
_BACKOFF: Final = Backoff(base=5.0, ceiling=_LONGEST)
_ALMOST: Final = 1e-9
"""What rounding may take from a token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Something that a hook runs for, in its place in a queue.

    Attributes:
        order: Unique in its queue, and rising.
        allow_failure: A failure of its run is counted, and holds nothing up.
    """

    order: int
    hook: str
    contexts: tuple[Context, ...]
    allow_failure: bool = False

    @property
    def is_startup(self) -> bool:
        """Return whether it is the hook's run at the start, which is one of its own."""
        return any(context.type is ContextType.STARTUP for context in self.contexts)


@dataclass(frozen=True, slots=True)
class Run:
    """A hook to start now, once for all of these tasks."""

    tasks: tuple[Task, ...]

    @property
    def hook(self) -> str:
        """Return which hook."""
        return self.tasks[0].hook

    def within(self, orders: Collection[int]) -> "Run":
        """Return it for its first tasks alone, those in these places."""
        return Run(tuple(takewhile(lambda task: task.order in orders, self.tasks)))

    @property
    def contexts(self) -> tuple[Context, ...]:
        """Return its contexts, in order."""
        return tuple(context for task in self.tasks for context in task.contexts)


@dataclass(frozen=True, slots=True)
class Pause:
    """Nothing to start before a moment.

    Attributes:
        until: In the seconds of whoever asked.
        failed: Because of a run that failed; else the hook's pace holds it.
    """

    until: float
    failed: bool


@dataclass(frozen=True, slots=True)
class Bucket:
    """What a hook's pace has left: a run takes a token, and each interval brings one.

    Attributes:
        tokens: As of a moment.
        at: That moment.
    """

    tokens: float
    at: float

    @classmethod
    def full(cls, pace: Pace, now: float) -> "Bucket":
        """Return the bucket of a hook that has not run yet."""
        return cls(float(max(pace.burst, 1)), now)

    def ready_at(self, pace: Pace, now: float) -> float:
        """Return when there is a token, now at the earliest."""
        missing = 1 - self._filled(pace, now)
        return now if missing <= _ALMOST else now + missing * pace.interval

    def take(self, pace: Pace, now: float) -> "Bucket":
        """Return the bucket without the token of a run that begins now."""
        return Bucket(max(self._filled(pace, now) - 1, 0.0), now)

    def _filled(self, pace: Pace, now: float) -> float:
        most = float(max(pace.burst, 1))
        if pace.interval <= 0:
            return most
        return min(most, self.tokens + max(now - self.at, 0.0) / pace.interval)


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """One queue: a single run at a time, strictly in order.

    Attributes:
        waiting: In the order of their running.
        running: What the run has begun with; tasks that come meanwhile are for the next one.
        failures: Of the first in the queue, in a row.
        retry_at: When it is tried again.
    """

    waiting: tuple[Task, ...] = ()
    running: tuple[Task, ...] = field(default=())
    failures: int = 0
    retry_at: float = 0.0

    @classmethod
    def of(cls, tasks: Iterable[Task], *, failures: int = 0, retry_at: float = 0.0) -> "Queue":
        """Return the queue of tasks that were kept, in whatever order they come."""
        return cls(waiting=_ordered(tasks), failures=failures, retry_at=retry_at)

    def add(self, task: Task) -> "Queue":
        """Return it with one more task in its place; one that is there already is not added."""
        last = (*self.running, *self.waiting)[-1:]
        if not last or last[0].order < task.order:
            return replace(self, waiting=(*self.waiting, task))
        if task.order in {known.order for known in (*self.running, *self.waiting)}:
            return self
        return replace(self, waiting=_ordered((*self.waiting, task)))

    def without(self, order: int) -> "Queue":
        """Return it without a task that waits."""
        return replace(self, waiting=tuple(item for item in self.waiting if item.order != order))

    def next(self, now: float, *, ready_at: float = 0.0) -> Run | Pause | None:
        """Return what to do; None: there is nothing to do until something happens.

        Args:
            now: In seconds.
            ready_at: When the first task's hook may run again, by its pace.
        """
        if self.running or not self.waiting:
            return None
        if max(self.retry_at, ready_at) > now:
            failed = self.retry_at >= ready_at
            return Pause(max(self.retry_at, ready_at), failed)
        return Run(self._together())

    def begin(self, run: Run) -> "Queue":
        """Return it with a run that `next` named under way."""
        return replace(self, waiting=self.waiting[len(run.tasks) :], running=run.tasks)

    def succeed(self) -> "Queue":
        """Return it after the run: its tasks are done."""
        return Queue(waiting=self.waiting)

    def fail(self, now: float, *, jitter: float = 0.0) -> "Queue":
        """Return it after the run failed: its tasks are done if they may be, else first again.

        Args:
            now: In seconds.
            jitter: Within [0, 1): how much the pause is longer than it must be.
        """
        if all(task.allow_failure for task in self.running):
            return self.succeed()
        return self.again(now, jitter=jitter)

    def again(self, now: float, *, jitter: float = 0.0) -> "Queue":
        """Return it after a run of which nobody could store what became of it.

        Its tasks are first again, whether or not they may fail; see `fail`.
        """
        failures = self.failures + 1
        pause = min(_BACKOFF.delay(failures, jitter), _LONGEST)
        return Queue(
            waiting=(*self.running, *self.waiting), failures=failures, retry_at=now + pause
        )

    def _together(self) -> tuple[Task, ...]:
        """Return the first task and those after it that one run is for."""
        first = self.waiting[0]
        if first.is_startup:
            return (first,)
        # What may fail does not take along what must not be lost.
        alike = first.hook, first.allow_failure
        return tuple(
            takewhile(
                lambda task: (task.hook, task.allow_failure) == alike and not task.is_startup,
                self.waiting,
            )
        )


def _ordered(tasks: Iterable[Task]) -> tuple[Task, ...]:
    return tuple(sorted(tasks, key=lambda task: task.order))
