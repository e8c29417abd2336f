"""A policy on a request, step by step, with the engine's own answers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from reconciler.cli.desk.stock import Stock
from reconciler.cli.explain.conditions import explain_conditions
from reconciler.cli.explain.masking import mask_of
from reconciler.cli.explain.outline import raw_rule
from reconciler.cli.explain.page import FAIL, NO, OPEN, YES, Page
from reconciler.cli.explain.request import POLICY_UPDATE, Request
from reconciler.cli.explain.targets import TargetStory
from reconciler.cli.explain.values import Values
from reconciler.engine.entries import with_entries
from reconciler.engine.evaluate import decide
from reconciler.engine.match import Decision, Subject
from reconciler.engine.match.filters import FILTER_FIELDS, compile_filter
from reconciler.engine.program import CompiledPolicy, Program
from reconciler.errors import RetrofitError
from reconciler.services.loading import Loads

_MATCHED = {True: YES, False: NO, None: OPEN}
_EXCLUDED = {True: (YES[0], NO[1]), False: (NO[0], YES[1]), None: OPEN}


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """Tells why a policy does what it does to a request.

    Attributes:
        policy: The object as written; its rules are quoted.
    """

    policy: Mapping[str, Any]
    compiled: CompiledPolicy
    stock: Stock
    request: Request
    page: Page

    async def tell(self) -> None:
        """Write the whole story."""
        self.page.head(f"{self.compiled.kind} {self.compiled.key}")
        for warning in self.compiled.warnings:
            self.page.inner.answer(OPEN, warning)
        for program in self.compiled.programs:
            await self._rule(program)

    async def _rule(self, program: Program) -> None:
        place = program.origin.location
        self.page.inner.head(f"rule {program.rule} ({place})")
        page = self.page.inner.inner
        raw = raw_rule(self.policy, program)
        subject = self.request.subject(self.stock)
        if not self._matches(program, raw, subject, page):
            return
        loads = Loads(self.stock)
        objects = [*self.stock.objects.values(), self.request.obj]
        mask = mask_of([*objects, *([self.request.old] if self.request.old else [])])
        mask = mask.at(self.request.obj, ("request", "object"), ("request", "oldObject"))
        mask = mask.with_entries(program.entries)
        context = with_entries(loads.of(self.request.context()), program.entries)
        values = Values(loads=loads, context=context, mask=mask)
        await values.tell_entries(program.entries, f"{place}.context", page)
        if program.preconditions is not None:
            await explain_conditions(
                program.preconditions, raw.get("preconditions"), "preconditions", values, page
            )
        try:
            decision = await loads.evaluate(lambda: decide(program, subject, context))
        except RetrofitError as error:
            page.answer(FAIL, f"the rule fails: {mask.text(str(error))}")
            return
        if not decision.fires:
            page.answer(NO, f"the rule does not fire: {mask.text(decision.message)}")
            return
        page.answer(YES, "the rule fires")
        await TargetStory(program=program, raw=raw, stock=self.stock, values=values).tell(page)

    def _matches(
        self, program: Program, raw: Mapping[str, Any], subject: Subject, page: Page
    ) -> bool:
        if self.request.operation == POLICY_UPDATE and not program.on_policy_change:
            page.answer(NO, "mutateExistingOnPolicyUpdate is not true for this rule")
            return False
        location = program.origin.location
        for section in ("match", "exclude"):
            _tell_filters(raw.get(section) or {}, section, location, subject, page)
        verdict = program.matcher.evaluate(subject)
        reasons = "; ".join(verdict.reasons)
        if verdict.decision is Decision.MATCH:
            page.answer(YES, "match and exclude: the rule concerns this request")
            return True
        if verdict.decision is Decision.UNDECIDED:
            cure = "" if subject.namespace_labels is not None else "; give its Namespace in a file"
            page.answer(OPEN, f"match and exclude cannot be decided: {reasons}{cure}")
            return False
        page.answer(NO, f"the rule does not concern this request: {reasons}")
        return False


def _tell_filters(
    block: Mapping[str, Any],
    section: Literal["match", "exclude"],
    location: str,
    subject: Subject,
    page: Page,
) -> None:
    # As in the matcher: match asks for the user only where there is one, exclude always.
    with_user = section == "exclude" or (subject.user is not None and subject.user.known)
    for raw, name in _filters(block, section):
        compiled = compile_filter(
            raw, location=f"{location}.{name}", section=section, user_info=True
        )
        if compiled.empty:
            continue
        answer, reasons = compiled.evaluate(subject, with_user=with_user)
        mark = _EXCLUDED[answer] if section == "exclude" else _MATCHED[answer]
        page.answer(mark, f"{name}{': ' if reasons else ''}{'; '.join(reasons)}")


def _filters(block: Mapping[str, Any], section: str) -> Iterable[tuple[Mapping[str, Any], str]]:
    for form in ("any", "all"):
        for index, item in enumerate(block.get(form) or ()):
            yield item or {}, f"{section}.{form}[{index}]"
    direct = {name: block[name] for name in FILTER_FIELDS if block.get(name)}
    if direct:
        yield direct, section
