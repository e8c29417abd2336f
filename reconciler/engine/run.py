"""One rule on one trigger, step by step: what admission, background, desk and explain share.

Each step is pure, and may raise `NeedsLoad`: the driver reads what it asks for and asks again.
What the steps need of the world stands in the run; in which order they are taken, and what is
read between them, is the driver's affair.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from reconciler.api.meta import Kind
from reconciler.engine.context import Context
from reconciler.engine.evaluate import GUARDED, change, decide
from reconciler.engine.exceptions import PolicyException, excepting, excepting_target
from reconciler.engine.match import Subject
from reconciler.engine.outcome import TargetChange, TriggerDecision
from reconciler.engine.patch import SHIPPED, KeyTable
from reconciler.engine.program import Program


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleRun:
    """A rule, and the trigger that it is evaluated on.

    Attributes:
        context: Of the trigger, with the names of the rule.
        exceptions: Those that concern the rule.
    """

    program: Program
    subject: Subject
    context: Context
    exceptions: Sequence[PolicyException] = ()

    @classmethod
    def of(
        cls,
        program: Program,
        subject: Subject,
        context: Context,
        exceptions: Sequence[PolicyException] = (),
    ) -> Self:
        """Return a rule on a trigger, given the trigger's context without the rule's names."""
        return cls(
            program=program,
            subject=subject,
            context=program.binding.bind(context),
            exceptions=exceptions,
        )

    def decide(self) -> TriggerDecision:
        """Return whether match and condition hold.

        Raises:
            EvaluationError: That cannot be evaluated, or something is not known.
        """
        return decide(self.program, self.subject, self.context)

    def excepted(self) -> tuple[str, ...]:
        """Return the keys of the exceptions that keep the rule from the trigger."""
        return excepting(self.exceptions, self.subject, self.context)

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
