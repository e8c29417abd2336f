"""Checks that may keep a rule from its trigger, or from one of its targets.

They are match and conditions, PolicyExceptions, and in a policy with ``applyRules: One`` the rules
that come first. The last two are evaluated only where they exist, and cost other rules nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from reconciler.api.meta import Kind
from reconciler.api.updaterequest import Reason, RequestSpec, Source
from reconciler.engine.exceptions import PolicyException, skipped
from reconciler.engine.program import Phase, Program
from reconciler.engine.run import RuleRun, comes_first
from reconciler.errors import EvaluationError
from reconciler.requests.draft import keeps
from reconciler.requests.lifecycle import Skip
from reconciler.services.catalog.exceptions import ExceptionIndex
from reconciler.services.catalog.protection import standing
from reconciler.services.processing.lanes import Exempt
from reconciler.services.processing.loading import Loads
from reconciler.services.processing.trigger import TriggerReader


@dataclass(frozen=True, slots=True, kw_only=True)
class Eligibility:
    """Decides from data in memory, and reads labels of namespaces only if a match needs them.

    Attributes:
        triggers: Reads for the rule, as the account of its policy.
        namespaces: Reads for exceptions, which do not belong to the policy.
    """

    triggers: TriggerReader
    namespaces: TriggerReader
    exceptions: ExceptionIndex

    async def skip_reason(self, spec: RequestSpec, run: RuleRun, loads: Loads) -> Skip | None:
        """Return why a rule does not act on its trigger, None where it does.

        Raises:
            EvaluationError: An expression, such as a precondition, cannot be evaluated.
            ClusterError: A read that the decision needs failed.
            Interrupted: The evaluation was ended before a decision.
        """
        if Phase.EXISTING in run.program.phases and (reason := standing(run.subject)):
            return Skip(reason=Reason.NO_MATCH, message=reason)
        decision = await loads.evaluate(run.decide)
        if not decision.fires:
            message = f"the trigger no longer matches the rule: {decision.message}"
            return Skip(reason=Reason.NO_MATCH, message=message)
        await self.exceptions.caught_up()
        if keys := await self._excepted(spec, run, loads):
            return Skip(reason=Reason.EXCEPTED, message=skipped(keys))
        for earlier in _before(spec, run.program):
            if await self._fires(spec, run.of_rule(earlier), loads):
                return Skip(reason=Reason.OTHER_RULE, message=comes_first(earlier))
        return None

    def exempt(self, run: RuleRun, loads: Loads) -> Exempt | None:
        """Return a function that finds the exceptions of a target, None where there are none."""
        concerned = [item for item in self.exceptions.of(run.program) if item.targets]
        if not concerned:
            return None
        asked = replace(run, exceptions=concerned)

        async def why(kind: Kind, obj: Mapping[str, Any]) -> str:
            namespace = (obj.get("metadata") or {}).get("namespace", "")
            labels = await self._labels(concerned, namespace)
            keys = await loads.evaluate(lambda: asked.excepted_at(kind, obj, labels))
            return skipped(keys) if keys else ""

        return why

    async def _fires(self, spec: RequestSpec, run: RuleRun, loads: Loads) -> bool:
        if run.program.match.needs.namespace_labels:
            run = run.knowing(await self.triggers.namespace_labels(run.subject.namespace))
        try:
            decision = await loads.evaluate(run.decide)
        except EvaluationError:
            return False  # Its own request reports the error, and it changes nothing.
        return decision.fires and not await self._excepted(spec, run, loads)

    async def _excepted(self, spec: RequestSpec, run: RuleRun, loads: Loads) -> tuple[str, ...]:
        # An exception on fields that the request does not keep can be decided only at admission.
        concerned = [
            item
            for item in self.exceptions.of(run.program)
            if item.triggers and keeps(spec, run.program, item.projection)
        ]
        if not concerned:
            return ()
        labels = await self._labels(concerned, run.subject.namespace)
        return await loads.evaluate(run.knowing(labels, concerned).excepted)

    async def _labels(
        self, exceptions: Sequence[PolicyException], namespace: str
    ) -> Mapping[str, str]:
        if any(item.matcher.needs.namespace_labels for item in exceptions):
            return await self.namespaces.namespace_labels(namespace)
        return {}


def _before(spec: RequestSpec, program: Program) -> Iterable[Program]:
    if spec.source is not Source.ADMISSION:
        return program.before
    # Admission decided on the other rules, on the object as the request left it.
    return [item for item in program.before if item.rule in spec.unless]
