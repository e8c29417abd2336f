"""Answers to the webhook calls for triggers: decide, record, respond."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from admission.beliefs import Beliefs, rests_on_past
from admission.decide import AdmissionResponse, Intent, Limits, decide, respond, unknown
from admission.lookup import Address, RequestedRules, RuleLookup, by
from reconciler.clock import Clock, Deadline, SystemClock
from reconciler.engine.program import IGNORE, Origin, Phase, Program
from reconciler.errors import ClusterError
from reconciler.observe.audit import AuditLog
from reconciler.observe.logs import logger
from reconciler.observe.metrics import Metrics
from reconciler.requests.draft import AdmissionRequest, Draft
from reconciler.services.recording.recorder import OVERLOAD, Recorder, Unrecorded, failure_label

_log = logger("admission.resources")


@dataclass(slots=True, kw_only=True)
class CostlyRules:
    """Rules that exhausted the allowance for evaluating them on one request.

    Each is skipped for a while, so that a flood of its triggers does not affect other rules.
    """

    clock: Clock = field(default_factory=SystemClock)
    period: float = 60.0
    _until: dict[Origin, float] = field(default_factory=dict)

    def __contains__(self, program: Program) -> bool:
        until = self._until.get(program.origin)
        return until is not None and self.clock.monotonic() < until

    def add(self, program: Program) -> bool:
        """Skip a rule from now on; return whether it was not skipped before."""
        known = program in self
        now = self.clock.monotonic()
        self._until = {rule: until for rule, until in self._until.items() if until > now}
        self._until[program.origin] = now + self.period
        return not known


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceWebhook:
    """Records the rules that triggers fire.

    Attributes:
        lost: Called when an object was admitted without a stored request.
    """

    lookup: RuleLookup
    beliefs: Beliefs
    recorder: Recorder
    limits: Limits
    clock: Clock
    metrics: Metrics
    lost: Callable[[], None] = lambda: None
    costly: CostlyRules = field(default_factory=CostlyRules)
    audit: AuditLog = field(default_factory=AuditLog)

    async def review(
        self, request: AdmissionRequest, address: Address, deadline: Deadline
    ) -> AdmissionResponse:
        """Return the response once all requests for the triggered rules are stored.

        A request that is not stored by the deadline counts as failed.
        """
        failure_policy = address.failure_policy
        try:
            requested = await self.lookup.find(request, address, Phase.TRIGGERED, deadline)
        except ClusterError as error:
            return self._undecided(request, failure_policy, error)
        if not requested.rules:
            return AdmissionResponse()
        intent = self._decide(requested)
        if self.beliefs.questions(requested.request, intent.drafts):
            try:
                async with by(deadline, "the object"):
                    stored = await self.beliefs.stored(requested.request)
            except ClusterError as error:
                return self._undecided(request, failure_policy, error)
            intent = self._of_stored(intent, stored, requested)
        unrecorded = await self._record(requested.request, intent.drafts, deadline)
        missing = "lost" if failure_policy == IGNORE else "refused"
        self.audit.triggered(missing, requested.request, [item.draft for item in unrecorded])
        if failure_policy == IGNORE:
            self._count_lost(len(intent.refused), unrecorded)
        return respond(failure_policy, intent.refused, unrecorded)

    def _decide(self, requested: RequestedRules) -> Intent:
        facts, request = self.lookup.facts, requested.request
        intent = decide(
            request,
            requested.rules,
            parent=requested.kind,
            namespace_labels=facts.labels(request.namespace),
            limits=replace(self.limits, filters=self.lookup.settings.current.filters),
            exceptions=facts.exceptions.of,
            excepts=facts.excepts(),
            spared=self.costly.__contains__,
        )
        if intent.costly is not None:
            self._spare(intent.costly)
        return intent

    def _of_stored(
        self, intent: Intent, stored: AdmissionRequest | None, requested: RequestedRules
    ) -> Intent:
        """Return the intent of a request, decided again with the old object as stored."""
        if stored is not None:
            return self._decide(replace(requested, request=stored))
        # The old object of the review is not trusted; aggregate requests read live objects.
        kept = tuple(item for item in intent.drafts if not rests_on_past(item))
        return replace(intent, drafts=kept, refused=())

    def _spare(self, program: Program) -> None:
        """Skip a rule that exhausted the allowance of a request; the controller decides."""
        if self.costly.add(program):
            origin = program.origin
            _log.warning(
                "a rule is too costly to evaluate at admission: everything it matches is recorded",
                policy=origin.policy.key,
                rule=origin.rule,
                seconds=self.costly.period,
            )

    def _undecided(
        self, request: AdmissionRequest, failure_policy: str, error: ClusterError
    ) -> AdmissionResponse:
        text = (
            f"it is unknown which rules {request.resource.name}/{request.subresource} triggers, "
            f"because {error}"
        )
        _log.error("request not recorded", uid=request.uid, reason=text)
        if failure_policy == IGNORE:
            self.metrics.requests_lost.labels(reason=failure_label(error)).inc()
            self.lost()
        return unknown(failure_policy, text)

    async def _record(
        self, request: AdmissionRequest, drafts: tuple[Draft, ...], deadline: Deadline
    ) -> tuple[Unrecorded, ...]:
        if not drafts:
            return ()
        started = self.clock.monotonic()
        recorded = await self.recorder.record(drafts, deadline)
        self.metrics.recording_duration.observe(self.clock.monotonic() - started)
        self.audit.triggered("recorded", request, recorded.stored)
        self.audit.triggered("joined", request, recorded.joined)
        self.audit.triggered("aggregated", request, recorded.diverted)
        for item in recorded.stored:
            policy, rule = self.metrics.labels.rule(item.spec.policy.key, item.spec.rule)
            source = item.spec.source.value
            self.metrics.requests_recorded.labels(policy=policy, rule=rule, source=source).inc()
        for item in recorded.joined:
            policy, rule = self.metrics.labels.rule(item.spec.policy.key, item.spec.rule)
            self.metrics.triggers_joined.labels(policy=policy, rule=rule).inc()
        for item in recorded.diverted:
            policy, rule = self.metrics.labels.rule(item.spec.policy.key, item.spec.rule)
            self.metrics.triggers_diverted.labels(policy=policy, rule=rule).inc()
        for lost in recorded.failed:
            spec = lost.draft.spec
            _log.error(
                "request not recorded",
                request=lost.draft.name,
                policy=spec.policy.key,
                rule=spec.rule,
                reason=lost.message,
            )
        return recorded.failed

    def _count_lost(self, refused: int, unrecorded: tuple[Unrecorded, ...]) -> None:
        if refused:
            self.metrics.requests_lost.labels(reason="toolarge").inc(refused)
        for item in unrecorded:
            self.metrics.requests_lost.labels(reason=item.reason).inc()
        # What is lost at the hard limit cannot be found again by a catch-up.
        if any(item.reason != OVERLOAD for item in unrecorded):
            self.lost()
