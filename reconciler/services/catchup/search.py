"""One catch-up pass: finds changes within a window for which a rule has no request.

One LIST per kind serves all rules, and lists only metadata. An object is read in full only if it
has no request and the rule has preconditions or exceptions.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from reconciler.api.meta import Kind, Object, PolicyRef, ref_of, resource_version
from reconciler.api.updaterequest import parse_time, render_time
from reconciler.engine.match import Decision, Listing, Subject
from reconciler.engine.outcome import RuleStatus
from reconciler.engine.program import CompiledPolicy, Phase, Program
from reconciler.engine.run import RuleRun
from reconciler.errors import (
    ClusterError,
    EvaluationError,
    Forbidden,
    Interrupted,
    Invalid,
    NoKindMatch,
    NotFound,
    Overloaded,
)
from reconciler.requests.background_drafts import RequestDraft, catch_up_draft
from reconciler.requests.naming import catch_up_name, digest
from reconciler.services.catchup.changes import Window, changed
from reconciler.services.catchup.recent_requests import RecentRequests
from reconciler.services.catchup.scope import CatchUpScope
from reconciler.services.ports.objects import Page
from reconciler.services.processing.attempt import Processor
from reconciler.services.processing.loading import Loads
from reconciler.services.sweeping.listing import ListScope, ObjectLister

_MOST_NAMESPACES = 20
"""The most lists of single namespaces; beyond it one list of all namespaces is cheaper."""
_PARALLEL = 16


RuleKey = tuple[PolicyRef, str, str]
"""The policy and its uid, and the rule's name."""
Changed = tuple[str, datetime]
"""The uid of an object, and when it was changed."""


def rule_key(policy: CompiledPolicy, program: Program) -> RuleKey:
    """Return the key under which a rule's findings are kept."""
    return policy.ref, policy.uid, program.rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A rule, and the window in which to search for its triggers.

    Attributes:
        counted: Whether its triggers can no longer be worked on and are only counted.
    """

    policy: CompiledPolicy
    program: Program
    window: Window
    counted: bool = False

    @property
    def key(self) -> RuleKey:
        """Return the key of its findings."""
        return rule_key(self.policy, self.program)


@dataclass(slots=True, kw_only=True)
class PassResult:
    """The result of a pass, filled while the pass runs.

    Attributes:
        recorded: Number of requests by rule.
        lost: Objects that were counted, by rule.
        problems: Kinds that could not be listed, with the reason.
        unlisted: The reason for each rule that needs such a kind.
        held_back: The policies that have too many waiting requests, so that more is to be found.
    """

    recorded: Counter[RuleKey] = field(default_factory=Counter)
    lost: dict[RuleKey, set[Changed]] = field(default_factory=lambda: defaultdict(set))
    problems: dict[str, str] = field(default_factory=dict)
    unlisted: dict[RuleKey, str] = field(default_factory=dict)
    held_back: set[PolicyRef] = field(default_factory=set)


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Searches for lost triggers and records them.

    Attributes:
        waiting: Returns the number of catch-up requests that are not final, by policy.
        most: The limit on that number; the search continues for the other policies only.
        most_in_all: The limit over all policies; a pass ends early rather than store more.
    """

    lister: ObjectLister
    processor: Processor
    scope: CatchUpScope
    recent: RecentRequests
    waiting: Callable[[], Counter[PolicyRef]]
    most: int = 1000
    most_in_all: int = 10_000

    async def run(self, tasks: Sequence[Task], found: PassResult, *, doubt: bool) -> None:
        """Search all kinds of the rules once.

        Args:
            found: The result, which is filled.
            doubt: Read also objects with a request from the second of their last change: there
                may have been two changes, one of them lost. Else the change counts as recorded.

        Raises:
            ClusterError: The search was not completed; recorded triggers are not recorded again.
        """
        members: dict[Kind, list[tuple[ListScope, Task]]] = defaultdict(list)
        for task in tasks:
            listings = task.program.match.listings(requests=task.counted)
            for place in await self.lister.places(listings):
                members[place.kind].append((place, task))
        failed: ClusterError | None = None
        for kind, parts in members.items():
            try:
                await _Walk(search=self, kind=kind, found=found, doubt=doubt).run(parts)
            except Overloaded:
                raise
            except ClusterError as error:
                # One kind that cannot be listed now must not keep the others from their turn.
                failed = failed or error
        if failed is not None:
            raise failed
        if found.held_back:
            policies = ", ".join(sorted({str(policy) for policy in found.held_back}))
            raise _overloaded(f"{self.most} catch-up requests of policy {policies}")


def _overloaded(requests: str) -> Overloaded:
    return Overloaded(f"{requests} are already waiting; others follow later")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lead:
    """A change of an object that may have been lost to a rule.

    Attributes:
        digests: The digests of what was recorded within the same second.
    """

    task: Task
    obj: Object
    moment: datetime
    digests: frozenset[str]


@dataclass(slots=True, kw_only=True)
class _Walk:
    """The search through the lists of one kind."""

    search: Search
    kind: Kind
    found: PassResult
    doubt: bool
    _labels: dict[str, Mapping[str, str]] = field(default_factory=dict)

    async def run(self, parts: Sequence[tuple[ListScope, Task]]) -> None:
        by_managers: dict[frozenset[str], list[Task]] = defaultdict(list)
        tasks = list({id(task): task for _, task in parts}.values())
        for task in tasks:
            by_managers[self.search.scope.left_out(task.program)].append(task)
        for place in _shared([place for place, _ in parts]):
            async for page in self._pages(place, tasks):
                leads = [lead for obj in page.items for lead in self._leads(by_managers, obj)]
                await self._follow(leads)

    async def _pages(self, place: ListScope, tasks: Iterable[Task]) -> AsyncIterator[Page]:
        try:
            async for page in self.search.lister.all_pages(place):
                yield page
        except (Forbidden, Invalid, NoKindMatch) as error:
            # A retry does not help, and the other kinds must not wait for this one.
            self.found.problems[self.kind.resource] = str(error)
            for task in tasks:
                self.found.unlisted[task.key] = f"{self.kind.resource} cannot be listed: {error}"

    def _leads(
        self, by_managers: Mapping[frozenset[str], Sequence[Task]], obj: Object
    ) -> Iterator[_Lead]:
        uid, version = str(obj["metadata"].get("uid", "")), resource_version(obj)
        for managers, tasks in by_managers.items():
            moment = changed(obj, but_by=managers)
            if moment is None:
                continue
            for task in tasks:
                key = task.policy.uid, task.program.rule, uid
                if not task.window.holds(moment, version) or self.search.recent.after(
                    *key, moment
                ):
                    continue
                digests = self.search.recent.digests(*key, moment)
                if not digests or (self.doubt and not task.counted):
                    yield _Lead(task=task, obj=obj, moment=moment, digests=digests)

    async def _follow(self, leads: Sequence[_Lead]) -> None:
        search, waiting = self.search, self.search.waiting() if leads else Counter()
        if waiting.total() >= search.most_in_all:
            raise _overloaded(f"{search.most_in_all} catch-up requests")
        full = {ref for ref, number in waiting.items() if number >= search.most}
        self.found.held_back |= full & {lead.task.policy.ref for lead in leads}
        leads = [lead for lead in leads if lead.task.policy.ref not in full]
        gate = asyncio.Semaphore(_PARALLEL)

        async def one(lead: _Lead) -> None:
            async with gate:
                await self._look(lead)

        results = await asyncio.gather(*map(one, leads), return_exceptions=True)
        for error in results:
            if error is not None:
                raise error

    async def _look(self, lead: _Lead) -> None:
        program, obj, scope = lead.task.program, lead.obj, self.search.scope
        meta = obj["metadata"]
        namespace = str(meta.get("namespace", ""))
        labels: Mapping[str, str] = {}
        if program.match.needs.namespace_labels or scope.by_namespace:
            labels = await self._namespace(namespace)
        subject = Subject(
            obj=obj,
            group=self.kind.group,
            version=self.kind.version,
            kind=self.kind.kind,
            name=str(meta.get("name", "")),
            namespace=namespace,
            namespace_labels=labels,
            operation=_operation(lead) if lead.task.counted else "",
        )
        if not scope.holds(program, subject, labels):
            return
        if program.match.evaluate(subject).decision is Decision.NO_MATCH:
            return
        if lead.task.counted:
            self.found.lost[lead.task.key].add((str(meta.get("uid", "")), lead.moment))
            return
        draft = catch_up_draft(lead.task.policy, program, ref_of(obj))
        if await self._fires(lead, draft):
            await self._record(lead, draft)

    async def _fires(self, lead: _Lead, draft: RequestDraft) -> bool:
        """Return whether admission would have recorded the trigger, True where it is unknown."""
        program = lead.task.program
        processor = self.search.processor.acting_as(program.origin.account)
        itself = Phase.EXISTING in program.phases
        plain = program.condition is None and not program.before and not itself
        if plain and not lead.digests and not processor.exceptions.of(program):
            return True
        ref, flight = draft.spec.resource, processor.flight
        resource = f"{ref.api_version}/{ref.kind}"
        async with flight.triggers.hold(flight.expected(resource)) as hold:
            try:
                live = await processor.reading.reader.get(self.kind, ref.namespace, ref.name)
            except NotFound:
                return False
            except ClusterError:
                return True  # Its request reports what is wrong with the object.
            hold.resize(flight.weigh(resource, live))
            if digest(live) in lead.digests:
                return False
            return await self._fires_on(processor, program, draft, live)

    async def _fires_on(
        self, processor: Processor, program: Program, draft: RequestDraft, live: Object
    ) -> bool:
        """Return whether a rule fires for an object as it is, True where it is unknown."""
        loads = processor.loads(draft.spec)
        try:
            trigger = await processor.reading.of_object(live, program)
            run = RuleRun.of(program, trigger.subject, loads.of(trigger.context))
            closed = await processor.eligibility.skip_reason(draft.spec, run, loads)
            if closed is None and Phase.EXISTING in program.phases:
                return await self._changes(run, live, loads)
        except (ClusterError, EvaluationError, Interrupted):
            # If the whole API server fails, so does the creation of the request, and the pass.
            return True
        return closed is None

    async def _changes(self, run: RuleRun, live: Object, loads: Loads) -> bool:
        """Return whether the rule would change the object or fail at it."""
        lanes = self.search.processor.lanes
        table = await lanes.keys.merge_keys(str(live.get("apiVersion", "")))
        guarded = lanes.protection.guarded
        change = await loads.evaluate(lambda: run.change(0, live, keys=table, guarded=guarded))
        return change.status is not RuleStatus.SKIP

    async def _record(self, lead: _Lead, draft: RequestDraft) -> None:
        key = lead.task.policy.uid, lead.task.program.rule, draft.spec.resource.uid
        name = catch_up_name(*key, render_time(lead.moment))
        requests = self.search.processor.triggers.requests
        await requests.create(name, draft.labels, draft.spec)
        self.search.recent.note(*key, name, lead.moment)
        self.found.recorded[lead.task.key] += 1

    async def _namespace(self, name: str) -> Mapping[str, str]:
        if name and name not in self._labels:
            triggers = self.search.processor.triggers
            self._labels[name] = await triggers.namespace_labels(name)
        return self._labels.get(name, {})


def _operation(lead: _Lead) -> str:
    """Return the operation on an object that was changed within the window."""
    created = parse_time(lead.obj["metadata"].get("creationTimestamp"))
    within = created is not None and created >= lead.task.window.since.replace(microsecond=0)
    return "CREATE" if within else "UPDATE"


def _shared(places: Sequence[ListScope]) -> Iterator[ListScope]:
    """Yield the fewest lists of one kind that together contain all objects of the given ones."""
    selectors = {place.listing.labels for place in places}
    common = selectors.pop() if len(selectors) == 1 else ()
    names = {place.namespace for place in places}
    if "" in names or len(names) > _MOST_NAMESPACES:
        names = {""}
    for name in sorted(names):
        listing = Listing(kinds=(), namespaces=None, names=None, labels=common)
        yield ListScope(kind=places[0].kind, namespace=name, listing=listing)


def tasks_of(
    times: Iterable[tuple[CompiledPolicy, Iterable[Program], Window]], scope: CatchUpScope
) -> Iterator[Task]:
    """Yield a task for each rule that can be caught up, given with the window to search."""
    for policy, programs, window in times:
        for program in programs:
            if not scope.why_lost(policy, program):
                yield Task(policy=policy, program=program, window=window)
