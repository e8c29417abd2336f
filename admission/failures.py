"""Responses for rules that could not be applied before an object is stored."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from admission.decide import AdmissionResponse, unknown
from admission.lookup import Address
from reconciler.engine.program import FAIL
from reconciler.errors import ClusterError
from reconciler.observe.logs import logger
from reconciler.observe.metrics import Metrics
from reconciler.requests.draft import AdmissionRequest
from reconciler.services.admitting.admit import Failure, Reason

_log = logger("admission.rules")

_BAD_REQUEST = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleFailures:
    """Responds as the failure policy requires, with log lines and metrics.

    Attributes:
        undone: What was not done to the object, for messages: ``not changed``.
        lost: Called when an object was admitted without applying a rule that may succeed
            another time.
    """

    metrics: Metrics
    undone: str
    lost: Callable[[], None] = lambda: None

    def respond(
        self, request: AdmissionRequest, failures: Sequence[Failure], failure_policy: str
    ) -> AdmissionResponse:
        """Return a refusal under ``Fail``, else warnings for the sender of the request."""
        refuses = failure_policy == FAIL
        for failure in failures:
            self._tell(request, failure, refuses=refuses)
        if failures and refuses:
            texts = "; ".join(item.text for item in failures)
            return AdmissionResponse(
                allowed=False,
                code=_BAD_REQUEST,
                message=f"kube-retrofit: {texts}; correct the rule or the data that it reads",
            )
        return AdmissionResponse(
            warnings=tuple(
                f"kube-retrofit: {self.undone}, because {item.text}" for item in failures
            )
        )

    def undecided(
        self, request: AdmissionRequest, address: Address, error: ClusterError
    ) -> AdmissionResponse:
        """Return the response if the rules for a request are not known."""
        text = (
            f"it is unknown which rules apply to {request.resource.name}/{request.name},"
            f" because {error}"
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
