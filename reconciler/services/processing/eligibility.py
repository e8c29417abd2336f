"""What keeps a rule that fires from its trigger, or from one of its targets.

PolicyExceptions, and in a policy with ``applyRules: One`` a rule that comes first. Both are asked
only where they exist, so that a rule without them costs nothing more.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from reconciler.api.meta import Kind
from reconciler.api.updaterequest import Reason, RequestSpec, Source
from reconciler.engine.context import Context
from reconciler.engine.evaluate import decide
from reconciler.engine.exceptions import PolicyException, excepting, excepting_target, skipped
from reconciler.engine.match import Subject
from reconciler.engine.program import Program
from reconciler.errors import EvaluationError
from reconciler.requests.draft import keeps
from reconciler.requests.lifecycle import Skip
from reconciler.services.catalog.exceptions import ExceptionIndex
from reconciler.services.processing.lanes import Exempt
from reconciler.services.processing.loading import Loads
from reconciler.services.processing.trigger import TriggerReader


@dataclass(frozen=True, slots=True, kw_only=True)
class Eligibility:
    """Decides with what is in memory; reads only the labels of namespaces that are asked for.

    Attributes:
        triggers: Reads for the rule, in its policy's name.
        namespaces: Reads for exceptions, which are not the policy's.
    """

    triggers: TriggerReader
    namespaces: TriggerReader
    exceptions: ExceptionIndex

    async def skip_reason(
        self, spec: RequestSpec, program: Program, subject: Subject, context: Context, loads: Loads
    ) -> Skip | None:
        """Return why a rule that fires shall not act, None where it shall.

        Args:
            spec: The request.
            program: Its rule.
            subject: The trigger.
            context: Of the trigger, without entries of the rule.
            loads: What context entries read.
        """
        if keys := await self._excepted(spec, program, subject, context, loads):
            return Skip(reason=Reason.EXCEPTED, message=skipped(keys))
        for earlier in self._before(spec, program):
            if await self._fires(spec, earlier, subject, context, loads):
                message = f"rule {earlier.rule} comes first, and the policy has applyRules: One"
                return Skip(reason=Reason.OTHER_RULE, message=message)
        return None

    def exempt(self, program: Program, context: Context, loads: Loads) -> Exempt | None:
        """Return what tells the exceptions of a target, None where there can be none.

        Args:
            program: The rule.
            context: Of the trigger, with the rule's entries.
            loads: What context entries read.
        """
        concerned = [item for item in self.exceptions.of(program) if item.targets]
        if not concerned:
            return None

        async def why(kind: Kind, obj: Mapping[str, Any]) -> str:
            namespace = (obj.get("metadata") or {}).get("namespace", "")
            labels = await self._labels(concerned, namespace)
            keys = await loads.evaluate(
                lambda: excepting_target(concerned, kind, obj, labels, context)
            )
            return skipped(keys) if keys else ""

        return why

    def _before(self, spec: RequestSpec, program: Program) -> Iterable[Program]:
        if spec.source is not Source.ADMISSION:
            return program.before
        # Admission decided on the others, when the object was what the request made it.
        return [item for item in program.before if item.rule in spec.unless]

    async def _fires(
        self, spec: RequestSpec, program: Program, subject: Subject, context: Context, loads: Loads
    ) -> bool:
        if program.match.needs.namespace_labels:
            labels = await self.triggers.namespace_labels(subject.namespace)
            subject = replace(subject, namespace_labels=labels)
        known = program.binding.bind(context)
        try:
            decision = await loads.evaluate(lambda: decide(program, subject, known))
        except EvaluationError:
            return False  # Its own request says so, and it acts on nothing.
        return decision.fires and not await self._excepted(spec, program, subject, context, loads)

    async def _excepted(
        self, spec: RequestSpec, program: Program, subject: Subject, context: Context, loads: Loads
    ) -> tuple[str, ...]:
        # What an exception reads and the request does not keep was there at admission only.
        concerned = [
            item
            for item in self.exceptions.of(program)
            if item.triggers and keeps(spec, program, item.projection)
        ]
        if not concerned:
            return ()
        asked = replace(subject, namespace_labels=await self._labels(concerned, subject.namespace))
        known = program.binding.bind(context)
        return await loads.evaluate(lambda: excepting(concerned, asked, known))

    async def _labels(
        self, exceptions: Sequence[PolicyException], namespace: str
    ) -> Mapping[str, str]:
        if any(item.matcher.needs.namespace_labels for item in exceptions):
            return await self.namespaces.namespace_labels(namespace)
        return {}
