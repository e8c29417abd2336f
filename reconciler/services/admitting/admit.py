"""Evaluation of all rules of one webhook call, before the object is stored.

The API server waits, so everything is bounded: a deadline for all reads, and an allowance for each
rule and for all of them. Each rule sees the changes of the rules before it, in policy order. The
response is a single patch from the original object to the result. The patch is kept short, because
the API server takes time for each operation (measured on a Pod: 1.2 ms for 50 labels added one by
one, 0.6 ms for all labels at once).
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from reconciler.api.account import ServiceAccount
from reconciler.api.meta import Object
from reconciler.clock import Clock, Deadline
from reconciler.engine.allowance import BRIEF_STEPS, Allowance, Exhausted
from reconciler.engine.chain import Chain, Step, StepResult, by_policy
from reconciler.engine.context import Context
from reconciler.engine.environment import environment_entry
from reconciler.engine.exceptions import PolicyException
from reconciler.engine.loads import GlobalLoad, Load
from reconciler.engine.match import Decision, Subject, Verdict
from reconciler.engine.match.scopes import Pair
from reconciler.engine.match.subject import labels_of
from reconciler.engine.outcome import RuleStatus
from reconciler.engine.patch import json_diff
from reconciler.engine.program import FAIL, Program
from reconciler.engine.run import RuleRun
from reconciler.errors import ClusterError, EvaluationError, Forbidden, RetrofitError, Unavailable
from reconciler.requests.admission import context_of
from reconciler.requests.draft import MOST_LEVELS, AdmissionRequest
from reconciler.services.admitting.growth import Growth
from reconciler.services.admitting.turn import ReadingTurn
from reconciler.services.ports.objects import Loader
from reconciler.services.processing.loading import Loads, StepLimits
from reconciler.services.processing.memory_budget import Readings
from reconciler.values import value_class

LIMITS: Final = StepLimits(evaluation=200_000, trigger=4_000_000, shared=True)
"""About 2 ms for a rule and 50 ms for a whole request, because the client waits for them."""


class Reason(StrEnum):
    """Why a rule could not be applied."""

    EVALUATION = "evaluation"
    READ = "read"
    DEADLINE = "deadline"


@value_class(frozen=True, slots=True, kw_only=True)
class Failure:
    """A rule that could not be applied.

    Attributes:
        text: The message for the sender of the request, with the place and the error.
        bare: The same message without any value of an object.
    """

    program: Program
    reason: Reason
    text: str
    bare: str


@value_class(frozen=True, slots=True, kw_only=True)
class Admitted:
    """The result of the rules that change an object.

    Attributes:
        patch: The RFC 6902 operations, in order.
        failures: With ``Fail``, the failure that refuses the request. With ``Ignore``, the
            failures whose policies were left out as a whole.
    """

    patch: Sequence[Mapping[str, Any]] = ()
    changed: Sequence[StepResult] = ()
    failures: Sequence[Failure] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The verdict of the rules on an object."""

    refusals: Sequence[StepResult] = ()
    failures: Sequence[Failure] = ()

    @property
    def message(self) -> str:
        """Return the message for the sender: the text of all refusals, grouped by heading."""
        sorts: dict[str, list[str]] = {}
        for item in self.refusals:
            heading = "" if item.program.verdict is None else item.program.verdict.heading
            sorts.setdefault(heading, []).append(item.message)
        parts = (f"{heading} {', '.join(texts)}".strip() for heading, texts in sorts.items())
        return "; ".join(parts)


@value_class(frozen=True, slots=True, kw_only=True)
class Question:
    """An object that is about to be stored, and the rules that may change it.

    Attributes:
        subject: The subject with the object as received; on DELETE, the old object.
        programs: The rules of policies with this failure policy, in the order of each policy.
        further: Called with labels that rules added to the object. If these labels may select
            rules that are not in ``programs``, it returns all rules, else none. None if
            ``programs`` does not depend on labels.
    """

    request: AdmissionRequest
    subject: Subject
    programs: Sequence[Program]
    failure_policy: str
    exceptions: Callable[[Program], Sequence[PolicyException]]
    further: Callable[[Iterable[Pair]], Sequence[Program]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Admit:
    """Evaluates the rules of a `Question`.

    Attributes:
        loader: Reads for context entries, with the account of this program.
        readings: The bytes that all questions together may read at the same time.
    """

    loader: Loader
    clock: Clock
    randbelow: Callable[[int], int]
    limits: StepLimits = LIMITS
    readings: Readings = field(default_factory=Readings)

    async def run(self, question: Question, deadline: Deadline) -> Admitted:
        """Return how the rules change an object; a rule that fails changes nothing."""
        original = question.request.object
        if original is None or not question.programs:
            return Admitted()
        with closing(_Work(admit=self, question=question, deadline=deadline)) as work:
            admitted = await self._apply(work, original, question.programs)
            # Rules not looked up may match the changed object and precede those that ran.
            further = question.further
            if further is not None and work.given and (programs := further(work.given)):
                return await self._apply(work, original, programs)
            return admitted

    async def _apply(
        self, work: "_Work", original: Object, programs: Sequence[Program]
    ) -> Admitted:
        question = work.question
        chain = Chain(groups=by_policy(programs), obj=original)
        failures: list[Failure] = []
        for step in chain.steps():
            verdict = work.verdict(step)
            if verdict is not None and verdict.decision is Decision.NO_MATCH:
                continue
            result, failure = await work.take(step, verdict)
            chain.settle(result)
            if question.further is not None:
                work.note_labels(step, result)
            if failure is None:
                continue
            failures.append(failure)
            if question.failure_policy == FAIL:
                return Admitted(failures=failures)
            chain.leave_out(failure.program.origin.policy)
        changed = [
            item
            for item in chain.results
            if item.status is RuleStatus.PASS
            and not (chain.left_out and item.policy in chain.left_out)
        ]
        # Most rules do not change most objects, so the diff is rarely needed.
        patch = json_diff(original, chain.obj, folded=True) if changed else ()
        return Admitted(patch=patch, changed=changed, failures=failures)

    async def judge(self, question: Question, deadline: Deadline) -> Judgement:
        """Return which rules refuse an object; a failing rule does not stop the others."""
        chain = Chain(groups=by_policy(question.programs), obj=question.subject.obj)
        refusals: list[StepResult] = []
        failures: list[Failure] = []
        with closing(_Work(admit=self, question=question, deadline=deadline)) as work:
            for step in chain.steps():
                verdict = work.verdict(step)
                if verdict is not None and verdict.decision is Decision.NO_MATCH:
                    continue
                result, failure = await work.take(step, verdict)
                chain.settle(result)
                if failure is not None:
                    failures.append(failure)
                elif result.status is RuleStatus.FAIL:
                    refusals.append(result)
        return Judgement(refusals=refusals, failures=failures)


@dataclass(slots=True, kw_only=True)
class _Work:
    """The evaluation of one question.

    Attributes:
        reads: The data read so far, by the account that it was read as.
        given: Labels that rules have added to the object so far.
    """

    admit: Admit
    question: Question
    deadline: Deadline
    reads: dict[ServiceAccount | None, "_Reads"] = field(default_factory=dict)
    given: set[Pair] = field(default_factory=set)
    turn: ReadingTurn = field(init=False)
    _context: Context = field(init=False)
    _subject: Subject | None = None
    _growth: Growth | None = None
    _spent: int = 0

    def __post_init__(self) -> None:
        environment = environment_entry(now=self.admit.clock.now(), randbelow=self.admit.randbelow)
        context = context_of(self.question.request, self.question.subject)
        self._context = context.bind(**environment)
        self.turn = ReadingTurn(
            readings=self.admit.readings,
            deadline=self.deadline,
            namespace=self.question.request.namespace,
        )

    def close(self) -> None:
        """Forget what was read, and let other questions read."""
        for item in self.reads.values():
            item.loads.drop()
        self.turn.end()

    async def take(self, step: Step, verdict: Verdict | None) -> tuple[StepResult, Failure | None]:
        """Return the result of the next rule, and the failure if it could not be applied."""
        self.turn.evaluates(step.program)
        reads = self._reads_of(step.program)
        loads = reads.loads
        before = loads.left
        try:
            result = await loads.evaluate(self._evaluation(step, verdict, reads))
        except TimeoutError:
            text = self.turn.too_late()
            return self._failed(step, Reason.DEADLINE, Unavailable(text).bare(text), loads)
        except ClusterError as error:
            # The task that read keeps its error. With a traceback, both would keep the object.
            return self._failed(step, Reason.READ, error.with_traceback(None), loads)
        except RetrofitError as error:
            return self._failed(step, Reason.EVALUATION, error, loads)
        finally:
            self._spent += before - loads.left
            if self._spent >= BRIEF_STEPS:
                # Let other requests proceed after a long evaluation.
                self._spent = 0
                await asyncio.sleep(0)
        result = step.checked(result)
        if result.status is RuleStatus.ERROR:
            return result, self._failure(step, Reason.EVALUATION, result, loads)
        if fault := self._fault(step, result):
            return self._failed(step, Reason.EVALUATION, EvaluationError(fault), loads)
        return result, None

    def note_labels(self, step: Step, result: StepResult) -> None:
        """Record the labels that a rule added to the object."""
        before, after = labels_of(step.obj), labels_of(result.after)
        if before is not after:
            self.given |= after.items() - before.items()

    def _fault(self, step: Step, result: StepResult) -> str:
        """Return why the result of a rule cannot be stored, empty if it can."""
        if result.status is not RuleStatus.PASS:
            return ""
        if self._growth is None:
            self._growth = Growth(self.question.request.object or {})
        return self._growth.fault(step.obj, result.after)

    def verdict(self, step: Step) -> Verdict | None:
        """Return the verdict of match and exclude, None if it exceeds the allowance.

        Most policies that name a kind do not match the object. Matching first avoids the cost of
        preparing an evaluation for those.
        """
        try:
            return step.program.match.evaluate(self._subject_of(step.seen))
        except Exhausted:
            return None

    def _subject_of(self, obj: Mapping[str, Any]) -> Subject:
        if self._subject is None or self._subject.obj is not obj:
            allowance = Allowance(self.admit.limits.trigger)
            self._subject = self.question.subject.with_object(obj, allowance)
        return self._subject

    def _evaluation(
        self, step: Step, verdict: Verdict | None, reads: "_Reads"
    ) -> Callable[[], StepResult]:
        exceptions = self.question.exceptions(step.program)
        subject = self._subject_of(step.seen)
        if exceptions or verdict is None:
            # Here the subject is matched again, which counts against the rule's allowance.
            subject = self.question.subject.with_object(step.seen, reads.loads.allowance)

        def run_on(obj: Mapping[str, Any]) -> RuleRun:
            context = reads.context.with_object(obj)
            if obj is not step.seen:
                # The decision was made on another object; this run only changes this one.
                return RuleRun.of(step.program, subject, context)
            reads.context = context
            return RuleRun.of(step.program, subject, context, exceptions, verdict)

        def work() -> StepResult:
            if self.question.request.cut and run_on(step.seen).decide().fires:
                msg = f"the object is nested more deeply than {MOST_LEVELS} levels"
                raise EvaluationError(msg).bare(msg)
            return step.evaluate(run_on)

        return work

    def _reads_of(self, program: Program) -> "_Reads":
        account = program.origin.account
        reads = self.reads.get(account)
        if reads is None:
            loader = self.admit.loader
            loader = loader if account is None else _Unreadable(account, loader)
            loads = Loads(
                loader,
                limits=self.admit.limits,
                deadline=self.deadline,
                count=self.turn.count,
                turn=self.turn.take,
            )
            reads = self.reads[account] = _Reads(loads, loads.of(self._context))
        return reads

    def _failed(
        self, step: Step, reason: Reason, error: RetrofitError, loads: Loads
    ) -> tuple[StepResult, Failure]:
        result = step.failed(error)
        return result, self._failure(step, reason, result, loads)

    def _failure(self, step: Step, reason: Reason, result: StepResult, loads: Loads) -> Failure:
        origin = step.program.origin
        place = f"policy {origin.policy.key} rule {origin.rule}: {origin.location}"
        bare = f"{place}: {result.bare or result.message}"
        # The sender of the request may not be allowed to read the data that was loaded.
        text = bare if loads.has_data else f"{place}: {result.message}"
        return Failure(program=step.program, reason=reason, text=text, bare=bare)


@dataclass(slots=True)
class _Reads:
    """The reads of the rules of one account, and their context.

    Attributes:
        context: The context with the reads and the object that the rules are matched on.
    """

    loads: Loads
    context: Context


@dataclass(frozen=True, slots=True)
class _Unreadable:
    """A loader for policies with an account of their own, which refuses all other reads.

    Only GlobalContextEntries can be read, because their data is shared by all rules.
    """

    account: ServiceAccount
    shared: Loader

    async def load(self, load: Load) -> Any:
        """Return the data of a global entry; refuse everything else."""
        if isinstance(load, GlobalLoad):
            return await self.shared.load(load)
        raise Forbidden(
            f"the policy works as {self.account}, and nothing is read as that account before an"
            " object is stored: let the rule read only GlobalContextEntries, or remove the account"
            " from the policy",
            permission="",
        )
