"""A step-by-step explanation of a policy for one request, computed by the engine itself."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from reconciler.cli.desk.operations import POLICY_UPDATE, operation_for
from reconciler.cli.desk.request import Request, environment_now
from reconciler.cli.desk.session import NOT_ON_CHANGE
from reconciler.cli.explain.conditions import explain_conditions
from reconciler.cli.explain.details import details_of
from reconciler.cli.explain.items import explain_items
from reconciler.cli.explain.options import Plan
from reconciler.cli.explain.outline import tell_policy, tell_rule, written_at
from reconciler.cli.explain.outline_writer import FAIL, NO, OPEN, YES, OutlineWriter
from reconciler.cli.explain.targets import TargetExplanation
from reconciler.cli.explain.values import Values
from reconciler.cli.output.masking import mask_of
from reconciler.dialects.kubemod.parts import Items
from reconciler.dialects.kyverno.match.filters import FILTER_FIELDS, compile_filter
from reconciler.dialects.kyverno.parts import KyvernoRule
from reconciler.engine.chain import Chain, Step, StepResult
from reconciler.engine.match import Decision, Subject
from reconciler.engine.outcome import RuleStatus
from reconciler.engine.program import CompiledPolicy
from reconciler.engine.run import RuleRun, comes_first
from reconciler.errors import RetrofitError
from reconciler.services.processing.loading import Loads

_OPERATION = "request.operation"
_MATCHED = {True: YES, False: NO, None: OPEN}
_EXCLUDED = {True: (YES[0], NO[1]), False: (NO[0], YES[1]), None: OPEN}


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Explains what a policy does for a request, and why.

    Attributes:
        policy: The policy as written; its rules are quoted.
    """

    policy: Mapping[str, Any]
    compiled: CompiledPolicy
    plan: Plan
    request: Request
    writer: OutlineWriter

    async def tell(self) -> None:
        """Write the whole explanation.

        Raises:
            ClusterError: Reading the trigger's namespace fails, other than for missing rights.
        """
        tell_policy(self.compiled, self.writer)
        labels: Mapping[str, str] | None = {}
        if self.request.namespace:
            labels = await self.plan.object_source.namespace_labels(self.request.namespace)
        obj = self.plan.desk.with_fields(self.compiled.ref.name, self.request.obj)
        chain = Chain(groups=(), obj=obj)
        for program in self.compiled.programs:
            tell_rule(program, self.writer.inner)
            writer = self.writer.inner.inner
            if (earlier := chain.earlier(program)) is not None:
                writer.answer(NO, "decision", f"the rule does not act: {comes_first(earlier)}")
                continue
            step = Step(program=program, seen=chain.obj, obj=chain.obj)
            chain.settle(step.checked(await self._rule(step, labels, writer)))

    async def _rule(
        self, step: Step, labels: Mapping[str, str] | None, writer: OutlineWriter
    ) -> StepResult:
        program, obj = step.program, dict(step.obj)
        given = dict(self.plan.desk.of_trigger(program.origin.policy.name, program.rule, obj))
        operation = operation_for(
            program,
            flag=self.request.operation,
            value=given.pop(_OPERATION, None),
            sent=self.request.user is not None,
        )
        writer.line("operation", f"operation {operation}", operation=operation.name)
        request = replace(self.request, operation=operation.name, obj=obj)
        raw = written_at(self.policy, program.origin.location)
        loads = Loads(self.plan.object_source.objects)
        concerning = [item for item in self.plan.exceptions if item.concerns(program)]
        plain = loads.of(request.context(environment_now(), given))
        subject = request.subject(labels, self.plan.desk.request_kind(obj))
        run = RuleRun.of(program, subject, plain, concerning)
        if not self._matches(run, raw, writer):
            return step.skip("", matched=False)
        objects = [*self.plan.object_source.known, obj, *([request.old] if request.old else [])]
        mask = mask_of(objects)
        mask = mask.at(obj, ("request", "object"), ("request", "oldObject"))
        parts = details_of(program)
        values = Values(loads=loads, context=run.context, mask=mask)
        values = await values.knowing(parts.entries)
        place = f"{program.origin.location}.context"
        await values.tell_entries(parts.entries, place, writer, but=parts.target_entries)
        if parts.preconditions is not None:
            await explain_conditions(parts.preconditions, raw.get("preconditions"), values, writer)
        if isinstance(program.condition, Items):
            await explain_items(program.condition, raw, values, writer)
        if not await self._fires(run, values, writer):
            return step.skip("")
        if program.verdict is not None:
            message = partial(program.verdict.message, run.context)
            return await self._refused(step, message, values, writer)
        targets = TargetExplanation(
            run=run,
            policy=self.policy,
            object_source=self.plan.object_source,
            desk=self.plan.desk,
            values=values,
        )
        if not program.changes_trigger:
            await targets.tell(writer)
            return replace(step.skip(""), fired=True)
        return step.changed(await targets.tell_trigger(writer))

    async def _refused(
        self, step: Step, message: Callable[[], str], values: Values, writer: OutlineWriter
    ) -> StepResult:
        said = await values.get(message)
        text = values.mask.text(str(said))
        if isinstance(said, RetrofitError):
            writer.answer(FAIL, "result", text)
            return step.failed(said)
        writer.answer(FAIL, "result", f"the request is refused: {text}", status=RuleStatus.FAIL)
        return step.refuse(said)

    async def _fires(self, run: RuleRun, values: Values, writer: OutlineWriter) -> bool:
        decision = await values.get(run.decide)
        if isinstance(decision, RetrofitError):
            writer.answer(FAIL, "decision", f"the rule fails: {values.mask.text(str(decision))}")
            return False
        if not decision.fires:
            text = values.mask.text(decision.message)
            writer.answer(NO, "decision", f"the rule does not fire: {text}")
            return False
        for item in run.exceptions:
            if not item.triggers:
                continue
            # The values that its conditions read are not shown: they may be secret.
            keys = await values.get(replace(run, exceptions=(item,)).excepted)
            holds = keys == (item.key,)
            mark = (YES[0], NO[1]) if holds else (NO[0], YES[1])
            writer.answer(mark, "exception", f"PolicyException {item.key}", exception=item.key)
            if holds:
                text = "the rule does not fire: an exception is made for this object"
                writer.answer(NO, "decision", text)
                return False
        if self.plan.filters and (reason := self.plan.filters.why_excluded(run.subject)):
            writer.answer(NO, "decision", f"the rule does not fire: {reason}")
            return False
        writer.answer(YES, "decision", "the rule fires")
        return True

    def _matches(self, run: RuleRun, raw: Mapping[str, Any], writer: OutlineWriter) -> bool:
        program, subject = run.program, run.subject
        if subject.operation == POLICY_UPDATE and not program.on_policy_change:
            writer.answer(NO, "decision", NOT_ON_CHANGE)
            return False
        location = program.origin.location
        for section in ("match", "exclude") if isinstance(program.mutation, KyvernoRule) else ():
            _tell_filters(raw.get(section) or {}, section, location, subject, writer)
        verdict = run.verdict()
        reasons = "; ".join(verdict.reasons)
        if verdict.decision is Decision.MATCH:
            writer.answer(YES, "match", "match and exclude: the rule concerns this request")
            return True
        if verdict.decision is Decision.UNDECIDED:
            cure = "" if subject.namespace_labels is not None else self.plan.object_source.cure
            text = f"match and exclude cannot be decided: {reasons}{cure}"
            writer.answer(OPEN, "decision", text)
            return False
        writer.answer(NO, "decision", f"the rule does not concern this request: {reasons}")
        return False


def _tell_filters(
    block: Mapping[str, Any],
    section: Literal["match", "exclude"],
    location: str,
    subject: Subject,
    writer: OutlineWriter,
) -> None:
    # As in the matcher: match considers the user only where one is known, exclude always.
    with_user = section == "exclude" or (subject.user is not None and subject.user.known)
    for raw, name in _filters(block, section):
        compiled = compile_filter(
            raw, location=f"{location}.{name}", section=section, user_info=True
        )
        if compiled.empty:
            continue
        answer, reasons = compiled.evaluate(subject, with_user=with_user)
        mark = _EXCLUDED[answer] if section == "exclude" else _MATCHED[answer]
        text = f"{name}{': ' if reasons else ''}{'; '.join(reasons)}"
        writer.answer(mark, "filter", text, place=name, reasons=list(reasons))


def _filters(block: Mapping[str, Any], section: str) -> Iterable[tuple[Mapping[str, Any], str]]:
    for form in ("any", "all"):
        for index, item in enumerate(block.get(form) or ()):
            yield item or {}, f"{section}.{form}[{index}]"
    direct = {name: block[name] for name in FILTER_FIELDS if block.get(name)}
    if direct:
        yield direct, section
