"""Dispatches the waiting requests: receives watch events and lists, and starts attempts.

Watch events are hints. The list of requests that are not final is authoritative. It is read when
the work starts and again periodically, because a watch may list again and miss deletions.
"""

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import datetime

from reconciler.api.account import MissingRight
from reconciler.api.meta import PolicyRef
from reconciler.api.updaterequest import Reason, RequestStatus, UpdateRequest
from reconciler.clock import Clock
from reconciler.errors import ClusterError, Conflict, NotFound
from reconciler.recent import Recent
from reconciler.requests.draft import same_work
from reconciler.requests.lifecycle import FINAL, Defer, Retention, Retry, advance, reopen
from reconciler.requests.queue import RequestQueue
from reconciler.services.catalog.policy_store import StoredPolicy
from reconciler.services.jobs import rest
from reconciler.services.ports.objects import History
from reconciler.services.ports.requests import Requests
from reconciler.services.processing.attempt import Attempt, Processor
from reconciler.services.processing.confirming import Confirmations
from reconciler.services.processing.fairness import tenant_of
from reconciler.services.processing.known_requests import KnownRequests, out_of_reach
from reconciler.services.processing.suspects import Suspects

_AFTER_FAULT = 30.0
_HELD = 60.0
"""Seconds between two checks of a request that is held without an end; a check makes no call."""
_BRIEF = 1.0
"""The most seconds for which a request is deferred without a write of its status."""
_TRIAL = 10.0
"""The most seconds for which one suspect is worked on alone."""
_TRIALS = 30.0
"""The most seconds for which suspects are worked on alone, one after the other."""
_SHARE = 96
"""The most requests of one tenant in work at a time, so that others find a place at once."""

Observer = Callable[[UpdateRequest, RequestStatus, Attempt], None]
Sweep = Callable[[UpdateRequest], Awaitable[tuple[UpdateRequest, Attempt]]]


@dataclass(slots=True, kw_only=True)
class Dispatcher:
    """Owns the queue of one process. Only a leader runs it.

    Attributes:
        sweep: Works on a request for all triggers of a rule.
        jitter: Returns values within [0, 1) that spread retries.
        history: Finds triggers that were stored and deleted again.
        confirmation: Seconds until a trigger that is not stored counts as refused.
        observe: Called for every attempt that ended, once its status is stored.
        warn: Called when one cannot be stored, once between two lists of the requests.
        parallel: The most requests in work at the same time.
        held: Whether no attempt may begin; waiting requests go on waiting.
        seen: The highest resourceVersion of a request that this or an earlier leader received.
        noticed: Number of requests that this process received for the first time.
        known: The waiting requests, for other components to read.
    """

    requests: Requests
    processor: Processor
    sweep: Sweep
    clock: Clock
    jitter: Callable[[], float]
    retention: Retention
    observe: Observer
    history: History
    warn: Callable[[str], None] = lambda _: None
    confirmation: float = 120.0
    parallel: int = 256
    held: bool = False
    seen: int = 0
    noticed: int = 0
    known: KnownRequests = field(default_factory=KnownRequests)
    queue: RequestQueue = field(default_factory=lambda: RequestQueue(share=_SHARE))
    suspects: Suspects = field(init=False)
    _known: dict[str, UpdateRequest] = field(init=False)
    _confirmations: Confirmations = field(init=False)
    _claimed: Recent[tuple[str, ...], str] = field(default_factory=Recent)
    _finished: Recent[str, None] = field(default_factory=Recent)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _closed: bool = False
    _warned: bool = False

    def __post_init__(self) -> None:
        self._known = self.known.by_name
        self.suspects = Suspects(self.requests)
        self._confirmations = Confirmations(
            kinds=self.processor.triggers.kinds,
            history=self.history,
            clock=self.clock,
            period=self.confirmation,
        )
        self.processor.index.subscribe(self._on_policy)
        self.processor.index.languages.changed.subscribe(self.wake)

    def on_stored(self, request: UpdateRequest) -> None:
        """Record a request as it is stored, unless a newer version is known."""
        if request.resource_version.isdecimal():
            self.saw(int(request.resource_version))
        finished = request.status.state in FINAL
        if finished and (not request.ended_by or request.uid in self._finished):
            self._finished.keep(request.uid, None)
            self._drop(request.name)
            return
        known = self._known.get(request.name)
        if request.uid in self._finished or not self.known.is_news(request):
            return
        self.noticed += self.known.keep(request)
        if request.name not in self.queue.working:
            # An attempt schedules its request when it ends; this may be its own progress.
            nudged = known is not None and request.nudge != known.nudge
            if nudged:
                self.processor.lanes.wars.forgive(request.spec.policy, request.spec.rule)
            due = self.clock.monotonic() if nudged or finished else self._due(request)
            self.queue.push(request.name, due, tenant_of(request.spec))
        self._changed.set()

    def saw(self, version: int) -> None:
        """Note the resourceVersion of a request that this or an earlier leader received."""
        self.seen = max(self.seen, version)

    def on_deleted(self, name: str, uid: str = "") -> None:
        """Forget a deleted request; if it was not finished, another one may do its work.

        Args:
            uid: The uid of the deleted one, where a new one of that name may be known already.
        """
        known = self._known.get(name)
        if known is not None and uid not in ("", known.uid):
            return
        work = None if known is None else same_work(known)
        if work is not None and self._claimed.get(work) == name:
            del self._claimed[work]
        self._drop(name)

    @property
    def waiting(self) -> int:
        """Return the number of requests that are not final."""
        return len(self._known)

    def wake(self, policy: PolicyRef | None = None) -> None:
        """Try the parked requests of a policy, or of all, again: what they wait for changed."""

        def concerned(request: UpdateRequest) -> bool:
            parked = request.status.next_attempt is not None or request.status.reason
            # A request in work may be about to be parked for a reason that no longer holds.
            working = request.name in self.queue.working
            return policy in (None, request.spec.policy) and bool(parked or working)

        self._try_again(concerned)

    def wake_parked(self, reason: Reason) -> None:
        """Try the requests again that were parked for a reason, because it may no longer hold."""
        self._try_again(
            lambda item: item.status.reason == reason and item.status.next_attempt is not None
        )

    def objects_out_of_reach(self) -> dict[MissingRight, frozenset[str]]:
        """Return the names of the objects that requests lack a right for, by missing right."""
        found: dict[MissingRight, set[str]] = {}
        for request in self._known.values():
            if request.status.missing_permission:
                found.setdefault(self._lacks(request), set()).update(out_of_reach(request))
        return {right: frozenset(names) for right, names in found.items()}

    def wake_lacking(self, missing: MissingRight, name: str = "") -> None:
        """Try the requests again that waited for a granted right, on one object or on any."""
        self._try_again(
            lambda item: (
                bool(item.status.missing_permission)
                and self._lacks(item) == missing
                and (not name or name in out_of_reach(item))
            )
        )

    def _try_again(self, concerned: Callable[[UpdateRequest], bool]) -> None:
        for request in filter(concerned, self._known.values()):
            self.queue.push(request.name, self.clock.monotonic())
        self._changed.set()

    def _on_policy(self, before: StoredPolicy | None, after: StoredPolicy | None) -> None:
        # No request waits for a status that the controller itself wrote.
        known, terms = after or before, [item and item.terms for item in (before, after)]
        if known is not None and terms[0] != terms[1]:
            self.wake(known.ref)

    def _lacks(self, request: UpdateRequest) -> MissingRight:
        account = self.processor.index.account(request.spec.policy)
        return MissingRight(request.status.missing_permission, account)

    async def resync(self) -> None:
        """Synchronise with a list, to miss no waiting request and to keep no deleted one."""
        before = set(self._known)
        seen: set[str] = set()
        async for request in self.requests.waiting():
            seen.add(request.name)
            self.on_stored(request)
        for name in before - seen:
            # A request that another client made final is not in the list, and must be reopened.
            known = self._known.get(name)
            reopening = known is not None and known.status.state in FINAL
            if name not in self.queue.working and not reopening:
                self.on_deleted(name)
        if not self.known.listed:
            self.suspects.take(self._known.values())
        for name, due in self.processor.pacer.close_gaps().items():
            self.queue.push(name, due)
        self.known.note_list()
        self._warned = False
        self._changed.set()

    async def run(self) -> None:
        """Work until cancelled, and cancel the requests that are in work then."""
        try:
            await self._try_suspects()
            while True:
                self._changed.clear()
                self._start_due()
                await self._pause()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _try_suspects(self) -> None:
        """Work on the suspects one by one, with no other request in work."""
        if not self.suspects.expected:
            return
        while not self.known.listed:
            self._changed.clear()
            await self._changed.wait()
        end = self.clock.monotonic() + _TRIALS
        with self.suspects.alone_in_work() as names:
            for name in names:
                now = self.clock.monotonic()
                if self._idle or now >= end:
                    break
                if self.queue.take_out_of_turn(name, now):
                    await asyncio.wait({self._begin(name)}, timeout=_TRIAL)

    def hold(self, *, held: bool) -> None:
        """Stop beginning attempts, or begin them again."""
        self.held = held
        self._changed.set()

    def close(self) -> None:
        """Begin no more attempts."""
        self._closed = True

    async def drain(self) -> None:
        """Wait until the requests in work have ended."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    @property
    def _idle(self) -> bool:
        return self._closed or self.held

    def _start_due(self) -> None:
        while not self._idle and len(self._tasks) < self.parallel:
            name = self.queue.take(self.clock.monotonic())
            if name is None:
                return
            _ = self._begin(name)

    def _begin(self, name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(self._handle(name), name=f"request {name}")
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._changed.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            # A bug must be seen, and nothing else reads the exception of the task.
            task.get_loop().call_exception_handler(
                {"message": f"{task.get_name()} failed", "exception": error}
            )

    async def _pause(self) -> None:
        due = self.queue.next_due()
        busy = self._idle or len(self._tasks) >= self.parallel
        now = self.clock.monotonic()
        await rest(math.inf if due is None or busy else max(0.0, due - now), self._changed)

    def _due(self, request: UpdateRequest) -> float:
        planned = request.status.next_attempt
        return self.clock.monotonic() + (0.0 if planned is None else self._left(planned))

    def _left(self, planned: datetime) -> float:
        """Return the seconds until a time in a status, at most the longest backoff.

        Another process may have written the time, or this machine's clock may have been set since.
        So no request waits longer than the longest pause between two attempts without a check.
        """
        left = (planned - self.clock.now()).total_seconds()
        return min(max(0.0, left), self.processor.backoff.ceiling)

    async def _handle(self, name: str) -> None:
        try:
            request = self._known.get(name)
            if request is not None:
                await self._attempt(request)
        except ClusterError as error:
            # The status could not be stored, so the work is repeated: it is done at least once.
            if not self._warned:
                text = "the work of a request is done again, as its status cannot be stored"
                self.warn(f"{text}: {error}")
            self._warned = True
            self.queue.push(name, self.clock.monotonic() + 1.0 + self.jitter())
        except Exception as error:
            if name in self._known:
                self.queue.push(name, self.clock.monotonic() + _AFTER_FAULT)
                await self._confess(name, error)
            raise
        finally:
            self.queue.finish(name)

    async def _confess(self, name: str, error: Exception) -> None:
        """Report in the status that a bug of kube-retrofit prevents the work."""
        message = f"kube-retrofit failed on it ({type(error).__name__}); see its log"
        retry = Retry(reason=Reason.INTERNAL_ERROR, message=message, retry_after=_AFTER_FAULT)
        with contextlib.suppress(ClusterError):
            await self._store(self._known[name], Attempt(disposition=retry))

    async def _attempt(self, request: UpdateRequest) -> None:
        if request.status.state in FINAL:
            again = reopen(request.status, request.ended_by)
            retry = Retry(reason=Reason.TAKEN_BACK, message=again.message, retry_after=0.0)
            await self._write(request, again, Attempt(disposition=retry))
            return
        if (fail := self.suspects.given_up(request)) is not None:
            await self._store(request, Attempt(disposition=fail))
            return
        request = await self.suspects.note(request)
        if request.spec.sweep:
            request, ended = await self.sweep(request)
            if request.name in self._known and self.known.is_news(request):
                # It continues at the progress that it wrote, however late the watch reports that.
                self._known[request.name] = request
            await self._store(self.suspects.without_note(request), ended)
            return
        attempt = await self.processor.attempt(
            request, self.jitter(), claim=lambda: self._claim(request)
        )
        if attempt is None:
            await self._look_again(request)
        else:
            await self._store(request, attempt)

    def _claim(self, request: UpdateRequest) -> str:
        """Return the name of the request that does this work, the given one if none did before."""
        work = same_work(request)
        if work is None:
            return request.name
        owner = self._claimed.get(work, request.name)
        self._claimed.keep(work, owner)
        return owner

    async def _look_again(self, request: UpdateRequest) -> None:
        found = await self._confirmations.look(request)
        if isinstance(found, float):
            self.queue.push(request.name, self.clock.monotonic() + found)
            if self.suspects.pending(request.name):
                self._known[request.name] = await self._unnote(request)
        else:
            await self._store(request, Attempt(disposition=found))

    async def _store(self, request: UpdateRequest, attempt: Attempt) -> None:
        status = advance(
            request.status,
            attempt.disposition,
            now=self.clock.now(),
            retention=self.retention,
            targets=attempt.targets or None,
            counts=attempt.counts,
            sweep=attempt.sweep or request.status.sweep,
        )
        if isinstance(attempt.disposition, Defer) and self._untold(request, status):
            return
        await self._write(request, status, attempt)

    async def _write(
        self, request: UpdateRequest, status: RequestStatus, attempt: Attempt
    ) -> None:
        try:
            stored = await self.requests.write_status(request, status)
        except NotFound:
            self.on_deleted(request.name)
            return
        except Conflict:
            await self._reread(request.name)
            return
        self.suspects.proven(request.name)
        if status.state in FINAL:
            self._finished.keep(request.uid, None)
            self._drop(request.name)
        else:
            self._known[request.name] = replace(stored, status=status, ended_by="")
            if isinstance(attempt.disposition, Retry):
                pause = attempt.disposition.retry_after
            else:
                pause = _HELD if status.next_attempt is None else self._left(status.next_attempt)
            self.queue.push(request.name, self.clock.monotonic() + pause)
        self.observe(request, status, attempt)

    async def _unnote(self, request: UpdateRequest) -> UpdateRequest:
        """Remove the note that an attempt began, because it did no work."""
        stored = await self.requests.write_status(request, request.status)
        self.suspects.proven(request.name)
        return stored

    def _untold(self, request: UpdateRequest, status: RequestStatus) -> bool:
        """Queue a deferred request again and return True, if its status need not be written.

        It need not be if it already reports the deferral, or if the deferral ends very soon.
        """
        until = status.next_attempt
        wait = _HELD if until is None else self._left(until)
        if (status != request.status and wait > _BRIEF) or self.suspects.pending(request.name):
            return False
        self.queue.push(request.name, self.clock.monotonic() + wait)
        return True

    async def _reread(self, name: str) -> None:
        try:
            request = await self.requests.get(name)
        except NotFound:
            self.on_deleted(name)
            return
        self.on_stored(request)
        if name in self._known:
            self.queue.push(name, self.clock.monotonic())

    def _drop(self, name: str) -> None:
        self.known.drop(name)
        self._confirmations.forget(name)
        self.suspects.proven(name)
        self.processor.pacer.forget(name)
        self.queue.drop(name)
