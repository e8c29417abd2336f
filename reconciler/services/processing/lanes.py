"""One lane per target: work on one object is serialised, different objects go in parallel.

All jobs that wait for the same object are evaluated together, oldest request first, against one
read, and are written with one guarded patch. Each request gets a result of its own.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import groupby
from typing import Any, Self

from reconciler.api.meta import (
    ANNOTATION_APPLIED,
    Kind,
    Object,
    TargetKey,
    ref_of,
    resource_version,
)
from reconciler.api.updaterequest import Outcome, Reason
from reconciler.clock import Clock
from reconciler.config import ControllerSettings
from reconciler.engine.confidential import is_secret
from reconciler.engine.outcome import RuleStatus, TargetChange
from reconciler.engine.patch import SHIPPED, equal
from reconciler.engine.program import Origin, Program
from reconciler.engine.run import RuleRun
from reconciler.engine.targets import TargetQuery
from reconciler.errors import (
    ClusterError,
    Conflict,
    Denied,
    EvaluationError,
    Forbidden,
    Interrupted,
    Invalid,
    NotFound,
)
from reconciler.recent import Recent
from reconciler.requests.naming import child_of, content_of
from reconciler.services.catalog.lone_rules import LoneRules
from reconciler.services.catalog.protection import Protection
from reconciler.services.ports.objects import MergeKeys, Reader, Writer
from reconciler.services.processing.fairness import FairGate
from reconciler.services.processing.loading import Loads
from reconciler.services.processing.memory_budget import InFlight
from reconciler.services.processing.patchwar import PatchWars, Pause, Run, steps_of
from reconciler.services.processing.results import NOT_FOUND, VANISHED, TargetResult, failure

MAX_TOGETHER = 50
"""The most requests in one patch, which bounds how much a conflict evaluates again."""
_DROPPED = (
    "the change was sent, but the API server stored nothing of it: another product's webhook"
    " takes it back, or the kind does not keep the field"
)
_MOST_MARKERS = 1500
"""The newest markers on a target, about 110 KiB: annotations must not exceed 256 KiB."""

Exempt = Callable[[Kind, Mapping[str, Any]], Awaitable[str]]
"""Returns why an exception excludes an object, empty where none does."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Job:
    """The work of one request at one target.

    Attributes:
        run: The rule on its trigger.
        loads: The reads of context entries, shared by all targets of the request.
        listed: The object from a live list, or None where it has to be read.
        exempt: Called for the object before it is changed; None where no exception can apply.
        caused_by: The uid of a trigger that the controller itself changed, else empty.
        named: Namespaces that a message may name, even if the work is confidential.
        tenant: The tenant of the request; tenants take turns.
    """

    request: str
    created: datetime
    run: RuleRun
    query: TargetQuery
    loads: Loads
    listed: Object | None = None
    exempt: Exempt | None = None
    caused_by: str = ""
    named: frozenset[str] = frozenset()
    tenant: str = ""
    result: asyncio.Future[TargetResult] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    @property
    def program(self) -> Program:
        """Return the rule."""
        return self.run.program


@dataclass(slots=True)
class Lanes:
    """All lanes of a process.

    Attributes:
        parallel: The most lanes that call the API server at the same time.
        rounds: How often a batch is evaluated while conflicts go on.
        missing_pauses: Seconds between reads of an object that does not exist.
        keys: Read only where a rule has a strategic merge.
        unfinished: Returns whether a request may lack its final status; if so, its marker stays.
        covered: The markers of sweeps that are not needed any more, although the sweeps go on:
            their stored progress covers these triggers.
        protection: Decides what no policy may change.
        flight: Bounds the bytes of targets in memory.
        lone_rules: The rules whose writes need no call of the webhook.
        wars: Pauses a rule at a target where another writer undoes its change repeatedly.
        conflicts: Number of writes that met a newer version of the target.
        shared: Number of requests whose change was part of another one's write.
    """

    reader: Reader
    writer: Writer
    keys: MergeKeys
    parallel: int = 64
    rounds: int = 10
    missing_pauses: tuple[float, ...] = (0.3, 0.6, 1.0)
    unfinished: Callable[[str], bool] = bool
    covered: Recent[str, None] = field(default_factory=Recent)
    protection: Protection = field(default_factory=Protection)
    wars: PatchWars = field(default_factory=PatchWars)
    flight: InFlight = field(default_factory=InFlight)
    lone_rules: LoneRules = field(default_factory=LoneRules)
    conflicts: int = 0
    shared: int = 0
    _waiting: dict[TargetKey, list[Job]] = field(default_factory=dict)
    _running: dict[TargetKey, asyncio.Task[None]] = field(default_factory=dict)
    _gate: FairGate = field(init=False)

    def __post_init__(self) -> None:
        # A job that waits for something slow keeps its slot; a quarter is left for other tenants.
        self._gate = FairGate(self.parallel, share=max(1, self.parallel * 3 // 4))

    @classmethod
    def of(
        cls,
        settings: ControllerSettings,
        clock: Clock,
        *,
        reader: Reader,
        writer: Writer,
        keys: MergeKeys,
        unfinished: Callable[[str], bool],
    ) -> Self:
        """Return the lanes that a controller with these settings runs."""
        return cls(
            reader=reader,
            writer=writer,
            keys=keys,
            parallel=settings.lanes,
            rounds=settings.conflict_retries,
            unfinished=unfinished,
            protection=Protection.of(settings),
            flight=InFlight.of(settings),
            wars=PatchWars(
                limit=settings.patch_war_limit, window=settings.patch_war_window, clock=clock
            ),
        )

    def cover(self, markers: Iterable[str]) -> None:
        """Drop markers with the next writes of their targets; an unknown one stays too long."""
        for marker in markers:
            self.covered.keep(marker, None)

    def _needed(self, marker: str) -> bool:
        if marker not in self.covered and self.unfinished(marker):
            return True
        return "/" in marker and self.unfinished(child_of(marker))

    async def submit(self, key: TargetKey, job: Job) -> TargetResult:
        """Put work into a lane and wait for its result."""
        self._waiting.setdefault(key, []).append(job)
        if key not in self._running:
            self._running[key] = asyncio.create_task(self._run(key), name=f"lane {key.name}")
        return await job.result

    async def _run(self, key: TargetKey) -> None:
        try:
            while jobs := self._waiting.pop(key, None):
                # A caller that no longer waits, because the process stops, needs no write.
                waiting = [
                    job for job in jobs if not job.result.done() and not self._is_paused(key, job)
                ]
                waiting.sort(key=lambda job: (job.created, job.request))
                # An object that is read as one account must not serve another account's jobs.
                groups = groupby(
                    waiting[:MAX_TOGETHER], key=lambda job: job.program.origin.account
                )
                batch = next((list(jobs) for _, jobs in groups), [])
                if rest := waiting[len(batch) :]:
                    self._waiting.setdefault(key, []).extend(rest)
                if batch:
                    await self._settle(key, batch)
        finally:
            del self._running[key]

    def _is_paused(self, key: TargetKey, job: Job) -> bool:
        pause = self.wars.pause(key, job.program.origin)
        if pause is not None:
            job.result.set_result(self._paused(pause))
        return pause is not None

    def _paused(self, pause: Pause) -> TargetResult:
        return TargetResult(
            outcome=Outcome.CONFLICT,
            message=pause.message,
            retryable=True,
            retry_after=self.wars.left(pause),
            reason=Reason.PATCH_WAR,
        )

    async def _settle(self, key: TargetKey, batch: list[Job]) -> None:
        try:
            results = await self._work(key, batch)
        except BaseException as error:
            if isinstance(error, Exception) and len(batch) > 1:
                # A bug that one request triggers must not stop the others of the batch.
                for job in batch:
                    await self._settle(key, [job])
                return
            for job in batch:
                if not job.result.done():
                    job.result.set_exception(error)
            if not isinstance(error, Exception):
                raise
            return
        for job, result in zip(batch, _redacted(key, batch, results), strict=True):
            if not job.result.done():
                job.result.set_result(result)

    async def _work(self, key: TargetKey, batch: list[Job]) -> list[TargetResult]:
        # A listed object may be too old for the other jobs of a batch.
        listed = batch[0].listed if len(batch) == 1 else None
        missing = iter(self.missing_pauses)
        conflicts, uid, resource = 0, "", key.kind.resource
        reader = self.reader.acting_as(batch[0].program.origin.account)
        while conflicts < self.rounds:
            try:
                weigh, expected = self.flight.weigh, self.flight.expected
                size = weigh(resource, listed) if listed else expected(resource)
                async with (
                    self._gate.enter(batch[0].tenant),
                    self.flight.targets.hold(size, batch[0].tenant) as hold,
                ):
                    obj = listed or await reader.get(key.kind, key.namespace, key.name)
                    if obj is not listed:
                        hold.resize(weigh(resource, obj))
                    uid = ref_of(obj).uid
                    results = await self._write(key, batch, obj)
                    return [replace(result, uid=uid) for result in results]
            except Conflict:
                conflicts += 1
                self.conflicts += 1
            except NotFound:
                named = any(_names(key, job) for job in batch)
                pause = next(missing, None) if named else None
                if pause is None:
                    return [NOT_FOUND if _names(key, job) else VANISHED for job in batch]
                await asyncio.sleep(pause)
            except (Invalid, Denied, Forbidden) as error:
                if len(batch) == 1:
                    return [replace(failure(error), uid=uid)]
                return [(await self._work(key, [job]))[0] for job in batch]
            except ClusterError as error:
                return [replace(failure(error), uid=uid)] * len(batch)
            except RecursionError:
                message = "the object is nested too deeply to be compared or written"
                result = TargetResult(outcome=Outcome.INVALID, message=message, uid=uid)
                return [result] * len(batch)
            listed = None
        message = f"the object changed {self.rounds} times while it was being patched"
        result = TargetResult(outcome=Outcome.CONFLICT, message=message, retryable=True, uid=uid)
        return [result] * len(batch)

    async def _write(self, key: TargetKey, batch: list[Job], obj: Object) -> list[TargetResult]:
        current, results, marked, runs = await _evaluate(
            key, batch, obj, keys=self.keys, guarded=self.protection.guarded
        )
        before = resource_version(obj)
        if equal(obj, current):
            return _instead(results, _unchanged(before, "no net change"))
        steps = steps_of(obj, runs) if self.wars.limit else ()
        paused = {step.origin for step in steps if self.wars.judge(key, obj, step)}
        if paused:
            return await self._without(key, batch, obj, paused)
        if marked and not key.kind.subresource:
            current = _mark(current, marked, self._needed)
        writer = self.writer.acting_as(batch[0].program.origin.account)
        programs = [job.program for job in batch]
        with self.lone_rules.writing(programs, key) as manager:
            stored = await writer.change(key.kind, obj, current, manager=manager)
        self.wars.written(key, obj, steps)
        if _kept_nothing(obj, stored):
            return _instead(results, _unchanged(before, _DROPPED))
        changed = sum(result.outcome is Outcome.PATCHED for result in results)
        self.shared += max(0, changed - 1)
        one = TargetResult(
            outcome=Outcome.PATCHED, version_before=before, version_after=resource_version(stored)
        )
        return _instead(results, one)

    async def _without(
        self, key: TargetKey, batch: list[Job], obj: Object, paused: set[Origin]
    ) -> list[TargetResult]:
        """Work on a batch without the rules whose pause has just begun."""
        rest = [job for job in batch if job.program.origin not in paused]
        done = iter(await self._write(key, rest, obj) if rest else ())
        pauses = (self.wars.pause(key, job.program.origin) for job in batch)
        return [self._paused(pause) if pause else next(done) for pause in pauses]


def _kept_nothing(obj: Object, stored: Object) -> bool:
    """Return whether an object is stored as it was before a write."""
    before, after = content_of(obj), content_of(stored)
    # The first comparison is fast, but takes 1 for true.
    return before == after and equal(before, after)


def _unchanged(version: str, message: str) -> TargetResult:
    return TargetResult(outcome=Outcome.UNCHANGED, version_before=version, message=message)


def _instead(results: list[TargetResult], one: TargetResult) -> list[TargetResult]:
    """Return the results with another one for the jobs that changed the object."""
    return [one if item.outcome is Outcome.PATCHED else item for item in results]


def _redacted(key: TargetKey, batch: list[Job], results: list[TargetResult]) -> list[TargetResult]:
    """Return the results without values from Secrets, so that they may be shown."""
    # Each request reads the object as the earlier ones of the batch left it.
    if any(job.loads.confidential for job in batch):
        pairs = zip(batch, results, strict=True)
        return [result.withheld(job.named) for job, result in pairs]
    if is_secret(key.kind.group, key.kind.kind):
        named = frozenset({key.namespace})
        return [item.withheld(named) if item.may_quote else item for item in results]
    return results


def _names(key: TargetKey, job: Job) -> bool:
    return job.query.names_one(namespaced=key.kind.namespaced)


async def _evaluate(
    key: TargetKey,
    batch: list[Job],
    obj: Object,
    *,
    keys: MergeKeys,
    guarded: frozenset[str],
) -> tuple[Object, list[TargetResult], list[str], list[Run]]:
    applied = set(_applied(obj))
    # What a sweep applied for a trigger, the separate request of that trigger does not repeat.
    swept = {child_of(marker) for marker in applied if "/" in marker}
    current: Mapping[str, Any] = obj
    results: list[TargetResult] = []
    marked: list[str] = []
    runs: list[Run] = []
    for job in batch:
        if job.request in applied | swept and not job.program.converges:
            when = "by the sweep" if job.request in swept else "before a restart"
            results.append(TargetResult(outcome=Outcome.UNCHANGED, message=f"applied {when}"))
            continue
        older = current
        current, result, repeats = await _evaluate_one(
            key, job, current, keys=keys, guarded=guarded
        )
        results.append(result)
        if result.outcome is Outcome.PATCHED:
            _note(runs, job, older, current)
        if repeats:
            marked.append(job.request)
    return dict(current), results, marked, runs


def _note(runs: list[Run], job: Job, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    origin = job.program.origin
    if not runs or runs[-1].origin != origin:
        runs.append(Run(origin=origin, before=before, after=after))
    runs[-1].go_on(after, job.caused_by)


async def _evaluate_one(
    key: TargetKey,
    job: Job,
    obj: Mapping[str, Any],
    *,
    keys: MergeKeys,
    guarded: frozenset[str],
) -> tuple[Mapping[str, Any], TargetResult, bool]:
    # A subresource has no labels; its selector was checked on the object itself.
    if not key.kind.subresource and not job.query.accepts(obj):
        message = "the object does not match the target's selector"
        return obj, TargetResult(outcome=Outcome.SKIPPED, message=message), False
    table = SHIPPED
    if job.program.mutation.merge_keys:
        table = await keys.merge_keys(str(obj.get("apiVersion", "")))
    try:
        if job.exempt is not None and (reason := await job.exempt(key.kind, obj)):
            return obj, TargetResult(outcome=Outcome.SKIPPED, message=reason), False
        changed = await job.loads.evaluate(
            lambda: job.run.change(job.query.index, obj, keys=table, guarded=guarded)
        )
    except EvaluationError as error:
        failed = TargetResult(
            outcome=Outcome.FAILED, message=str(error), bare=error.without_values
        )
        return obj, failed, False
    except (ClusterError, Interrupted) as error:
        return obj, failure(error), False
    return changed.after, _result(changed), changed.repeats


def _result(changed: TargetChange) -> TargetResult:
    if changed.status is RuleStatus.PASS:
        return TargetResult(outcome=Outcome.PATCHED)
    skipped = changed.status is RuleStatus.SKIP
    if skipped and changed.unchanged:
        return TargetResult(outcome=Outcome.UNCHANGED)
    outcome = Outcome.SKIPPED if skipped else Outcome.FAILED
    return TargetResult(outcome=outcome, message=changed.message, bare=changed.bare)


def _applied(obj: Mapping[str, Any]) -> list[str]:
    annotations = (obj.get("metadata") or {}).get("annotations") or {}
    return [name for name in annotations.get(ANNOTATION_APPLIED, "").split(",") if name]


def _mark(obj: Object, names: list[str], needed: Callable[[str], bool]) -> Object:
    older = [name for name in _applied(obj) if name not in names and needed(name)]
    meta = dict(obj.get("metadata") or {})
    annotations = meta.get("annotations") or {}
    kept = (*older, *names)[-_MOST_MARKERS:]
    meta["annotations"] = {**annotations, ANNOTATION_APPLIED: ",".join(kept)}
    return {**obj, "metadata": meta}
