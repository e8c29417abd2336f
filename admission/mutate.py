"""Answers to the webhook calls before an object is stored: the changes that rules make.

Unknown data is not guessed: labels of a namespace that are not current are read, and a failed read
is an error of the rules that need it. Exceptions are used as last seen, because the decision
cannot be made again later.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from admission.decide import AdmissionResponse
from admission.failures import RuleFailures
from admission.lookup import Address, RequestedRules, RuleLookup, is_standing
from reconciler.clock import Deadline
from reconciler.engine.match.scopes import Pair
from reconciler.engine.program import Phase, Program
from reconciler.errors import ClusterError
from reconciler.observe.audit import AuditLog
from reconciler.observe.metrics import Metrics
from reconciler.requests.draft import AdmissionRequest
from reconciler.services.admitting.admit import Admit, Admitted, Question
from reconciler.services.admitting.mutation_events import MutationEvents


@dataclass(frozen=True, slots=True, kw_only=True)
class MutateWebhook:
    """Applies rules to an object before it is stored.

    Attributes:
        namespace: Namespace of the programs, where nothing is changed.
        standing_by: Returns why nothing is changed, or "" if rules are applied.
    """

    lookup: RuleLookup
    admit: Admit
    metrics: Metrics
    namespace: str
    events: MutationEvents
    failures: RuleFailures
    standing_by: Callable[[], str] = str
    audit: AuditLog = field(default_factory=AuditLog)

    async def review(
        self, request: AdmissionRequest, address: Address, deadline: Deadline
    ) -> AdmissionResponse:
        """Return the response with the changes of all rules to the object."""
        if self.standing_by() or request.object is None or is_standing(request, self.namespace):
            return AdmissionResponse()
        try:
            requested = await self.lookup.find(request, address, Phase.ADMISSION, deadline)
            if not requested.rules:
                return AdmissionResponse()
            subject = await self.lookup.subject(requested, deadline)
        except ClusterError as error:
            return self.failures.undecided(request, address, error)
        excluded = self.lookup.settings.current.filters.exclude(subject)

        def in_question(programs: Iterable[Program]) -> list[Program]:
            return [item for item in programs if not (excluded and item.filtered)]

        def further(pairs: Iterable[Pair]) -> list[Program]:
            return in_question(self.lookup.further(requested, pairs))

        question = Question(
            request=requested.request,
            subject=subject,
            programs=in_question(item.program for item in requested.rules),
            failure_policy=address.failure_policy,
            exceptions=self.lookup.facts.exceptions.of,
            further=further if self.lookup.looks_at_labels(requested) else None,
        )
        admitted = await self.admit.run(question, deadline)
        return self._respond(requested, address, admitted)

    def _respond(
        self, requested: RequestedRules, address: Address, admitted: Admitted
    ) -> AdmissionResponse:
        failed = self.failures.respond(
            requested.request, admitted.failures, address.failure_policy
        )
        if not failed.allowed:
            return failed
        if not requested.request.dry_run:
            self.events.changed(requested.request, admitted.changed)
            for result in admitted.changed:
                self.audit.changed(requested.request, result.policy, result.rule)
            # With many rules that takes a while, and the sender of the request waits. Only names:
            # the results hold the object, whose place in memory is free once this returns.
            changes = [(item.policy.key, item.rule) for item in admitted.changed]
            asyncio.get_running_loop().call_soon(self._count, changes)
        warnings = [
            f"policy {result.policy.key}.{result.rule}: {result.message}"
            for result in admitted.changed
            if (made := self.lookup.index.get(result.policy)) is not None and made.emit_warning
        ]
        return AdmissionResponse(warnings=(*warnings, *failed.warnings), patch=admitted.patch)

    def _count(self, changes: Iterable[tuple[str, str]]) -> None:
        for names in changes:
            self.metrics.mutations.of(*self.metrics.labels.rule(*names)).inc()
