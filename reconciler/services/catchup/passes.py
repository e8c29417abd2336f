"""Catch-up passes, which search for lost triggers; only a leader makes them.

A pass is made at each interval; and at once when the admission servers report that triggers may
have been lost, when a process begins to lead, and when a new generation of a policy is in force.
A pass stores how far it has searched, so that no time is left out when a process ends.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from reconciler.api.meta import PolicyRef
from reconciler.api.updaterequest import UpdateRequest, parse_time
from reconciler.clock import Clock
from reconciler.engine.program import IGNORE, CompiledPolicy, Phase, Program
from reconciler.requests.lifecycle import FINAL
from reconciler.services.catalog.policy_store import PolicyStore, StoredPolicy
from reconciler.services.catchup.activations import Activation, Activations
from reconciler.services.catchup.changes import Window
from reconciler.services.catchup.recovery import Loss, Recovery
from reconciler.services.catchup.schedule import SETTLE, Action, Schedule
from reconciler.services.catchup.search import Changed, PassResult, RuleKey, Search, Task, tasks_of
from reconciler.services.jobs import WarnsOnce, repeat
from reconciler.services.ports.leases import CatchUpCheckpoint, Checkpoint
from reconciler.services.ports.policies import Policies
from reconciler.services.rollout.in_force import InForce
from reconciler.services.rollout.outages import Cause

_SETTLE = timedelta(seconds=SETTLE)
_OVERLAP = timedelta(seconds=75)
"""An API server allows a request one minute from the time that it notes until it is stored."""
_FIRST = timedelta(minutes=10)
"""How far back the very first pass searches, for policies that are not older than that."""
_LOOK = 1.0
_IN_FORCE = 2.0
"""Seconds after Ready until every API server is assumed to call the webhook."""
_PAUSES = (2.0, 60.0)
_FORGET_EVERY = 1000
_CHANGES = 100
"""The most changes of policies that a process remembers while it makes no regular passes."""


@dataclass(frozen=True, slots=True)
class _Former:
    """An earlier version of a policy, and the time in which it applied."""

    policy: CompiledPolicy
    window: Window


@dataclass(slots=True, kw_only=True)
class CatchUpPasses(WarnsOnce):
    """Makes the catch-up passes.

    Attributes:
        interval: Seconds between two passes; 0 makes only those after an outage.
        in_force: Records when policies were not in force.
        held: Returns whether no work may be done; triggers in that time do not count as lost.
        on_found: Called with the requests that a pass recorded.
        lost: Called with triggers that can neither be found nor worked on.
        passes: Number of passes that were completed.
        done: The time until which everything was searched, None before it is known.
    """

    index: PolicyStore
    policies: Policies
    checkpoint: CatchUpCheckpoint
    search: Search
    clock: Clock
    interval: float
    in_force: InForce
    held: Callable[[], bool]
    on_found: Callable[[PassResult], None]
    lost: Callable[[Loss], Awaitable[None]]
    passes: int = 0
    done: datetime | None = None
    _activations: Activations = field(default_factory=Activations)
    _former: list[_Former] = field(default_factory=list)
    _stored: datetime | None = None
    _saved: tuple[str, int] | None = None
    _taken: int = 0
    _recalled: bool = False
    _schedule: Schedule = field(init=False)
    _reported: dict[RuleKey, set[Changed]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Subscribe to the policies, also while another process leads."""
        self._schedule = Schedule(interval=self.interval)
        self.index.subscribe(self._on_policy)

    def note(self, request: UpdateRequest) -> None:
        """Record a request as it is stored, also while another process leads."""
        self.search.recent.record(request, self.clock.now())
        self._taken += 1
        if self._taken % _FORGET_EVERY == 0 and not self._passing:
            self._forget(self.clock.now() - timedelta(seconds=2 * self.interval))

    @property
    def _passing(self) -> bool:
        """Return whether this process makes regular passes, which forget what is old."""
        return self.done is not None and self.interval > 0

    def removed(self, request: UpdateRequest) -> None:
        """Note a deleted request: with the programs' namespace all waiting ones are deleted."""
        outages, policy = self.in_force.outages, self.index.get(request.spec.policy)
        if policy is None or policy.uid != request.spec.policy_uid:
            return  # It was deleted with its policy, so its work is no longer needed.
        if outages.is_open() and request.status.state not in FINAL:
            self.search.recent.drop(request)
            outages.widen(request.created)

    def _on_policy(self, before: StoredPolicy | None, after: StoredPolicy | None) -> None:
        if after is None:
            if before is not None:
                self._activations.on_deleted(before.ref)
            return
        earlier = self._activations.get(after.ref)
        known = None if before is None else before.compiled
        self._activations.on_stored(after.head, self.clock.monotonic())
        start = self._activations.get(after.ref)
        if (
            known is not None
            and (earlier is not None and earlier.ready is not None)
            and (start is not None and start.uid == earlier.uid and start.since > earlier.since)
        ):
            # Triggers that were lost before a change belong to the rules before it.
            self._former.append(_Former(known, Window(since=earlier.since, until=start.since)))
        if not self._passing:
            del self._former[:-_CHANGES]

    async def run(self) -> None:
        """Make passes until cancelled; a step that fails is tried again after a pause."""
        interrupted = WarnsOnce(warn=self.warn)
        await repeat(
            self._step,
            every=_LOOK,
            pauses=_PAUSES,
            tell=interrupted.tell,
            failing="catch-up paused: ",
        )

    async def _step(self) -> None:
        if not self._recalled:
            await self.begin()
            self._recalled = True
        await self.look()

    async def begin(self) -> None:
        """Load the stored policies, the requests and the checkpoint."""
        stored = await self.policies.stored()
        for policy in stored:
            await self.index.take_in(policy)
        requests = self.search.processor.triggers.requests
        for listed in (requests.waiting(), requests.finished()):
            async for request in listed:
                self.search.recent.record(request, self.clock.now())
        checkpoint = await self.checkpoint.load()
        now, done = self.clock.now(), checkpoint.done
        # Some of the requests that ended earlier are removed already.
        self.search.recent.begin(now)
        self._stored = done
        if not self.in_force.recalled:
            self.in_force.recall(checkpoint, stored)
        self.done = now - _FIRST if done is None else done
        before = self.done - _OVERLAP
        # Without any pass before, admission was never called: older policies miss nothing.
        self._activations.begin(before, instead=now if done is None else before)
        heartbeat = await self.checkpoint.heartbeat()
        missed = parse_time(heartbeat.missed)
        if done is not None and missed is not None and missed >= before:
            self.in_force.outages.add(Cause.UNRECORDED, before, now)
        # No process has searched since the previous leader did, if there was one.
        unseen = 0.0 if done is None else (now - done).total_seconds()
        monotonic = self.clock.monotonic()
        self._schedule = self._schedule.begun(heartbeat, monotonic, unseen=unseen)

    async def look(self) -> None:
        """Make a pass if one is due."""
        now = self.clock.monotonic()
        await self._recover()
        if not self.interval:
            return
        if self._schedule.asks(now):
            await self._listen(now)
        self._activations.on_begun(self.in_force.begun, now)
        ready = self._activations.open(now - SETTLE - _IN_FORCE)
        action = self._schedule.action(
            self.clock.monotonic(),
            held=self.held(),
            new=bool(ready),
            guessing=self.search.scope.guessing,
        )
        match action:
            case Action.NOTE:
                await self._end(self.clock.now() - _SETTLE, ready.values())
                self._schedule = self._schedule.ended(now)
            case Action.LOOK_AT_IGNORED | Action.LOOK_AT_BEGINNINGS:
                await self._all(ready, ignored=action is Action.LOOK_AT_IGNORED)
            case Action.LOOK_AT_NEW:
                await self._begun(ready)
            case Action.REST:
                return

    async def _recover(self) -> None:
        """Search the times in which policies were not in force, and store these times."""
        in_force, until = self.in_force, self.clock.now() - _SETTLE
        if in_force.outages.due(until) and not self.held():
            recovery = Recovery(
                index=self.index,
                search=self.search,
                outages=in_force.outages,
                on_found=self.on_found,
                lost=self.lost,
                created=self._activations.created,
                reported=self._reported,
            )
            problems = await recovery.run(until)
            if problems is not None:
                self._tell_problems(problems)
                self.passes += 1
        if self._saved != (in_force.version, in_force.outages.revision):
            await self._save()

    async def _save(self) -> None:
        in_force = self.in_force
        saved = in_force.version, in_force.outages.revision
        checkpoint = Checkpoint(
            done=self._stored,
            version=in_force.version,
            confirmed=in_force.confirmed,
            outages=in_force.outages.dump(),
        )
        await self.checkpoint.store(checkpoint)
        self._saved = saved

    async def _listen(self, now: float) -> None:
        heartbeat = await self.checkpoint.heartbeat()
        moment = self.clock.now()
        self._schedule, missing = self._schedule.heard(heartbeat, now)
        if missing:
            since = moment - timedelta(seconds=missing)
            self.in_force.outages.add(Cause.UNRECORDED, since, moment)

    async def _all(self, ready: dict[PolicyRef, Activation], *, ignored: bool) -> None:
        """Search the beginnings of some policies and, if ``ignored``, all rules under Ignore."""
        now, until = self.clock.monotonic(), self.clock.now() - _SETTLE
        chosen = [
            policy
            for policy in self.index.policies()
            if policy.ref in ready or (ignored and policy.failure_policy == IGNORE)
        ]
        former = self._before(until) if ignored else ()
        await self._pass(chosen, until, doubt=self._schedule.doubt, former=former)
        self._schedule = self._schedule.ended(now)
        await self._end(until, ready.values())

    async def _begun(self, ready: dict[PolicyRef, Activation]) -> None:
        """Search the beginnings of some policies."""
        chosen = [policy for policy in self.index.policies() if policy.ref in ready]
        await self._pass(chosen, self.clock.now() - _SETTLE, doubt=False)
        self._activations.cover(ready.values())
        self.passes += 1

    def _before(self, until: datetime) -> list[Task]:
        """Return tasks for what policies under Ignore may have lost before they were changed."""
        since = (self.done or until) - _OVERLAP
        times = [
            (
                item.policy,
                _programs(item.policy, doubt=False),
                replace(item.window, since=max(item.window.since, since)),
            )
            for item in self._former
            if item.policy.failure_policy == IGNORE
        ]
        return list(tasks_of(times, self.search.scope))

    async def _pass(
        self,
        policies: Collection[CompiledPolicy],
        until: datetime,
        *,
        doubt: bool,
        former: Collection[Task] = (),
    ) -> None:
        found = PassResult()
        times = [
            (policy, _programs(policy, doubt=doubt), self._window(policy, until))
            for policy in policies
        ]
        known = (self._activations.get(policy.ref) for policy in policies)
        in_force = {start.uid for start in known if start is not None and start.ready is not None}
        tasks = [
            task
            for task in tasks_of(times, self.search.scope)
            # Objects that existed when a policy came into force are part of its sweep.
            if task.policy.uid in in_force
            and (task.policy.failure_policy == IGNORE or not task.program.on_policy_change)
        ]
        try:
            await self.search.run([*tasks, *former], found, doubt=doubt)
        finally:
            if found.recorded:
                self.on_found(found)
        self._tell_problems(found.problems)

    def _window(self, policy: CompiledPolicy, until: datetime) -> Window:
        since = (self.done or until) - _OVERLAP
        start = self._activations.get(policy.ref)
        if start is None or (start.covered and start.since < since):
            return Window(since=since, until=until)
        return Window(since=start.since, until=until, version=start.version)

    async def _end(self, until: datetime, covered: Collection[Activation]) -> None:
        """Store the time until which everything was searched."""
        self._activations.cover(covered)
        first = self._activations.earliest(self._awaited())
        reached = until if first is None else min(until, first)
        # No beginning before the stored time is really left: the earlier leader waited for it.
        self._stored = max(reached, self._stored or reached)
        await self._save()
        self.done = until
        self.passes += 1
        kept = until - _OVERLAP
        self._former = [item for item in self._former if item.window.until >= kept]
        self._forget(reached)

    def _awaited(self) -> set[PolicyRef]:
        """Return the policies that are to come into force soon.

        If the kinds of a policy are not served, its outage records from when to search.
        """
        if self.held():
            return set()
        unserved, standing_by = self.in_force.unserved, self.index.languages.standing_by
        policies = {policy.ref for policy in self.index.policies()}
        return {ref for ref in policies if ref not in unserved and not standing_by(ref)}

    def _forget(self, before: datetime) -> None:
        """Forget the requests that no search from a moment on, nor one of an outage, needs."""
        needed = self.in_force.outages.earliest()
        kept = before if needed is None else min(before, needed)
        self.search.recent.forget(kept - _OVERLAP - _SETTLE)

    def _tell_problems(self, problems: Mapping[str, str]) -> None:
        self.tell("; ".join(f"{kind}: {why}" for kind, why in sorted(problems.items())))


def _programs(policy: CompiledPolicy, *, doubt: bool) -> Iterable[Program]:
    """Return the rules to search for, those without targets only if triggers may be missing.

    Admission stores no request for these, so each of their objects is evaluated.
    """
    return policy.in_background if doubt else policy.in_phase(Phase.TRIGGERED)
