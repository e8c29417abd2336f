"""Answers to the webhook calls for what nobody changes any more: refused, or recorded.

Rules that refuse are asked first, those of all failure policies in every call: the API server
makes its calls side by side, and what one of them refuses must not be recorded by another.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from admission.decide import AdmissionResponse
from admission.failures import RuleFailures
from admission.lookup import Address, RequestedRules, RuleLookup, is_standing
from admission.resources import ResourceWebhook
from reconciler.clock import Deadline
from reconciler.engine.program import IGNORE, Phase
from reconciler.errors import ClusterError
from reconciler.observe.logs import logger
from reconciler.observe.metrics import Metrics
from reconciler.requests.draft import AdmissionRequest
from reconciler.services.admitting.admit import Admit, Failure, Judgement, Question

_log = logger("admission.verdicts")

_FORBIDDEN = 403


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictWebhook:
    """Refuses what a rule refuses; what none does it hands on.

    Attributes:
        namespace: Of the programs; nothing is refused there.
        failures: Answers for rules that cannot be asked.
        standing_by: Returns why nothing is to be refused or recorded, empty where all is.
        recording: Gets what is not refused.
    """

    lookup: RuleLookup
    admit: Admit
    metrics: Metrics
    namespace: str
    failures: RuleFailures
    recording: ResourceWebhook
    standing_by: Callable[[], str] = str

    async def review(
        self, request: AdmissionRequest, address: Address, deadline: Deadline
    ) -> AdmissionResponse:
        """Return a refusal that names all rules that refuse, else the answer of the recording."""
        if self.standing_by():
            # The other program acts on it. The webhooks are still there while no controller leads.
            return AdmissionResponse()
        response = await self._judged(request, address, deadline)
        if not response.allowed:
            return response
        recorded = await self.recording.review(request, address, deadline)
        if not response.warnings:
            return recorded
        return replace(recorded, warnings=(*response.warnings, *recorded.warnings))

    async def _judged(
        self, request: AdmissionRequest, address: Address, deadline: Deadline
    ) -> AdmissionResponse:
        # Few clusters have rules that refuse, and every trigger comes by here.
        if self.lookup.has_none(address, Phase.VERDICT) or is_standing(request, self.namespace):
            return AdmissionResponse()
        try:
            requested = await self.lookup.find(request, address, Phase.VERDICT, deadline)
            if not requested.rules:
                return AdmissionResponse()
            subject = await self.lookup.subject(requested, deadline)
        except ClusterError as error:
            return self.failures.undecided(request, address, error)
        question = Question(
            request=requested.request,
            subject=subject,
            programs=[item.program for item in requested.rules],
            failure_policy=address.failure_policy,
            exceptions=self.lookup.facts.exceptions.of,
        )
        judgement = await self.admit.judge(question, deadline)
        if judgement.refusals:
            return self._refusal(requested, judgement)
        failed = [item for item in judgement.failures if _is_of(item, requested, address)]
        return self.failures.respond(request, failed, address.failure_policy)

    def _refusal(self, requested: RequestedRules, judgement: Judgement) -> AdmissionResponse:
        request = requested.request
        rules = [(item.policy.key, item.rule) for item in judgement.refusals]
        _log.info(
            "request rejected",
            uid=request.uid,
            operation=request.operation,
            policies=", ".join(dict.fromkeys(policy for policy, _ in rules)),
        )
        if not request.dry_run:
            for names in rules:
                policy, rule = self.metrics.labels.rule(*names)
                self.metrics.rejections.labels(policy=policy, rule=rule).inc()
        return AdmissionResponse(allowed=False, code=_FORBIDDEN, message=judgement.message)


def _is_of(failure: Failure, requested: RequestedRules, address: Address) -> bool:
    """Return whether a call answers for a rule that failed; for the others another one does."""
    policies = {item.policy.ref: item.policy for item in requested.rules}
    written = policies[failure.program.origin.policy].failure_policy
    return address.failure_policy == (IGNORE if address.forced else written)
