"""Answers to the webhook calls for an object in its final form: refused, or recorded.

Rules that refuse are evaluated first, those of all failure policies in every call: the API server
makes its calls in parallel, and an object that one call refuses must not be recorded by another.
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
    """Refuses requests by rules, and passes the others to the recorder.

    Attributes:
        namespace: Namespace of the programs, where nothing is refused.
        standing_by: Returns why nothing is refused or recorded, or "" if the webhook works.
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
        """Return a refusal that names all refusing rules, else the recorder's response."""
        if self.standing_by():
            # Kyverno acts on the request. The webhooks remain while no controller leads.
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
        # Few clusters have rules that refuse, and every trigger passes here.
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
    """Return whether this call reports a failed rule; another call reports the others."""
    policies = {item.policy.ref: item.policy for item in requested.rules}
    written = policies[failure.program.origin.policy].failure_policy
    return address.failure_policy == (IGNORE if address.forced else written)
