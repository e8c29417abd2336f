"""One attempt at a request: reads its policy, trigger and targets, and decides how it ends.

The lanes write the targets, and the caller stores the status. Every end of an attempt is a
`Disposition`, so the status always explains it.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Self

from reconciler.api.account import ServiceAccount
from reconciler.api.meta import TargetKey
from reconciler.api.updaterequest import (
    SUCCESSES,
    Counts,
    Outcome,
    Reason,
    RequestSpec,
    RequestStatus,
    Source,
    SweepProgress,
    TargetStatus,
    UpdateRequest,
)
from reconciler.engine.itself import for_trigger
from reconciler.engine.match import Verdict
from reconciler.engine.program import Program
from reconciler.engine.run import RuleRun
from reconciler.errors import (
    ClusterError,
    EvaluationError,
    Interrupted,
    InvalidPolicy,
    NotFound,
    Unreadable,
)
from reconciler.requests.confirmation import Presence
from reconciler.requests.lifecycle import (
    Disposition,
    Done,
    Fail,
    Retry,
    Skip,
    merge_targets,
    shorten,
)
from reconciler.requests.rebuild import why_not_rebuildable
from reconciler.requests.redaction import said
from reconciler.requests.schedule import Backoff
from reconciler.services.catalog.exceptions import ExceptionIndex
from reconciler.services.catalog.policy_store import PolicyStore
from reconciler.services.ports.objects import RuleLoader
from reconciler.services.ports.policies import Policies
from reconciler.services.processing.eligibility import Eligibility
from reconciler.services.processing.fairness import tenant_of
from reconciler.services.processing.lanes import Job, Lanes
from reconciler.services.processing.loading import EvaluationOwner, Loads, LongEvaluations
from reconciler.services.processing.memory_budget import Count, InFlight
from reconciler.services.processing.pacing import Pacer
from reconciler.services.processing.results import TargetResult, failure
from reconciler.services.processing.selection import TargetFinder
from reconciler.services.processing.target_status import (
    earlier,
    ended,
    identity_of,
    nameable,
    statuses_of,
)
from reconciler.services.processing.trigger import Malformed, Trigger, TriggerReader, trigger_gone
from reconciler.values import value_class

DENIALS = 10
"""Attempts at a target that another admission webhook refuses."""
_OF_TARGET = {
    Outcome.NOT_FOUND: Reason.TARGET_NOT_FOUND,
    Outcome.INVALID: Reason.TARGET_INVALID,
    Outcome.DENIED: Reason.TARGET_DENIED,
}
"""The reason of a failed request, by the outcome of its first target that did not succeed."""


@value_class(frozen=True, slots=True, kw_only=True)
class Attempt:
    """The result of one attempt.

    Attributes:
        targets: All results so far, those of earlier attempts included; empty where the attempt
            did not reach the targets.
        counts: Set where ``targets`` holds only a part of the results.
    """

    disposition: Disposition
    targets: tuple[TargetStatus, ...] = ()
    counts: Counts | None = None
    sweep: SweepProgress | None = None

    def news(self, status: RequestStatus) -> list[TargetStatus]:
        """Return the results that an earlier status does not list."""
        known = frozenset(status.targets)
        return [item for item in self.targets if item not in known]


@dataclass(frozen=True, slots=True, kw_only=True)
class Processor:
    """Processes requests and keeps no state of its own.

    Attributes:
        pacer: Defers requests by the limits of their policies.
        long_evaluations: Runs long evaluations; None where no other work waits for this process.
        is_excluded: Returns whether the settings exclude a target.
        controller_users: Full names of the users whose requests are the controller's own.
        account: The account that all reads are made as; None for the account of the ports.
    """

    index: PolicyStore
    policies: Policies
    finder: TargetFinder
    triggers: TriggerReader
    lanes: Lanes
    loader: RuleLoader
    backoff: Backoff
    pacer: Pacer
    exceptions: ExceptionIndex = field(default_factory=ExceptionIndex)
    long_evaluations: LongEvaluations | None = None
    is_excluded: Callable[[TargetKey], bool] = lambda _key: False
    controller_users: tuple[str, ...] = ()
    account: ServiceAccount | None = None

    def acting_as(self, account: ServiceAccount | None) -> Self:
        """Return the processor that acts as an account."""
        return self if account == self.account else replace(self, account=account)

    @property
    def reading(self) -> TriggerReader:
        """Return the reader of triggers, which acts as the same account."""
        return self.triggers.acting_as(self.account)

    @property
    def eligibility(self) -> Eligibility:
        """Return the eligibility checks, which read for rules as the same account."""
        return Eligibility(
            triggers=self.reading, namespaces=self.triggers, exceptions=self.exceptions
        )

    @property
    def flight(self) -> InFlight:
        """Return the memory budgets of this process."""
        return self.lanes.flight

    async def attempt(
        self, request: UpdateRequest, jitter: float, *, claim: Callable[[], str] = str
    ) -> Attempt | None:
        """Work on a request once; return None if its triggering request is not stored yet.

        Args:
            jitter: A number within [0, 1) that spreads the next attempt.
            claim: Called once the trigger is known to be stored. Returns the name of the request
                that does this work, or an empty name where no other request can.
        """
        program: Program | Skip | Fail | Retry
        try:
            program = await self.program(request.spec)
        except ClusterError as error:
            program = self.retry(request, failure(error), jitter)
        if not isinstance(program, Program):
            return Attempt(disposition=program)
        ref = request.spec.resource
        if reason := self.lanes.protection.of_trigger(ref.kind, ref.namespace):
            return Attempt(disposition=Fail(reason=Reason.TRIGGER_REFUSED, message=reason))
        if (held := self.pacer.closed(request.spec.policy)) is not None:
            return Attempt(disposition=held)
        resource = f"{ref.api_version}/{ref.kind}"
        processor = self.acting_as(program.origin.account)
        size, tenant = self.flight.expected(resource), tenant_of(request.spec)
        async with self.flight.triggers.hold(size, tenant) as hold:
            trigger = await processor._read(request, program, jitter)  # noqa: SLF001 - its own class
            if trigger is Presence.WAITING:
                return None
            if not isinstance(trigger, Trigger):
                return Attempt(disposition=trigger)
            hold.resize(self.flight.weigh(resource, trigger.subject.obj))
            if (owner := claim()) not in ("", request.name):
                same = Skip(reason=Reason.SAME_AS_OTHER, message=f"same as {owner}")
                return Attempt(disposition=same)
            if (held := self.pacer.turn(request.spec.policy, request.name)) is not None:
                return Attempt(disposition=held)
            return await processor.apply(request, program, trigger, jitter)

    async def _read(
        self, request: UpdateRequest, program: Program, jitter: float
    ) -> Trigger | Literal[Presence.WAITING] | Disposition:
        try:
            trigger = await self.reading.read(request, program)
        except NotFound as error:
            message = f"the recorded data of the trigger was removed: {error}"
            return Fail(reason=Reason.RECORD_GONE, message=message)
        except Unreadable as error:
            return Fail(reason=Reason.TOO_DEEP, message=str(error))
        except Malformed as error:
            return Fail(reason=Reason.MALFORMED_REQUEST, message=f"{error}; delete the request")
        except ClusterError as error:
            return self.retry(request, failure(error), jitter)
        except RecursionError:
            message = "the trigger, or its recorded data, is nested too deeply"
            return Fail(reason=Reason.TOO_DEEP, message=message)
        return trigger_gone(request.spec.resource) if trigger is Presence.GONE else trigger

    async def apply(
        self,
        request: UpdateRequest,
        program: Program,
        trigger: Trigger,
        jitter: float,
        known: Verdict | None = None,
    ) -> Attempt:
        """Evaluate a rule on a stored trigger and change its targets, as its policy's account.

        Args:
            jitter: A number within [0, 1) that spreads the next attempt.
            known: The verdict of match and exclude on the trigger, where the caller has it.
        """
        if program.origin.account != self.account:
            return await self.acting_as(program.origin.account).apply(
                request, program, trigger, jitter, known
            )
        spec = request.spec
        rule, tenant = f"{spec.policy} {spec.rule}", tenant_of(spec)
        async with self.flight.loaded.reading(rule, tenant) as count:
            loads = self.loads(spec, confidential=trigger.confidential, count=count)
            try:
                return await self._apply(
                    request, program, trigger, jitter, known=known, loads=loads
                )
            finally:
                loads.drop()

    async def _apply(
        self,
        request: UpdateRequest,
        program: Program,
        trigger: Trigger,
        jitter: float,
        *,
        known: Verdict | None,
        loads: Loads,
    ) -> Attempt:
        subject = replace(trigger.subject, allowance=loads.allowance)
        program = for_trigger(program, subject)
        named = frozenset({"", subject.namespace, program.origin.namespace})
        run = RuleRun.of(program, subject, loads.of(trigger.context), known=known)
        try:
            closed = await self.eligibility.skip_reason(request.spec, run, loads)
        except EvaluationError as error:
            message = said(error, confidential=loads.confidential)
            return Attempt(disposition=Fail(reason=Reason.EVALUATION_FAILED, message=message))
        except (ClusterError, Interrupted) as error:
            retry = self.retry(request, _redacted(failure(error), loads, named), jitter)
            return Attempt(disposition=retry, targets=request.status.targets)
        if closed is not None:
            return Attempt(disposition=closed)
        exempt = self.eligibility.exempt(run, loads)
        done = ended(request.status)
        with self.flight.kept.byte_allowance() as byte_allowance:
            finder = self.finder.acting_as(self.account)
            selection = await finder.select(run, loads, byte_allowance)
            chosen = [item for item in selection.found if identity_of(item.key) not in done]
            results = await asyncio.gather(
                *(
                    self._change(
                        item.key,
                        Job(
                            request=request.name,
                            created=request.created,
                            run=run,
                            query=item.query,
                            loads=loads,
                            listed=item.obj,
                            exempt=exempt,
                            caused_by=self._caused_by(request.spec),
                            named=named | nameable(item, program),
                            tenant=tenant_of(request.spec),
                        ),
                    )
                    for item in chosen
                )
            )
        found = zip(chosen, results, strict=True)
        statuses = statuses_of(found, program, confidential=loads.confidential)
        targets = merge_targets(earlier(request.status, selection, statuses), statuses)
        outcomes = (*results, *(_redacted(item, loads, named) for item in selection.failures))
        errors = [said(error, confidential=loads.confidential) for error in selection.errors]
        disposition = self._conclude(request, targets, outcomes, errors, jitter)
        return Attempt(disposition=disposition, targets=targets)

    def loads(
        self, spec: RequestSpec, *, confidential: bool = False, count: Count = lambda _: None
    ) -> Loads:
        """Return the reads and the step limits of an attempt at a request."""
        owner = EvaluationOwner(tenant=tenant_of(spec), policy=spec.policy.key, rule=spec.rule)
        return Loads(
            self.loader if self.account is None else self.loader.acting_as(self.account),
            confidential=confidential,
            count=count,
            long_evaluations=self.long_evaluations,
            owner=owner,
        )

    async def program(self, spec: RequestSpec) -> Program | Skip | Fail:
        """Return the rule that a request names, in the newest generation of its policy.

        The triggers of a catch-up request are found by listing objects. If the newest rule needs
        more than that, return its last version that did not, under which the trigger was sent.
        """
        known = self.index.get(spec.policy)
        if (
            known is None
            or (spec.policy_uid and known.uid != spec.policy_uid)
            or known.generation < spec.policy_generation
        ):
            try:
                compiled = await self.index.take_in(await self.policies.get(spec.policy))
            except NotFound:
                return Skip(reason=Reason.POLICY_GONE, message=f"policy {spec.policy} was deleted")
            if isinstance(compiled, InvalidPolicy):
                return Fail(
                    reason=Reason.INVALID_POLICY, message=f"policy {spec.policy}: {compiled}"
                )
            known = compiled
        if spec.policy_uid and known.uid != spec.policy_uid:
            message = f"policy {spec.policy} was deleted and recreated"
            return Skip(reason=Reason.POLICY_GONE, message=message)
        program = known.background_program(spec.rule)
        if program is None:
            message = f"policy {spec.policy} no longer has a rule {spec.rule}"
            return Skip(reason=Reason.RULE_GONE, message=message)
        if spec.source is Source.CATCH_UP and why_not_rebuildable(program):
            return self.index.as_it_was(known.uid, spec.rule) or program
        return program

    def _caused_by(self, spec: RequestSpec) -> str:
        user = (spec.user.get("userInfo") or {}).get("username", "")
        ours = user in self.controller_users or self.index.speaks_as(user)
        return spec.resource.uid if ours else ""

    async def _change(self, key: TargetKey, job: Job) -> TargetResult:
        if reason := self.lanes.protection.of_target(key.kind, key.namespace):
            by_kind = bool(self.lanes.protection.of_write(key.kind.group, ""))
            # A pattern that also matches protected objects is meant for the other ones.
            meant = job.query.names_kind if by_kind else job.query.names_namespace
            outcome = Outcome.FAILED if meant else Outcome.SKIPPED
            return TargetResult(outcome=outcome, message=reason)
        if job.run.program.filtered and self.is_excluded(key):
            settings = self.index.languages.installation.settings
            message = f"resourceFilters in the ConfigMap {settings} excludes it"
            return TargetResult(outcome=Outcome.SKIPPED, message=message)
        return await self.lanes.submit(key, job)

    def _conclude(
        self,
        request: UpdateRequest,
        targets: Sequence[TargetStatus],
        results: Iterable[TargetResult],
        errors: Sequence[str],
        jitter: float,
    ) -> Disposition:
        final = {Outcome.DENIED} if _exhausted(targets) else set[Outcome]()
        retries = [item for item in results if item.retryable and item.outcome not in final]
        if retries:
            # A rule that is paused for long must not delay targets that can be retried sooner.
            soon = [item for item in retries if item.reason != Reason.PATCH_WAR]
            worst = max(soon or retries, key=_urgency)
            interrupted = any(item.interrupted for item in retries)
            return self.retry(request, replace(worst, interrupted=interrupted), jitter)
        if errors:
            return Fail(reason=Reason.TARGET_UNRESOLVED, message="; ".join(errors))
        failed = [item for item in targets if item.outcome not in SUCCESSES]
        if failed:
            first = failed[0]
            more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
            message = f"{first.ref}: {first.message}{more}"
            reason = _OF_TARGET.get(first.outcome, Reason.TARGET_FAILED)
            return Fail(reason=reason, message=message)
        return Done(message="" if targets else "no object matches the targets of the rule")

    def retry(self, request: UpdateRequest, result: TargetResult, jitter: float = 0.0) -> Retry:
        """Return the disposition of an attempt that such a result ended."""
        pause = self.backoff.delay(request.status.attempts + 1, jitter)
        message = result.message
        if result.permission and self.account and self.account.user not in message:
            # A redacted message omits the account that lacks the right.
            message += f" to ServiceAccount {self.account}"
        return Retry(
            reason=result.why,
            message=message,
            retry_after=max(pause, result.retry_after),
            missing_permission=result.permission,
            interrupted=result.interrupted,
        )


def _urgency(result: TargetResult) -> tuple[bool, float]:
    return result.outcome is Outcome.FORBIDDEN, result.retry_after


def _exhausted(targets: Iterable[TargetStatus]) -> bool:
    """Return whether no denied target is tried again, which those in the status decide."""
    denied = [item for item in shorten(targets) if item.outcome is Outcome.DENIED]
    return all(item.attempts >= DENIALS for item in denied)


def _redacted(result: TargetResult, loads: Loads, named: frozenset[str]) -> TargetResult:
    return result.withheld(named) if loads.confidential else result
