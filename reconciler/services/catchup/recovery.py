"""Looks for what was not recorded while policies were not in force, whatever their failure policy.

What can be found is recorded. What cannot, for its object does not say what was done to it or
how often, is counted where the objects at least say that something was, and reported.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

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
"""The API server's time is known to about a second, and it notes whole ones."""
_TOLD_FOR = timedelta(minutes=15)
"""Longer than spans overlap that are looked into one after another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRule:
    """A rule whose triggers of a time cannot be worked on any more.

    Attributes:
        why: Not.
        objects: That it matches and that were changed within the time without being recorded;
            None where nobody can say.
    """

    name: str
    why: str
    objects: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """What a policy lost in one outage."""

    policy: PolicyRef
    uid: str
    outage: Outage
    rules: tuple[LostRule, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """Looks into outages.

    Attributes:
        on_found: Called with what was recorded.
        lost: Called with what cannot be.
        reported: The objects reported as lost, by rule: spans that follow each other overlap by
            what is not known of the time, and several may end at once.
        created: Gives when a policy was created, and in which version (`Activations.created`).
    """

    index: PolicyStore
    search: Search
    outages: Outages
    on_found: Callable[[PassResult], None]
    lost: Callable[[Loss], Awaitable[None]]
    created: Callable[[PolicyRef], tuple[datetime, int] | None]
    reported: dict[RuleKey, set[Changed]]

    async def run(self, until: datetime) -> dict[str, str] | None:
        """Look into all outages that ended before a moment, and into one that goes on for long.

        Returns:
            Why kinds could not be looked at, by their name; None where there was no need to look.

        Raises:
            ClusterError: It could not be done in full; it is all done again.
        """
        due = self.outages.due(until)
        found = PassResult()
        policies = self.index.policies()
        # What can be found of the others, the regular passes look for.
        sought = [item for item in due if item.cause is not Cause.UNRECORDED]
        times = [
            (policy, self._window(policy, outages, until))
            for policy in policies
            if (outages := _concerning(sought, policy))
        ]
        ended = [item for item in due if item.until is not None]
        counted = [task for policy in policies for task in self._counted(policy, ended, until)]
        tasks = [*tasks_of(times, self.search.scope, doubt=True), *counted]
        try:
            await self.search.run(tasks, found, doubt=True)
        finally:
            if found.recorded:
                self.on_found(found)
        for policy in policies:
            for outage in _concerning(ended, policy):
                if not self._is_younger(policy, outage):
                    await self._tell(policy, outage, found)
        self.outages.done(due, until)
        self._forget(until - _TOLD_FOR)
        return found.problems if tasks else None

    def _window(
        self, policy: CompiledPolicy, outages: Iterable[Outage], until: datetime
    ) -> Window:
        since = min(item.searched or item.since for item in outages) - _SLACK
        return self._from(policy, since, until)

    def _from(self, policy: CompiledPolicy, since: datetime, until: datetime) -> Window:
        """Return a window, but of nothing before the policy."""
        known = self.created(policy.ref)
        if known is None or known[0] < since:
            return Window(since=since, until=until)
        created, version = known
        return Window(since=created, until=until, version=version)

    def _is_younger(self, policy: CompiledPolicy, outage: Outage) -> bool:
        """Return whether a policy came after an outage, and lost nothing in it."""
        known = self.created(policy.ref)
        return known is not None and outage.until is not None and outage.until < known[0]

    def _lost(self, policy: CompiledPolicy) -> Iterable[tuple[Program, str]]:
        for program in policy.in_phase(Phase.TRIGGERED):
            why = self.search.scope.why_lost(policy, program)
            if why:
                yield program, why

    def _counted(
        self, policy: CompiledPolicy, outages: Collection[Outage], until: datetime
    ) -> Iterable[Task]:
        times = [item.since for item in _concerning(outages, policy)]
        if not times:
            return
        window = self._from(policy, min(times) - _SLACK, until)
        for program, _ in self._lost(policy):
            if _countable(program):
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
        """Return what a rule lost, None for nothing."""
        key = rule_key(policy, program)
        why, unlisted = self.search.scope.why_lost(policy, program), found.unlisted.get(key, "")
        if not why:
            return LostRule(name=program.rule, why=unlisted, objects=None) if unlisted else None
        unknown = unlisted
        if not unlisted and _countable(program) and not self._known(outage):
            unknown = "the leader began after it, and does not know what was recorded before"
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
        """Return whether all requests of a time are known, those that are removed too."""
        complete = self.search.recent.complete
        return complete is not None and complete - _SLACK <= outage.since


def _concerning(outages: Iterable[Outage], policy: CompiledPolicy) -> list[Outage]:
    return concerning(outages, policy.uid, ignores=policy.failure_policy == IGNORE)


def _countable(program: Program) -> bool:
    """Return whether every trigger of a rule leaves an object that says when it was changed."""
    scopes = program.match.kinds()
    return all(item.selector.is_listable and "DELETE" not in item.operations for item in scopes)


def describe(outage: Outage, rule: LostRule) -> str:
    """Say in one line what a rule lost."""
    if rule.objects is None:
        what = "the number of lost triggers is unknown"
    elif rule.objects == 1:
        what = "1 object was changed and is not worked on"
    else:
        what = f"{rule.objects} objects were changed and are not worked on"
    end = "" if outage.until is None else f" until {outage.until:%H:%M:%S}"
    time = f"from {outage.since:%Y-%m-%d %H:%M:%S}{end} UTC"
    return f"{what} ({outage.cause}, {time}): {rule.why}"
