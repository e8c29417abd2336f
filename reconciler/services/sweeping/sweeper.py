"""Sweeps: after a policy change or on demand, one request works through a rule's triggers.

The cursor in its status is the last trigger that is done, in the order in which the API server
lists, so that a restart continues there. A trigger that fails gets a child request, written before
the cursor moves. Ten thousand triggers need one object and not ten thousand.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final

from reconciler.api.meta import Object, ref_of
from reconciler.api.updaterequest import Reason, RequestSpec, Source, SweepProgress, UpdateRequest
from reconciler.clock import Clock
from reconciler.engine.match import Subject, has_lists
from reconciler.engine.program import Program
from reconciler.errors import ClusterError, NoKindMatch, NotFound, NotReady
from reconciler.requests.lifecycle import FINAL, Defer, Disposition, Fail, Retry, Skip
from reconciler.requests.limits import AUTO, PROMOTE, compile_labels
from reconciler.requests.naming import child_name, child_of, labels
from reconciler.requests.overload import Settling
from reconciler.requests.rebuild import why_not_rebuildable
from reconciler.services.ports.requests import Requests
from reconciler.services.processing.attempt import Attempt, Processor
from reconciler.services.processing.fairness import tenant_of
from reconciler.services.processing.pacing import Pacer
from reconciler.services.processing.results import failure
from reconciler.services.sweeping.guards import (
    allowed_failures,
    before_passing,
    common_wait,
    is_unproven,
    prove,
)
from reconciler.services.sweeping.listing import (
    ListScope,
    ObjectLister,
    count_of,
    left_of,
    list_key,
)
from reconciler.services.sweeping.side_by_side import Each, SideBySide, has_failed
from reconciler.services.sweeping.sweep_state import SweepState, summary_of

_ROUNDS: Final = 4
"""Triggers that each place of a sweep takes before its progress is noted."""
_SHORT = 0.5
"""The most seconds that a sweep waits for its turn without a report in its status."""
_AGAIN: Final = Defer(reason=Reason.SETTLING, message="")
"""No end: the walk begins again, for a newer generation or for triggers that arrived since."""
_ALL, _CANARY, _PROMOTION, _REST = "all", "canary", "promotion", "rest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweeper:
    """Runs sweep requests.

    Attributes:
        each: Called with the result for each trigger that was worked on, as if requested for that
            trigger alone; a failed one goes on as a request of its own.
        parallel: Triggers worked on at the same time.
        is_excluded: Returns whether the settings exclude an object as a trigger of a rule.
        settle: Seconds until a trigger that was admitted is stored, or never will be.
        children: The most child requests of failed triggers; beyond it an aggregate request waits.
        settling: Records when each sequence of an aggregate request was first seen.
    """

    processor: Processor
    each: Each
    page: int = 500
    parallel: int = 64
    is_excluded: Callable[[Program, Subject], bool] = lambda _program, _subject: False
    settle: float = 60.0
    children: int = 1000
    settling: Settling = field(default_factory=Settling)

    @property
    def pacer(self) -> Pacer:
        """Return the pacer of the processor."""
        return self.processor.pacer

    @property
    def requests(self) -> Requests:
        """Return the port of requests."""
        return self.processor.triggers.requests

    @property
    def clock(self) -> Clock:
        """Return the clock."""
        return self.processor.triggers.clock

    async def run(self, request: UpdateRequest) -> tuple[UpdateRequest, Attempt]:
        """Continue a sweep to its end; return the request as last stored, and the result."""
        state = SweepState.of(request, self.clock.monotonic())
        ended: Disposition = _AGAIN
        try:
            while ended is _AGAIN:
                ended = await self._walk(state)
        except ClusterError as error:
            ended = self.processor.retry(request, failure(error))
        attempt = Attempt(
            disposition=ended,
            targets=state.request.status.targets,
            counts=state.counts,
            sweep=replace(state.progress, eta=""),
        )
        return state.request, attempt

    async def _walk(self, state: SweepState) -> Disposition:
        program = await self._current(state.request.spec)
        if isinstance(program, Skip | Fail):
            return program
        held = _in_doubt(state.request.spec, program) or self.pacer.closed(state.policy)
        if held is not None:
            return held
        generation = program.origin.generation
        if state.progress.generation not in (0, generation):
            # The request is for the rule as it is now, at all triggers.
            state.start_over(self.clock.monotonic())
        state.advance(generation=generation)
        if state.diverted and (held := self._begin_round(state)) is not None:
            return held
        lister = self._lister(state, program)
        listings = program.match.listings()
        places = await lister.places(listings)
        if not places and has_lists(listings):
            msg = f"the cluster serves no kind that rule {program.rule} matches"
            raise NoKindMatch(msg, status=404)
        if state.progress.total < 0:
            total = await count_of(lister.reader, places)
            state.advance(total=total)
        if not state.progress.phase:
            # Canaries are for existing objects; an aggregate request stands for new triggers.
            canary = "" if state.diverted else self.pacer.limits(state.policy).canary
            phase = _CANARY if canary else _ALL
            state.advance(phase=phase, canary=canary)
        return await self._phases(state, program, places)

    async def _phases(
        self, state: SweepState, program: Program, places: list[ListScope]
    ) -> Disposition:
        if state.progress.phase == _CANARY:
            if (ended := await self._pass(state, program, places)) is not None:
                return ended
            state.advance(phase=_PROMOTION, cursor="")
        if state.progress.phase == _PROMOTION:
            if (held := self._unpromoted(state)) is not None:
                return held
            state.advance(phase=_REST)
        if (ended := await self._pass(state, program, places)) is not None:
            return ended
        state.advance(total=state.progress.done)
        if state.diverted and not await self._is_last_round(state):
            return _AGAIN
        return summary_of(state.progress)

    def _begin_round(self, state: SweepState) -> Defer | None:
        """Begin a round for the triggers that are settled, or return why none begins yet."""
        uid, now = state.request.uid, self.clock.monotonic()
        self.settling.note(uid, state.request.spec.sequence, now)
        if state.progress.sequence:
            return None  # An interrupted round continues.
        sequence = self.settling.settled(uid, now - self.settle)
        if not sequence:
            wait = max(0.0, self.settling.first(uid) + self.settle - now)
            message = (
                "too many requests wait, so this one stands for all triggers of the rule: it"
                " processes them once those that were admitted last are stored"
            )
            until = self.clock.now() + timedelta(seconds=wait)
            return Defer(reason=Reason.SETTLING, message=message, until=until)
        state.advance(sequence=sequence, cursor="", done=0, total=-1, phase=_ALL)
        state.restart(self.clock.monotonic())
        return None

    async def _is_last_round(self, state: SweepState) -> bool:
        """Return whether no trigger arrived that the round may have missed."""
        await state.reread(self.requests)
        uid, sequence = state.request.uid, state.request.spec.sequence
        self.settling.note(uid, sequence, self.clock.monotonic())
        self.settling.drop(uid, state.progress.sequence)
        if sequence == state.progress.sequence:
            return True
        state.advance(sequence=0)
        return False

    async def _pass(
        self, state: SweepState, program: Program, places: list[ListScope]
    ) -> Disposition | None:
        """Work through the lists once; return what stops the sweep, None at their end."""
        for place, after in left_of(places, state.progress.cursor):
            ended = await self._through(state, program, place, after)
            if ended is not None:
                return ended
        return None

    async def _through(
        self, state: SweepState, program: Program, place: ListScope, after: str
    ) -> Disposition | None:
        """Work through one list; return what stops the sweep, None at its end."""
        lister = self._lister(state, program)
        walk = self._chunks(state, program, lister, place, after)
        async with contextlib.aclosing(walk) as chunks:
            async for chunk in chunks:
                left = chunk
                while left:
                    done = state.progress.done
                    if (ended := await self._step(state, program, place, left)) is not None:
                        return ended
                    # Objects are left if a trigger failed in each place.
                    left = left[state.progress.done - done :]
        return None

    async def _step(
        self, state: SweepState, program: Program, place: ListScope, chunk: list[Object]
    ) -> Disposition | None:
        """Work on a chunk, or on its first part; return what stops the sweep after that."""
        if (held := await self._gate(state, program, len(chunk))) is not None:
            return held
        done = state.progress.done
        if (stuck := await self._work(state, program, place, chunk)) is not None:
            return stuck
        worked = chunk[: state.progress.done - done]
        state.advance(cursor=f"{place.label}:{list_key(worked[-1])}")
        stored = await state.report(self.requests, self.clock.monotonic())
        self.processor.lanes.cover(stored)
        current = await self._current(state.request.spec)
        if isinstance(current, Skip | Fail):
            return current
        # Another generation or another account, which can change without a generation.
        return _AGAIN if current.origin != program.origin else None

    async def _gate(self, state: SweepState, program: Program, triggers: int) -> Defer | None:
        """Wait for the turn of a chunk, unless that takes long; return why it is deferred."""
        policy, name = state.policy, state.request.name
        held = self.pacer.closed(policy)
        if not state.diverted:
            allowed = allowed_failures(program)
            held = held or self.pacer.stopped(policy, state.progress.failed, allowed=allowed)
        held = held or self.pacer.turn(policy, name, triggers)
        if held is None or held.until is None:
            return held
        wait = (held.until - self.clock.now()).total_seconds()
        if wait > _SHORT:
            return held
        await asyncio.sleep(wait)
        self.pacer.take(policy, name)
        return None

    def _unpromoted(self, state: SweepState) -> Defer | None:
        """Return why the sweep stops after its canaries, None where it goes on."""
        limits, progress = self.pacer.limits(state.policy), state.progress
        if (held := self.pacer.closed(state.policy)) is not None:
            return held
        good = limits.promote == AUTO and not progress.failed
        if not limits.canary or good or limits.promote == str(progress.generation):
            return None
        message = (
            f"the canaries are done ({progress.done}, {progress.failed} of them failed); to"
            f" continue, annotate the policy with {PROMOTE}={progress.generation}"
        )
        return Defer(reason=Reason.CANARY, message=message)

    async def _current(self, spec: RequestSpec) -> Program | Skip | Fail:
        program = await self.processor.program(spec)
        if spec.source is Source.MANUAL or spec.sequence or not isinstance(program, Program):
            return program
        if program.origin.generation > spec.policy_generation:
            message = f"superseded by generation {program.origin.generation} of the policy"
            return Skip(reason=Reason.SUPERSEDED, message=message)
        return program

    def _lister(self, state: SweepState, program: Program) -> ObjectLister:
        triggers = self.processor.triggers.acting_as(program.origin.account)
        return ObjectLister(
            kinds=triggers.kinds,
            reader=triggers.reader,
            page=self.page,
            flight=self.processor.flight,
            tenant=tenant_of(state.request.spec),
        )

    async def _chunks(
        self,
        state: SweepState,
        program: Program,
        lister: ObjectLister,
        place: ListScope,
        after: str,
    ) -> AsyncGenerator[list[Object]]:
        chosen = _chosen(state.progress)
        async with contextlib.aclosing(lister.all_pages(place, after)) as pages:
            async for page in pages:
                items = list(filter(chosen, page.items))
                while items:
                    size = self._size(state, program, place)
                    yield items[:size]
                    items = items[size:]

    def _size(self, state: SweepState, program: Program, place: ListScope) -> int:
        """Return the size of a chunk in triggers; at its end all places wait for the slowest."""
        if is_unproven(state, program, place):
            return 1
        paced = self.pacer.limits(state.policy).rate > 0
        return self.pacer.chunk(state.policy, self.parallel * (1 if paced else _ROUNDS))

    async def _work(
        self, state: SweepState, program: Program, place: ListScope, objects: list[Object]
    ) -> Retry | Defer | None:
        """Work on a chunk; return why the sweep has to wait with it, None where it is done.

        The work ends early where too many triggers of the chunk have failed.
        """
        width = self._width(state, program, len(objects))
        side_by_side = SideBySide(
            processor=self.processor.acting_as(program.origin.account),
            request=state.request,
            program=program,
            each=self.each,
            is_excluded=self.is_excluded,
            is_closed=lambda: self.pacer.closed(state.policy) is not None,
        )
        attempts = await side_by_side.attempts(objects, width)
        if (waits := common_wait(attempts, Reason.ENTRY_NOT_READY)) is not None:
            raise NotReady(waits.message)
        if is_unproven(state, program, place) and (refused := prove(state, place, attempts)):
            return refused
        if (held := self._paused(attempts)) is not None:
            return held
        if state.diverted and (stuck := self._too_many(state.progress, attempts)) is not None:
            return stuck
        attempts, waits = self._unless_stopped(state, program, attempts)
        if not attempts:
            return waits
        failed: list[tuple[Object, Attempt]] = []
        fired = 0
        for obj, attempt in zip(objects, attempts, strict=False):
            if attempt is None:
                continue
            fired += not isinstance(attempt.disposition, Skip)
            if has_failed(attempt):
                failed.append((obj, attempt))
            elif not program.converges:
                state.unstored.append(state.marker(obj))
        # Where a child cannot be stored, the chunk is repeated, and must not count twice.
        await asyncio.gather(*(self._child(state, *item) for item in failed))
        state.add(attempts)
        done, total = state.progress.done + len(attempts), state.progress.total
        state.advance(
            done=done,
            total=total if total < 0 else max(total, done),
            matched=state.progress.matched + fired,
            failed=state.progress.failed + len(failed),
        )
        return None

    def _unless_stopped(
        self, state: SweepState, program: Program, attempts: list[Attempt | None]
    ) -> tuple[list[Attempt | None], Retry | None]:
        """Return the attempts that count, and the wait of the first one that does not.

        If so many triggers failed that the sweep would stop, those from the first one that only
        waits for a right or a server are tried again, and the sweep goes on then by itself.
        """
        more = sum(attempt is not None and has_failed(attempt) for attempt in attempts)
        failed, allowed = state.progress.failed + more, allowed_failures(program)
        if state.diverted or self.pacer.stopped(state.policy, failed, allowed=allowed) is None:
            return attempts, None
        return before_passing(attempts)

    def _too_many(
        self, progress: SweepProgress, attempts: Iterable[Attempt | None]
    ) -> Retry | None:
        """Return why the sweep waits, if the failed triggers would get too many requests again."""
        ends = [attempt.disposition for attempt in attempts if attempt is not None]
        waiting = [end for end in ends if isinstance(end, Retry)]
        if not waiting or progress.failed + len(waiting) <= self.children:
            return None
        return waiting[0]

    def _paused(self, attempts: Iterable[Attempt | None]) -> Defer | None:
        waits = common_wait(attempts, Reason.PATCH_WAR)
        if waits is None:
            return None
        until = self.clock.now() + timedelta(seconds=waits.retry_after)
        return Defer(reason=waits.reason, message=waits.message, until=until)

    def _width(self, state: SweepState, program: Program, objects: int) -> int:
        most = min(objects, self.parallel)
        if state.diverted:
            return most
        failed, allowed = state.progress.failed, allowed_failures(program)
        return self.pacer.side_by_side(state.policy, most, failed, allowed=allowed)

    async def _child(self, state: SweepState, obj: Object, attempt: Attempt) -> None:
        spec, ref = state.request.spec, ref_of(obj)
        child = replace(spec, resource=ref, sweep=False, sequence=0)
        if spec.source is Source.MANUAL:
            child = replace(child, policy_generation=state.progress.generation)
        name = child_of(state.marker(obj))
        marks = labels(policy=spec.policy.key, source=spec.source, trigger_uid=ref.uid)
        created = await self.requests.create(name, marks, child)
        again = isinstance(attempt.disposition, Retry)
        if not created and state.diverted and again and await self._ended(name):
            # That child was of an earlier round. One that still waits covers the trigger as it is
            # now. A trigger that failed for good needs no new one: its child reports that already.
            # The name of the aggregate request may be that of an earlier overload as well.
            name = child_name(f"{state.request.uid}/{state.progress.sequence}", ref.uid)
            await self.requests.create(name, marks, child)

    async def _ended(self, name: str) -> bool:
        try:
            return (await self.requests.get(name)).status.state in FINAL
        except NotFound:
            return True


def _in_doubt(spec: RequestSpec, program: Program) -> Defer | None:
    """Return why an aggregate request waits for a user, None if a list shows its triggers.

    It waits if the rule was another one when its triggers were sent, which this process never saw.
    """
    if not spec.sequence or not (reason := why_not_rebuildable(program)):
        return None
    message = (
        f"rule {spec.rule} was changed while this request stood for its triggers, and objects"
        f" alone no longer determine what it does ({reason}): change the rule back until this"
        " request is done, or delete this request to discard the triggers"
    )
    return Defer(reason=Reason.RULE_CHANGED, message=message)


def _chosen(progress: SweepProgress) -> Callable[[Object], bool]:
    """Return a filter for the objects of a phase; the canaries are those of the sweep's start."""
    if progress.phase not in (_CANARY, _REST):
        return lambda _: True
    canaries, wanted = compile_labels(progress.canary), progress.phase == _CANARY
    return lambda obj: canaries.accepts(obj["metadata"].get("labels") or {}) is wanted
