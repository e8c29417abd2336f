"""Rules that are applied one after the other on the same object.

The rules of a group are matched on the object as the groups before it left it, and each changes
the object as the rule before it left it; names that a rule adds to the data are its own. The
chain holds the order, the object and the rules that `applyRules: One` leaves out. The caller
builds the rule's run on the object of a step, evaluates it, loads what that needs, and settles:

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
from reconciler.api.shape import object_fault, with_texts
from reconciler.engine.evaluate import NOT_AN_OBJECT, NOTHING
from reconciler.engine.exceptions import skipped
from reconciler.engine.outcome import RuleStatus, TargetChange
from reconciler.engine.patch import SHIPPED, KeyTable, equal
from reconciler.engine.program import Program
from reconciler.engine.run import RuleRun
from reconciler.errors import EvaluationError, RetrofitError
from reconciler.values import value_class

Group: TypeAlias = Sequence[Program]
"""Rules that are matched on the same object and then applied one after the other."""

RunOn: TypeAlias = Callable[[Mapping[str, Any]], RuleRun]
"""Returns the run of a step's rule with an object as the trigger."""


@value_class(frozen=True, slots=True, kw_only=True)
class StepResult:
    """The result of a rule at its trigger.

    Attributes:
        after: The object as the rule changed it; with any status but PASS the object before.
        bare: The message without values of objects; empty where the message has none.
        matched: Match and exclude hold.
        fired: Match and condition hold, and no exception applies.
        unchanged: The rule's patch does not change the object.
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
        """Return whether `applyRules: One` leaves out the later rules of the policy."""
        if self.program.changes_trigger:
            return self.status is RuleStatus.PASS
        return self.fired


@value_class(frozen=True, slots=True, kw_only=True)
class Step:
    """The next rule of a chain, with its objects.

    Attributes:
        seen: The object on which the rule is matched, the same for all rules of its group.
        obj: The object that the rule changes, as the rules before left it.
    """

    program: Program
    seen: Mapping[str, Any]
    obj: Mapping[str, Any]

    def evaluate(self, run_on: RunOn, keys: KeyTable = SHIPPED) -> StepResult:
        """Return the result of the rule at its trigger; a rule with targets is only matched.

        Args:
            run_on: Called with the object to match, and with the object to change if that is
                another.
            keys: Which lists merge by key.

        Raises:
            EvaluationError: The condition of the rule cannot be evaluated.
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
        """Return the result of a rule that fires and changes its trigger."""
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
        """Return the result of a rule that does not act."""
        return StepResult(
            program=self.program,
            status=RuleStatus.SKIP,
            message=message,
            after=self.obj,
            matched=matched,
        )

    def refuse(self, message: str) -> StepResult:
        """Return the result of a rule that refuses the request."""
        return StepResult(
            program=self.program,
            status=RuleStatus.FAIL,
            message=message,
            bare="the rule refuses the request",
            after=self.obj,
            fired=True,
        )

    def checked(self, result: StepResult) -> StepResult:
        """Return the result with the object as the API server stores it.

        It is an error if fields of the object that rules match are mistyped.
        """
        if result.status is not RuleStatus.PASS:
            return result
        after = with_texts(result.after)
        if fault := object_fault(after, "object"):
            return self.failed(EvaluationError(f"{NOT_AN_OBJECT}: {fault}"))
        if after is result.after:
            return result
        if equal(self.obj, after):
            return replace(self.skip(NOTHING), fired=True, unchanged=True)
        return replace(result, after=after)

    def failed(self, error: RetrofitError) -> StepResult:
        """Return the result of a rule that cannot be evaluated or whose data cannot be read."""
        return StepResult(
            program=self.program,
            status=RuleStatus.ERROR,
            message=str(error),
            bare=error.without_values,
            after=self.obj,
        )


@dataclass(slots=True, kw_only=True)
class Chain:
    """The state of applying groups of rules to one object; see the module.

    Attributes:
        groups: In order; the rules of one policy are adjacent.
        obj: The object as it is now; the given object itself is never changed.
        results: The results so far, in order, including those of left out policies.
        left_out: Policies whose changes are discarded.
        entering: Returns the object as the rules of a policy see it, when the policy begins.
    """

    groups: Iterable[Group]
    obj: Mapping[str, Any]
    results: list[StepResult] = field(default_factory=list)
    left_out: set[PolicyRef] = field(default_factory=set)
    entering: Callable[[PolicyRef, Mapping[str, Any]], Mapping[str, Any]] | None = None
    # The last policy with a rule that acted, the names of these rules, and the object before them.
    _newest: PolicyRef | None = None
    _acted: list[str] = field(default_factory=list)
    _before: Mapping[str, Any] = field(default_factory=dict)

    def steps(self) -> Iterator[Step]:
        """Yield the rules one after the other; settle each before the next one is requested."""
        entered: PolicyRef | None = None
        for group in self.groups:
            if self.entering is not None and group[0].origin.policy != entered:
                entered = group[0].origin.policy
                self.obj = self.entering(entered, self.obj)
            seen = self.obj
            for program in group:
                if self.left_out and program.origin.policy in self.left_out:
                    continue
                if program.before and self.earlier(program) is not None:
                    continue
                yield Step(program=program, seen=seen, obj=self.obj)

    def settle(self, result: StepResult) -> None:
        """Record the result of the last step's rule."""
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
        """Undo all changes of the policy of the last step, and skip its remaining rules."""
        if not self.results or self.results[-1].policy != policy:
            raise ValueError(f"other rules have seen already what policy {policy} changed")
        self.left_out.add(policy)
        if policy == self._newest:
            self.obj = self._before

    def earlier(self, program: Program) -> Program | None:
        """Return the rule that acted before, due to which `applyRules: One` skips this one."""
        if program.origin.policy != self._newest:
            return None
        return next((item for item in program.before if item.rule in self._acted), None)


def by_policy(programs: Iterable[Program]) -> tuple[Group, ...]:
    """Return rules in the order of a cluster: policies by key, in groups as by `grouped`.

    Args:
        programs: The rules of one policy must be in its order.
    """
    return _groups(sorted(programs, key=_place))


def grouped(programs: Iterable[Program], languages: Sequence[str] = ()) -> tuple[Group, ...]:
    """Return rules in groups: first each rule without a tier alone, then tier by tier.

    Rules that refuse a request see the object after all changes, so they come last.

    Args:
        languages: The order of languages whose rules have tiers.
    """
    programs = list(programs)
    alone = [program for program in programs if program.tier is None]
    tiered = sorted((item for item in programs if item.tier is not None), key=_place)
    return _groups([*alone, *tiered], languages)


def _groups(programs: Iterable[Program], languages: Sequence[str] = ()) -> tuple[Group, ...]:
    """Return rules in groups; the rules of one tier must be in order already."""
    alone: list[Group] = []
    tiers: dict[tuple[bool, int, str, int], list[Program]] = {}
    for program in programs:
        if program.tier is None:
            alone.append((program,))
        else:
            language = program.origin.dialect
            rank = languages.index(language) if language in languages else len(languages)
            place = program.verdict is not None, rank, language, program.tier
            tiers.setdefault(place, []).append(program)
    return (*alone, *(tuple(tiers[place]) for place in sorted(tiers)))


def _place(program: Program) -> tuple[str, str, str]:
    policy = program.origin.policy
    return policy.key, policy.kind, policy.api_version
