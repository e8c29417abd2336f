"""Rules that are applied one after the other on the same object.

Each rule sees the object that the one before it made, match included; names that a rule adds to
the data are its own. The chain knows the order, the object and what `applyRules: One` leaves
out. Whoever drives it builds the rule's run on the object that a step names, evaluates it, reads
what that asks for, and says how it ended:

    for step in chain.steps():
        try:
            result = await loads.evaluate(lambda: step.evaluate(run_on))
        except RetrofitError as error:
            result = step.failed(error)
        chain.settle(result)
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from reconciler.api.meta import PolicyRef
from reconciler.engine.exceptions import skipped
from reconciler.engine.outcome import RuleStatus, TargetChange
from reconciler.engine.patch import SHIPPED, KeyTable
from reconciler.engine.program import Program
from reconciler.engine.run import RuleRun
from reconciler.errors import RetrofitError
from reconciler.values import value_class

Group: TypeAlias = Sequence[Program]
"""Rules that are matched on the same object, and then applied one after the other."""

RunOn: TypeAlias = Callable[[Mapping[str, Any]], RuleRun]
"""Gives the run of a step's rule with an object as the trigger."""


@value_class(frozen=True, slots=True, kw_only=True)
class StepResult:
    """How a rule ended at its trigger.

    Attributes:
        after: The object as the rule wants it; as it was with any status but PASS.
        bare: The message without any value of an object; empty where it has none anyway.
        matched: Match and exclude hold.
        fired: The rule was meant for the trigger and not excepted.
        unchanged: The object is as the rule wants it.
    """

    program: Program
    status: RuleStatus
    message: str
    after: Mapping[str, Any]
    bare: str = ""
    matched: bool = True
    fired: bool = False
    unchanged: bool = False

    @property
    def policy(self) -> PolicyRef:
        """Return the policy of the rule."""
        return self.program.origin.policy

    @property
    def rule(self) -> str:
        """Return the rule's name."""
        return self.program.rule

    @property
    def acted(self) -> bool:
        """Return whether later rules of the policy are left out where it applies only one."""
        if self.program.changes_trigger:
            return self.status is RuleStatus.PASS
        return self.fired


@value_class(frozen=True, slots=True, kw_only=True)
class Step:
    """The rule that is next.

    Attributes:
        seen: The object that decides whether the rule fires, the same for all of its group.
        obj: The object as the rules before it left it, which the rule changes.
    """

    program: Program
    seen: Mapping[str, Any]
    obj: Mapping[str, Any]

    def evaluate(self, run_on: RunOn, keys: KeyTable = SHIPPED) -> StepResult:
        """Return what a rule makes of its trigger; of one with targets, whether it fires.

        Args:
            run_on: Asked for the object that decides, and for the one to change if that is
                another.
            keys: Which lists merge by key.

        Raises:
            EvaluationError: Whether it fires cannot be evaluated.
        """
        run = run_on(self.seen)
        decision = run.decide()
        if not decision.fires:
            return self.skip(decision.message, matched=decision.matched)
        if run.exceptions and (excepted := run.excepted()):
            return self.skip(skipped(excepted))
        if self.program.verdict is not None:
            return self.refuse(self.program.verdict.message(run.context))
        if not self.program.changes_trigger:
            return replace(self.skip(""), fired=True)
        changing = run if self.obj is self.seen else run_on(self.obj)
        return self.changed(changing.change(None, self.obj, keys=keys))

    def changed(self, change: TargetChange) -> StepResult:
        """Return that the rule fires, and what it makes of the object."""
        return StepResult(
            program=self.program,
            status=change.status,
            message=change.message,
            bare=change.bare,
            after=change.after,
            fired=True,
            unchanged=change.unchanged,
        )

    def skip(self, message: str, *, matched: bool = True) -> StepResult:
        """Return that the rule does not act."""
        return StepResult(
            program=self.program,
            status=RuleStatus.SKIP,
            message=message,
            after=self.obj,
            matched=matched,
        )

    def refuse(self, message: str) -> StepResult:
        """Return that the rule refuses the request."""
        return StepResult(
            program=self.program,
            status=RuleStatus.FAIL,
            message=message,
            bare="the rule refuses the request",
            after=self.obj,
            fired=True,
        )

    def failed(self, error: RetrofitError) -> StepResult:
        """Return that the rule cannot be evaluated, or needs what cannot be read."""
        return StepResult(
            program=self.program,
            status=RuleStatus.ERROR,
            message=str(error),
            bare=error.without_values,
            after=self.obj,
        )


@dataclass(slots=True, kw_only=True)
class Chain:
    """Rules on their way over one object; see the module.

    Attributes:
        groups: In order; the rules of one policy follow one another.
        obj: The object as it stands; what was given is not changed.
        results: Of the rules so far, in order, those of policies that were left out included.
        left_out: Policies whose changes do not count.
    """

    groups: Iterable[Group]
    obj: Mapping[str, Any]
    results: list[StepResult] = field(default_factory=list)
    left_out: set[PolicyRef] = field(default_factory=set)
    # The newest policy of which a rule acted, these rules, and the object before them.
    _newest: PolicyRef | None = None
    _acted: list[str] = field(default_factory=list)
    _before: Mapping[str, Any] = field(default_factory=dict)

    def steps(self) -> Iterator[Step]:
        """Yield the rules one after the other; each has to be settled before the next is asked."""
        for group in self.groups:
            seen = self.obj
            for program in group:
                if self.left_out and program.origin.policy in self.left_out:
                    continue
                if program.before and self.earlier(program) is not None:
                    continue
                yield Step(program=program, seen=seen, obj=self.obj)

    def settle(self, result: StepResult) -> None:
        """Take in how the rule of the newest step ended."""
        self.results.append(result)
        if not result.acted:
            return
        origin = result.program.origin
        if origin.policy != self._newest:
            self._newest, self._acted, self._before = origin.policy, [], self.obj
        self._acted.append(origin.rule)
        if result.status is RuleStatus.PASS:
            self.obj = result.after

    def leave_out(self, policy: PolicyRef) -> None:
        """Take back all that the newest policy changed, and take no further step of it."""
        if not self.results or self.results[-1].policy != policy:
            msg = f"other rules have seen already what policy {policy} changed"
            raise ValueError(msg)
        self.left_out.add(policy)
        if policy == self._newest:
            self.obj = self._before

    def earlier(self, program: Program) -> Program | None:
        """Return the rule that acted where a policy applies only one, and this comes later."""
        if program.origin.policy != self._newest:
            return None
        return next((item for item in program.before if item.rule in self._acted), None)


def by_policy(programs: Iterable[Program]) -> tuple[Group, ...]:
    """Return rules in the order of a cluster: policies by key, grouped as `grouped` does.

    Args:
        programs: Those of one policy in its order.
    """
    return _groups(sorted(programs, key=_place))


def grouped(programs: Iterable[Program]) -> tuple[Group, ...]:
    """Return rules in groups: those without a tier alone and first, then tier by tier.

    What refuses a request looks at the object as all that change it left it, so it comes last.
    """
    programs = list(programs)
    alone = [program for program in programs if program.tier is None]
    return _groups(
        [*alone, *sorted((item for item in programs if item.tier is not None), key=_place)]
    )


def _groups(programs: Iterable[Program]) -> tuple[Group, ...]:
    """Return rules in groups; those of one tier are in order already."""
    alone: list[Group] = []
    tiers: dict[tuple[bool, str, int], list[Program]] = {}
    for program in programs:
        if program.tier is None:
            alone.append((program,))
        else:
            place = program.verdict is not None, program.origin.dialect, program.tier
            tiers.setdefault(place, []).append(program)
    return (*alone, *(tuple(tiers[place]) for place in sorted(tiers)))


def _place(program: Program) -> tuple[str, str, str]:
    policy = program.origin.policy
    return policy.key, policy.kind, policy.api_version
