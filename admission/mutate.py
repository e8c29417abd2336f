"""Answers to the webhook calls for what is about to be stored: what rules change of it.

What is not known for certain is not guessed: labels that were not heard of are read, and what
cannot be read is an error of the rules that ask for it. Exceptions are taken as they were heard
of last; there is no later moment at which anybody could look again.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from admission.decide import AdmissionResponse, unknown
from admission.lookup import Address, Asked, RuleLookup, by
from reconciler.api.meta import is_own_group, own_namespaces
from reconciler.clock import Deadline
from reconciler.engine.match import Subject
from reconciler.engine.program import FAIL, Phase
from reconciler.errors import ClusterError
from reconciler.observe.audit import AuditLog
from reconciler.observe.logs import logger
from reconciler.observe.metrics import Metrics
from reconciler.requests.admission import subject_of
from reconciler.requests.draft import AdmissionRequest
from reconciler.services.admitting.admit import Admit, Admitted, Failure, Question, Reason
from reconciler.services.admitting.told import MutationEvents
from reconciler.services.catalog.rule_index import CompiledRule

_log = logger("admission.mutate")

_BAD_REQUEST = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class MutateWebhook:
    """Has rules change what is about to be stored.

    Attributes:
        namespace: Of the programs; nothing is changed there.
        told: Tells of what was changed.
        standing_by: Returns why nothing is to be changed, empty where all is.
        lost: Told that something was admitted that no rule had its turn at, and another time may.
        audit: Who fired what.
    """

    lookup: RuleLookup
    admit: Admit
    metrics: Metrics
    namespace: str
    told: MutationEvents
    standing_by: Callable[[], str] = str
    lost: Callable[[], None] = lambda: None
    audit: AuditLog = field(default_factory=AuditLog)

    async def review(
        self, request: AdmissionRequest, address: Address, deadline: Deadline
    ) -> AdmissionResponse:
        """Return the answer with what all rules together change of the object."""
        if self.standing_by() or request.object is None or self._is_own(request):
            return AdmissionResponse()
        try:
            asked = await self.lookup.find(request, address, Phase.ADMISSION, deadline)
            programs = [item.program for item in asked.rules]
            if not programs:
                return AdmissionResponse()
            subject = await self._subject(asked, deadline)
        except ClusterError as error:
            return self._undecided(request, address, error)
        if self.lookup.settings.current.filters.exclude(subject):
            return AdmissionResponse()
        question = Question(
            request=asked.request,
            subject=subject,
            programs=programs,
            failure_policy=address.failure_policy,
            exceptions=lambda program: list(self.lookup.facts.exceptions.of(program)),
            further=partial(self.lookup.further, asked),
        )
        admitted = await self.admit.run(question, deadline)
        return self._answer(asked, address, admitted)

    def _is_own(self, request: AdmissionRequest) -> bool:
        own = own_namespaces(self.namespace) | {"kube-system"}
        place = request.name if _is_namespace(request) else request.namespace
        return place in own or is_own_group(request.kind.group)

    async def _subject(self, asked: Asked, deadline: Deadline) -> Subject:
        """Return what rules are matched against, with the labels of the namespace if one asks.

        Raises:
            ClusterError: They cannot be read.
        """
        facts, namespace = self.lookup.facts, asked.request.namespace
        labels = facts.labels(namespace)
        if labels is None and namespace and any(map(self._asks_for_labels, asked.every())):
            async with by(deadline, f"the labels of namespace {namespace}"):
                labels = await facts.labels_of(namespace)
        return subject_of(asked.request, asked.kind, labels)

    def _asks_for_labels(self, rule: CompiledRule) -> bool:
        program = rule.program
        excepted = any(True for _ in self.lookup.facts.exceptions.of(program))
        return program.match.needs.namespace_labels or excepted

    def _answer(self, asked: Asked, address: Address, admitted: Admitted) -> AdmissionResponse:
        refuses = address.failure_policy == FAIL
        for failure in admitted.failures:
            self._tell(asked.request, failure, refuses=refuses)
        if admitted.failures and refuses:
            texts = "; ".join(item.text for item in admitted.failures)
            return AdmissionResponse(
                allowed=False,
                code=_BAD_REQUEST,
                message=f"kube-retrofit: {texts}; correct the rule, or what it reads",
            )
        if not asked.request.dry_run:
            self.told.changed(asked.request, admitted.changed)
            for result in admitted.changed:
                self.audit.changed(asked.request, result.policy, result.rule)
                policy, rule = self.metrics.labels.rule(result.policy.key, result.rule)
                self.metrics.mutations.labels(policy=policy, rule=rule).inc()
        warnings = [
            f"policy {result.policy.key}.{result.rule}: {result.message}"
            for result in admitted.changed
            if (made := self.lookup.index.get(result.policy)) is not None and made.emit_warning
        ]
        lost = [f"kube-retrofit: not changed, because {item.text}" for item in admitted.failures]
        return AdmissionResponse(warnings=(*warnings, *lost), patch=admitted.patch)

    def _tell(self, request: AdmissionRequest, failure: Failure, *, refuses: bool) -> None:
        policy = failure.program.origin.policy.key
        _log.error(
            "request refused" if refuses else "policy not applied",
            uid=request.uid,
            policy=policy,
            rule=failure.program.rule,
            reason=failure.bare,
        )
        counter = self.metrics.mutations_refused if refuses else self.metrics.mutations_lost
        label = self.metrics.labels.policy(policy)
        counter.labels(policy=label, reason=failure.reason.value).inc()
        if not (refuses or request.dry_run or failure.reason is Reason.EVALUATION):
            self.lost()

    def _undecided(
        self, request: AdmissionRequest, address: Address, error: ClusterError
    ) -> AdmissionResponse:
        text = (
            f"which rules change {request.resource.name}/{request.name} is not known, because"
            f" {error}"
        )
        refuses = address.failure_policy == FAIL
        _log.error(
            "request refused" if refuses else "rules not applied", uid=request.uid, reason=text
        )
        counter = self.metrics.mutations_refused if refuses else self.metrics.mutations_lost
        counter.labels(policy="", reason="unknown").inc()
        if not (refuses or request.dry_run):
            self.lost()
        return unknown(address.failure_policy, text)


def _is_namespace(request: AdmissionRequest) -> bool:
    return request.kind.name == "Namespace" and not request.kind.group
