"""Dispatcher of the queues of hooks: each runs one hook at a time, in order, independently.

A queue belongs to one namespace, so a tenant's hook can only block hooks of the same tenant.
ClusterHooks share their queues.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from reconciler.api.meta import Object
from reconciler.api.updaterequest import Reason, UpdateRequest
from reconciler.clock import Clock
from reconciler.errors import ClusterError, NotFound
from reconciler.hooks.contexts import Context
from reconciler.hooks.plan import parse_plan
from reconciler.hooks.ports import HookRef
from reconciler.hooks.queues import Pause, Queue, Run, Task
from reconciler.hooks.records import contexts_of, may_fail
from reconciler.recent import Recent
from reconciler.requests.lifecycle import Defer, Done, Retry, Skip
from reconciler.requests.pace import Bucket, Pace
from reconciler.services.hooks.active import ActiveHook
from reconciler.services.hooks.requests import HookRequests
from reconciler.services.hooks.running import RunOutcome
from reconciler.services.jobs import repeat
from reconciler.signals import Signal

_QueueKey = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """A run that has ended, for metrics and events.

    Attributes:
        binding: That of the first context.
        failure: Empty if it succeeded.
        allowed: The run may fail.
    """

    hook: HookRef
    uid: str
    binding: str
    queue: str
    seconds: float
    failure: str
    allowed: bool


@dataclass(slots=True, kw_only=True)
class _Line:
    """A queue with the requests of its tasks."""

    queue: Queue = field(default_factory=Queue)
    failure: str = ""
    again: datetime | None = None
    members: dict[int, tuple[UpdateRequest, ...]] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class HookDispatcher:
    """Runs hooks for recorded requests.

    Attributes:
        stored: UIDs of the hooks that are known to be stored; requests wait for one that is not
            active. Empty for a hook of another program.
        find: Reads a hook; None if it does not exist.
        jitter: Returns the share by which a pause is extended, within [0, 1).
        ran: Emits each run that has ended.
    """

    requests: HookRequests
    hooks: Mapping[HookRef, ActiveHook]
    clock: Clock
    find: Callable[[HookRef], Awaitable[Object | None]]
    jitter: Callable[[], float]
    stored: dict[HookRef, str] = field(default_factory=dict)
    ran: Signal[[RunReport]] = field(default_factory=Signal)
    _lines: dict[_QueueKey, _Line] = field(default_factory=dict)
    _buckets: Recent[str, Bucket] = field(default_factory=Recent)
    _running: dict[_QueueKey, asyncio.Task[None]] = field(default_factory=dict)
    _woken: asyncio.Event = field(default_factory=asyncio.Event)

    async def load(self) -> list[UpdateRequest]:
        """Enqueue the requests that wait from an earlier process; return them."""
        stored = sorted(await self.requests.load(), key=lambda request: request.spec.order)
        covered: set[str] = set()
        for request in stored:
            if request.name in covered:
                continue
            plan = request.status.plan
            names = parse_plan(plan).covers if plan is not None else ()
            covered.update(names)
            # Requests that share a plan end together.
            together = [item for item in stored if item.name in names] or [request]
            await self._enter(together)
        for line in self._lines.values():
            self._restore(line)
        return stored

    def _restore(self, line: _Line) -> None:
        """Restore the backoff of the first request in a queue."""
        if not line.queue.waiting:
            return
        status = line.members[line.queue.waiting[0].order][0].status
        due = status.next_attempt
        left = 0.0 if due is None else max((due - self.clock.now()).total_seconds(), 0.0)
        line.failure, line.again = status.message, due
        line.queue = Queue.of(
            line.queue.waiting, failures=status.attempts, retry_at=self.clock.monotonic() + left
        )

    async def add(self, request: UpdateRequest) -> None:
        """Enqueue a request that has just been stored."""
        self.requests.add(request)
        await self._enter([request])

    def remove(self, name: str) -> None:
        """Remove a request that was deleted from its queue, and abandon its work.

        A run in progress ends first.
        """
        self.requests.remove(name)
        for line in self._lines.values():
            running = {task.order for task in line.queue.running}
            self._forget(line, line.members.keys() - running)
        self._count()
        self._woken.set()

    def _forget(self, line: _Line, orders: Iterable[int]) -> None:
        """Remove the requests of tasks that were deleted or have ended, and tasks without any."""
        for order in orders:
            known = tuple(item for item in line.members[order] if self.requests.knows(item.name))
            line.members[order] = known
            if not known:
                del line.members[order]
                line.queue = line.queue.without(order)

    def on_stored(self, request: UpdateRequest) -> None:
        """Start the next attempt at once if an update of a request asks for that."""
        if self.requests.is_nudged(request):
            for line in self._lines.values():
                first = line.queue.waiting[:1]
                if first and first[0].order == request.spec.order:
                    line.queue = replace(line.queue, retry_at=0.0)
            self._woken.set()

    def holds(self, hook: ActiveHook, queue: str, context: Context) -> bool:
        """Return whether a stored request with a context waits in a queue, or runs."""
        ref = hook.declared.ref
        line = self._lines.get((ref.namespace, queue), _Line())
        named = _hook_of(ref, hook.declared.uid)
        return any(
            # Contexts of one type share a request: those of others need not be compared.
            task.hook == named
            and task.contexts[0].type is context.type
            and context in task.contexts
            for task in (*line.queue.running, *line.queue.waiting)
        )

    def wake(self) -> None:
        """Check the queues again because a hook became ready or was removed."""
        self._woken.set()

    async def run(self) -> None:
        """Run until cancelled, which cancels the runs in progress too."""
        try:
            await repeat(self._start, woken=self._woken)
        finally:
            for task in self._running.values():
                task.cancel()
            await asyncio.gather(*self._running.values(), return_exceptions=True)

    async def _start(self) -> None:
        self._woken.clear()
        for key in [key for key, task in self._running.items() if task.done()]:
            self._running.pop(key).result()
        now = self.clock.monotonic()
        for key, line in self._lines.items():
            if key in self._running:
                continue
            step = line.queue.next(now, ready_at=self._ready_at(line, now))
            if isinstance(step, Pause):
                asyncio.get_running_loop().call_later(step.until - now, self._woken.set)
            elif step is not None and not self._awaited(line):
                run = self._as_planned(step, line)
                hook = self.hooks.get(_first(line).spec.policy)
                line.queue = line.queue.begin(run)
                self._running[key] = asyncio.create_task(
                    self._run(key, line, run, hook), name=f"hook queue {'/'.join(key)}"
                )
        self._count()

    def _as_planned(self, run: Run, line: _Line) -> Run:
        """Return a run limited to the requests of the plan that an earlier attempt left."""
        first = line.members[run.tasks[0].order][0]
        names = self.requests.planned_with(first.name)
        if not names:
            return run
        return run.within(
            {
                order
                for order, members in line.members.items()
                if all(request.name in names for request in members)
            }
        )

    def _awaited(self, line: _Line) -> str:
        """Return what keeps the first hook in a queue from a run; empty if it may begin."""
        spec = _first(line).spec
        hook = self.hooks.get(spec.policy)
        if hook is not None:
            # A run at the start has no snapshots, and may install the kind of those.
            ready = hook.synced or line.queue.waiting[0].is_startup
            return "" if ready else "its objects are not listed yet"
        # An edited hook is compiled anew; that of an executable is restored.
        held = self.stored.get(spec.policy) == spec.policy_uid
        return "it is invalid, or its change is not complete yet" if held else ""

    def _ready_at(self, line: _Line, now: float) -> float:
        """Return when the pace of the first hook in a queue allows its next run."""
        if not line.queue.waiting:
            return now
        hook = self.hooks.get(_first(line).spec.policy)
        if hook is None or (pace := hook.declared.config.pace) is None:
            return now
        return self._bucket(hook, pace, now).ready_at(pace, now)

    def _bucket(self, hook: ActiveHook, pace: Pace, now: float) -> Bucket:
        """Return the bucket of a hook, which it keeps when it is edited."""
        return self._buckets.get(hook.declared.uid) or Bucket.full(pace, now)

    async def _run(self, key: _QueueKey, line: _Line, run: Run, hook: ActiveHook | None) -> None:
        covered = [item for task in run.tasks for item in line.members[task.order]]
        ref = covered[0].spec.policy
        try:
            if hook is None or hook.declared.uid != covered[0].spec.policy_uid:
                await self._without_hook(line, covered)
                return
            if contexts := [item for item in run.contexts if hook.knows(item)]:
                await self._attempt(hook, line, key[1], covered, contexts)
                return
            said = f"{ref.kind} {ref} no longer has a binding {covered[0].spec.rule!r}"
            await self._give_up(covered, Reason.RULE_GONE, said)
            line.queue = line.queue.succeed()
        except ClusterError as error:
            self._again(line, f"cannot store the result: {error}")
        finally:
            self._forget(line, [task.order for task in run.tasks])
            self._woken.set()

    def _again(self, line: _Line, failure: str) -> None:
        line.failure, now = failure, self.clock.monotonic()
        line.queue = line.queue.again(now, jitter=self.jitter())
        line.again = self.clock.now() + timedelta(seconds=line.queue.retry_at - now)

    async def _without_hook(self, line: _Line, covered: Sequence[UpdateRequest]) -> None:
        """End the requests of a hook that is deleted; let them wait while that is not known.

        A watch also reports hooks as deleted that it may no longer read.
        """
        ref, uid = covered[0].spec.policy, covered[0].spec.policy_uid
        named = f"{ref.kind} {ref}"
        try:
            known = self.stored[ref] if ref in self.stored else _uid(await self.find(ref))
        except ClusterError as error:
            unknown = f"it is not known whether {named} still exists: {error}"
        else:
            unknown = f"{named} is stored, but not followed yet" if known == uid else ""
        if unknown:
            defer = Defer(reason=Reason.FAILED, message=unknown)
            await self.requests.end(covered[0].name, defer)
            self._again(line, unknown)
            return
        elsewhere = self.stored.get(ref) == ""
        gone = f"{named} is run by another program now" if elsewhere else f"{named} is gone"
        await self._give_up(covered, Reason.POLICY_GONE, gone)
        line.queue = line.queue.succeed()

    async def _attempt(
        self,
        hook: ActiveHook,
        line: _Line,
        queue: str,
        covered: Sequence[UpdateRequest],
        contexts: Sequence[Context],
    ) -> None:
        ref, started = hook.declared.ref, self.clock.monotonic()
        pace = hook.declared.config.pace
        if pace is not None:
            bucket = self._bucket(hook, pace, started)
            self._buckets.keep(hook.declared.uid, bucket.take(pace, started))
        allowed = all(task.allow_failure for task in line.queue.running)
        outcome = await hook.attempt(covered, contexts, repeated=not allowed)
        await self._settle(line, covered, outcome, allowed=allowed)
        hook.account.ran(self.clock.now(), outcome.failure, counts=not allowed)
        self.ran.emit(
            RunReport(
                hook=ref,
                uid=hook.declared.uid,
                binding=contexts[0].binding,
                queue=queue,
                seconds=self.clock.monotonic() - started,
                failure=outcome.failure,
                allowed=allowed,
            )
        )

    async def _give_up(
        self, covered: Sequence[UpdateRequest], reason: Reason, message: str
    ) -> None:
        for request in covered:
            await self.requests.end(request.name, Skip(reason=reason, message=message))

    async def _settle(
        self,
        line: _Line,
        covered: Sequence[UpdateRequest],
        outcome: RunOutcome,
        *,
        allowed: bool,
    ) -> None:
        """Store how a run ended, the first request last because it holds the plan of all."""
        now = self.clock.monotonic()
        first, *others = covered
        line.failure = outcome.failure
        if outcome.failure and not allowed:
            jitter = self.jitter()
            retry = Retry(
                reason=Reason.FORBIDDEN if outcome.missing else Reason.HOOK_FAILED,
                message=outcome.failure,
                retry_after=line.queue.fail(now, jitter=jitter).retry_at - now,
                missing_permission=outcome.missing,
            )
            await self.requests.end(first.name, retry, outcome.targets)
            # More tasks may have been added while that was stored.
            line.queue = line.queue.fail(now, jitter=jitter)
            line.again = self.clock.now() + timedelta(seconds=retry.retry_after)
            return
        said = f"failed, as its binding allows: {outcome.failure}" if outcome.failure else ""
        for request in others:
            message = said or f"ran together with {first.name}"
            await self.requests.end(request.name, Done(message=message))
        await self.requests.end(first.name, Done(message=said), outcome.targets)
        line.queue = line.queue.succeed()

    async def _enter(self, together: Sequence[UpdateRequest]) -> None:
        """Add requests to their queue as one task."""
        contexts: list[Context] = []
        may = True
        for request in together:
            try:
                recorded = await self.requests.recorded(request)
            except NotFound as error:
                skip = Skip(reason=Reason.RECORD_GONE, message=str(error))
                await self.requests.end(request.name, skip)
                continue
            contexts += contexts_of(recorded)
            may = may and may_fail(recorded)
        first = together[0]
        if not contexts:
            return
        spec = first.spec
        line = self._lines.setdefault((spec.policy.namespace, spec.queue), _Line())
        task = Task(
            order=spec.order,
            hook=_hook_of(spec.policy, spec.policy_uid),
            contexts=tuple(contexts),
            allow_failure=may,
        )
        line.queue = line.queue.add(task)
        line.members[spec.order] = tuple(together)
        self._woken.set()

    def _count(self) -> None:
        """Update the accounts of all hooks: how many requests wait, and what blocks them."""
        counted: set[tuple[HookRef, str]] = set()
        for key, line in list(self._lines.items()):
            if not line.members and key not in self._running:
                del self._lines[key]
                continue
            name, tasks = key[1], (*line.queue.running, *line.queue.waiting)
            waiting = Counter(
                request.spec.policy for task in tasks for request in line.members[task.order]
            )
            blocked, by = self._blocked(line)
            for ref in waiting.keys() & self.hooks.keys():
                said = blocked
                if by is not None and ref != by:
                    said = f"waits behind {by.kind} {by}: {blocked}"
                self.hooks[ref].account.wait(name, waiting[ref], said)
                counted.add((ref, name))
        for ref, hook in self.hooks.items():
            for name in hook.account.queues:
                if (ref, name) not in counted:
                    hook.account.wait(name, 0, "")

    def _blocked(self, line: _Line) -> tuple[str, HookRef | None]:
        """Return what blocks a queue, and the hook whose run that is; empty if nothing does."""
        if not line.queue.waiting or line.queue.running:
            return "", None
        ref = _first(line).spec.policy
        if awaited := self._awaited(line):
            return awaited, ref
        if line.queue.failures and line.again is not None:
            return f"{line.failure}; next attempt at {line.again:%H:%M:%S} UTC", ref
        return "", None


def _hook_of(ref: HookRef, uid: str) -> str:
    """Return how tasks name a hook; one that was created again is another one."""
    return f"{ref.kind} {ref} {uid}"


def _uid(hook: Object | None) -> str:
    return "" if hook is None else str(hook["metadata"].get("uid", ""))


def _first(line: _Line) -> UpdateRequest:
    return line.members[line.queue.waiting[0].order][0]
