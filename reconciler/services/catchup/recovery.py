"""Searches for triggers that were not recorded while policies were not in force.

Triggers that can be found are recorded, whatever the failure policy. Others cannot, because their
object does not show what was done to it or how often. They are reported, and counted where the
object at least shows that it was changed.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from reconciler.api.meta import PolicyRef
from reconciler.engine.program import IGNORE, CompiledPolicy, Phase, Program
from reconciler.services.catalog.policy_store import PolicyStore
from reconciler.services.catchup.changes import Window
from reconciler.services.catchup.search import (
    Changed,
    PassResult,
    RuleKey,
    Search,
    Task,
    rule_key,
    tasks_of,
)
from reconciler.services.rollout.outages import Cause, Outage, Outages, concerning

_SLACK = timedelta(seconds=2)
"""The API server's time is known to about a second, and it notes whole seconds."""
_TOLD_FOR = timedelta(minutes=15)
"""Longer than the overlap of spans that are searched one after another."""


class LostRule(NamedTuple):
    """A rule with triggers in an outage that can no longer be worked on.

    Attributes:
        why: The reason why they cannot.
        objects: Number of matching objects that were changed in the outage and not recorded;
            None where it is unknown.
    """

    name: str
    why: str
    objects: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """The triggers that a policy lost in one outage."""

    policy: PolicyRef
    uid: str
    outage: Outage
    rules: tuple[LostRule, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """Searches for the triggers of outages.

    Attributes:
        on_found: Called with the requests that were recorded.
        lost: Called with the triggers that cannot be worked on.
        reported: The objects already reported as lost, by rule: consecutive spans overlap by the
            uncertainty of the time, and several may end at once.
        created: Returns when a policy was created, and in which version (`Activations.created`).
    """

    index: PolicyStore
    search: Search
    outages: Outages
    on_found: Callable[[PassResult], None]
    lost: Callable[[Loss], Awaitable[None]]
    created: Callable[[PolicyRef], tuple[datetime, int] | None]
    reported: dict[RuleKey, set[Changed]]

    async def run(self, until: datetime) -> dict[str, str] | None:
        """Search all outages that ended before a moment, and one that has been open for long.

        Returns:
            Why kinds could not be listed, by their name; None where no search was needed.

        Raises:
            ClusterError: The search was not completed; all of it is repeated.
        """
        due = self.outages.due(until)
        found = PassResult()
        policies = self.index.policies()
        # For UNRECORDED outages, the regular passes search for what can be found.
        sought = [item for item in due if item.cause is not Cause.UNRECORDED]
        times = [item for policy in policies for item in self._times(policy, sought, until)]
        ended = [item for item in due if item.until is not None]
        counted = [task for policy in policies for task in self._counted(policy, ended, until)]
        tasks = [*tasks_of(times, self.search.scope), *counted]
        try:
            await self.search.run(tasks, found, doubt=True)
        finally:
            if found.recorded:
                self.on_found(found)
        for policy in policies:
            for outage in _unrecorded(ended, policy):
                if not self._is_younger(policy, outage):
                    await self._tell(policy, outage, found)
        self.outages.done(due, until)
        self._forget(until - _TOLD_FOR)
        return found.problems if tasks else None

    def _times(
        self, policy: CompiledPolicy, outages: Iterable[Outage], until: datetime
    ) -> Iterable[tuple[CompiledPolicy, tuple[Program, ...], Window]]:
        missed = _concerning(outages, policy)
        unrecorded = _unrecorded(outages, policy)
        if unrecorded:
            window = self._window(policy, unrecorded, until)
            yield policy, policy.in_phase(Phase.TRIGGERED), window
        if missed:
            yield policy, policy.on_existing, self._window(policy, missed, until)

    def _window(
        self, policy: CompiledPolicy, outages: Iterable[Outage], until: datetime
    ) -> Window:
        since = min(item.searched or item.since for item in outages) - _SLACK
        return self._from(policy, since, until)

    def _from(self, policy: CompiledPolicy, since: datetime, until: datetime) -> Window:
        """Return a window that does not begin before the policy was created."""
        known = self.created(policy.ref)
        if known is None or known[0] < since:
            return Window(since=since, until=until)
        created, version = known
        return Window(since=created, until=until, version=version)

    def _is_younger(self, policy: CompiledPolicy, outage: Outage) -> bool:
        """Return whether a policy was created after an outage, and so lost nothing in it."""
        known = self.created(policy.ref)
        return known is not None and outage.until is not None and outage.until < known[0]

    def _counted(
        self, policy: CompiledPolicy, outages: Collection[Outage], until: datetime
    ) -> Iterable[Task]:
        times = [item.since for item in _unrecorded(outages, policy)]
        if not times:
            return
        window = self._from(policy, min(times) - _SLACK, until)
        for program in policy.in_phase(Phase.TRIGGERED):
            if self.search.scope.why_lost(policy, program) and _countable(program):
                yield Task(policy=policy, program=program, window=window, counted=True)

    async def _tell(self, policy: CompiledPolicy, outage: Outage, found: PassResult) -> None:
        rules = [
            rule
            for program in policy.in_phase(Phase.TRIGGERED)
            if (rule := self._lost_rule(policy, program, outage, found))
        ]
        if rules:
            loss = Loss(policy=policy.ref, uid=policy.uid, outage=outage, rules=tuple(rules))
            await self.lost(loss)
        for rule in rules:
            key = policy.ref, policy.uid, rule.name
            self.reported.setdefault(key, set()).update(found.lost.get(key, ()))

    def _lost_rule(
        self, policy: CompiledPolicy, program: Program, outage: Outage, found: PassResult
    ) -> LostRule | None:
        """Return what a rule lost in an outage, None for nothing."""
        key = rule_key(policy, program)
        why, unlisted = self.search.scope.why_lost(policy, program), found.unlisted.get(key, "")
        if not why:
            return LostRule(name=program.rule, why=unlisted, objects=None) if unlisted else None
        unknown = unlisted
        if not unlisted and _countable(program) and not self._known(outage):
            unknown = "the leader started later, and does not know what was recorded before"
        if unknown or not _countable(program):
            reasons = "; ".join(filter(None, (why, unknown)))
            return LostRule(name=program.rule, why=reasons, objects=None)
        number = len(found.lost.get(key, set()) - self.reported.get(key, set()))
        return LostRule(name=program.rule, why=why, objects=number) if number else None

    def _forget(self, before: datetime) -> None:
        for key, objects in list(self.reported.items()):
            self.reported[key] = {item for item in objects if item[1] >= before}
            if not self.reported[key]:
                del self.reported[key]

    def _known(self, outage: Outage) -> bool:
        """Return whether all requests since an outage began are known, also the removed ones."""
        complete = self.search.recent.complete
        return complete is not None and complete - _SLACK <= outage.since


def _concerning(outages: Iterable[Outage], policy: CompiledPolicy) -> list[Outage]:
    return concerning(outages, policy.uid, ignores=policy.failure_policy == IGNORE)


def _unrecorded(outages: Iterable[Outage], policy: CompiledPolicy) -> list[Outage]:
    """Return the spans in which triggers of rules with targets may not have been recorded."""
    return [item for item in _concerning(outages, policy) if not item.changing]


def _countable(program: Program) -> bool:
    """Return whether every trigger of a rule leaves an object that shows when it was changed."""
    scopes = program.match.kinds()
    return all(item.selector.is_listable and "DELETE" not in item.operations for item in scopes)


def describe(outage: Outage, rule: LostRule) -> str:
    """Return one line of text on what a rule lost."""
    if rule.objects is None:
        what = "the number of lost triggers is unknown"
    elif rule.objects == 1:
        what = "1 object was changed and will not be processed"
    else:
        what = f"{rule.objects} objects were changed and will not be processed"
    end = "" if outage.until is None else f" until {outage.until:%H:%M:%S}"
    time = f"from {outage.since:%Y-%m-%d %H:%M:%S}{end} UTC"
    return f"{what} ({outage.cause}, {time}): {rule.why}"
