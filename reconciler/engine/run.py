"""The steps of one rule on one trigger, shared by admission, background, desk and explain.

The steps in their order: match, condition, the exceptions for the trigger, `applyRules: One`,
targets, the exceptions for a target, the change. Each is pure, and may raise `NeedsLoad`: the
caller then loads the data and repeats the step. The caller also decides what it reads between two
steps, and what it does with a result.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from reconciler.api.meta import Kind
from reconciler.engine.context import Context
from reconciler.engine.evaluate import GUARDED, change, decide
from reconciler.engine.exceptions import PolicyException, excepting, excepting_target
from reconciler.engine.match import Decision, Subject, Verdict
from reconciler.engine.outcome import TargetChange, TriggerDecision
from reconciler.engine.patch import SHIPPED, KeyTable
from reconciler.engine.ports import Condition
from reconciler.engine.program import Program
from reconciler.engine.targets import TargetQuery
from reconciler.errors import EvaluationError
from reconciler.values import value_class


@value_class(frozen=True, slots=True, kw_only=True)
class RuleRun:
    """A rule and the trigger on which it is evaluated.

    Attributes:
        plain: Context of the trigger.
        context: The same with the names of the rule.
        exceptions: The exceptions to evaluate, all of which name the rule.
        known: The verdict of match and exclude, where it was computed before.
    """

    program: Program
    subject: Subject
    plain: Context
    context: Context
    exceptions: Sequence[PolicyException] = ()
    known: Verdict | None = None

    @classmethod
    def of(
        cls,
        program: Program,
        subject: Subject,
        plain: Context,
        exceptions: Sequence[PolicyException] = (),
        known: Verdict | None = None,
    ) -> Self:
        """Return the run of a rule on a trigger, whose context lacks the rule's names."""
        return cls(
            program=program,
            subject=subject,
            plain=plain,
            context=program.binding.bind(plain),
            exceptions=exceptions,
            known=known,
        )

    def of_rule(self, program: Program) -> Self:
        """Return the run of another rule on the same trigger, without exceptions."""
        return self.of(program, self.subject, self.plain)

    def knowing(
        self, labels: Mapping[str, str], exceptions: Sequence[PolicyException] = ()
    ) -> Self:
        """Return the run with the labels of the trigger's namespace and with exceptions."""
        subject = replace(self.subject, namespace_labels=labels)
        return replace(self, subject=subject, exceptions=exceptions, known=None)

    def verdict(self) -> Verdict:
        """Return the verdict of match and exclude."""
        return self.known or self.program.match.evaluate(self.subject)

    def decide(self) -> TriggerDecision:
        """Return whether match and condition hold.

        Raises:
            EvaluationError: The condition cannot be evaluated, or match is undecided.
        """
        return decide(self.program, self.verdict(), self.context)

    def decide_early(
        self, decidable: Callable[[Condition], bool], *, certain: bool = True
    ) -> Decision:
        """Return whether the rule fires and is not excepted, as far as the known data decides.

        Args:
            decidable: Returns whether the known data is enough to evaluate a condition.
            certain: The exceptions are known to exist still.
        """
        matched, condition = self.verdict().decision, self.program.condition
        fires = _early(self.context, decidable, matched, condition, Decision.UNDECIDED)
        if fires is Decision.NO_MATCH or not self.exceptions:
            return fires
        excepted = {
            _early(
                self.context,
                decidable,
                item.match(self.subject),
                item.conditions,
                Decision.NO_MATCH,
            )
            for item in self.exceptions
            if item.triggers
        }
        if certain and Decision.MATCH in excepted:
            return Decision.NO_MATCH
        return fires if excepted <= {Decision.NO_MATCH} else Decision.UNDECIDED

    def excepted(self) -> tuple[str, ...]:
        """Return the keys of the exceptions that keep the rule from the trigger."""
        return excepting(self.exceptions, self.subject, self.context)

    def queries(self) -> tuple[list[TargetQuery], list[EvaluationError]]:
        """Return the queries of the rule's targets, and the errors of targets that fail."""
        targets = self.program.targets
        return ([], []) if targets is None else targets.queries(self.context)

    def excepted_at(
        self, kind: Kind, obj: Mapping[str, Any], namespace_labels: Mapping[str, str]
    ) -> tuple[str, ...]:
        """Return the keys of the exceptions that keep the rule from one of its targets."""
        return excepting_target(self.exceptions, kind, obj, namespace_labels, self.context)

    def change(
        self,
        index: int | None,
        obj: Mapping[str, Any],
        *,
        keys: KeyTable = SHIPPED,
        guarded: frozenset[str] = GUARDED,
    ) -> TargetChange:
        """Return the change of the rule at an object; see `evaluate.change`."""
        return change(self.program, index, self.context, obj, keys=keys, guarded=guarded)


def comes_first(program: Program) -> str:
    """Return why a later rule does not act when `applyRules: One` applies the given rule."""
    return f"rule {program.rule} comes first, and the policy has applyRules: One"


def _early(
    context: Context,
    decidable: Callable[[Condition], bool],
    matched: Decision,
    condition: Condition | None,
    failed: Decision,
) -> Decision:
    if matched is Decision.NO_MATCH or condition is None:
        return matched
    if not decidable(condition):
        return Decision.UNDECIDED
    try:
        return matched if condition.evaluate(context).passed else Decision.NO_MATCH
    except EvaluationError:
        return failed
