"""One rule on one trigger, step by step: what admission, background, desk and explain share.

The steps in their order: match, condition, the exceptions for the trigger, `applyRules: One`,
targets, the exceptions for a target, the change. Each is pure, and may raise `NeedsLoad`: the
driver reads what it asks for and asks again. What is read between two steps, and what becomes of
an answer, is the driver's affair.
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
    """A rule, and the trigger that it is evaluated on.

    Attributes:
        plain: Context of the trigger.
        context: The same with the names of the rule.
        exceptions: Those that concern the rule, as far as they are to be asked.
        known: What match and exclude say of the subject, where somebody has asked before.
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
        """Return a rule on a trigger, given the trigger's context without the rule's names."""
        return cls(
            program=program,
            subject=subject,
            plain=plain,
            context=program.binding.bind(plain),
            exceptions=exceptions,
            known=known,
        )

    def of_rule(self, program: Program) -> Self:
        """Return another rule on the same trigger; of its exceptions nothing is known."""
        return self.of(program, self.subject, self.plain)

    def knowing(
        self, labels: Mapping[str, str], exceptions: Sequence[PolicyException] = ()
    ) -> Self:
        """Return the same with the labels of the trigger's namespace, and exceptions to ask."""
        subject = replace(self.subject, namespace_labels=labels)
        return replace(self, subject=subject, exceptions=exceptions, known=None)

    def verdict(self) -> Verdict:
        """Return what match and exclude say."""
        return self.known or self.program.match.evaluate(self.subject)

    def decide(self) -> TriggerDecision:
        """Return whether match and condition hold.

        Raises:
            EvaluationError: That cannot be evaluated, or something is not known.
        """
        return decide(self.program, self.verdict(), self.context)

    def decide_early(
        self, decidable: Callable[[Condition], bool], *, certain: bool = True
    ) -> Decision:
        """Return whether the rule fires and is not excepted, as far as that is known already.

        Args:
            decidable: Whether what is known is enough for a condition; else it is not evaluated.
            certain: The exceptions are known to be there still.
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
        """Return which objects the rule changes, and the errors of targets that fail."""
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
        """Return what the rule makes of an object; see `evaluate.change`."""
        return change(self.program, index, self.context, obj, keys=keys, guarded=guarded)


def comes_first(program: Program) -> str:
    """Say why a rule does not act where one before it does, and the policy applies only one."""
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
