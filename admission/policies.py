"""Answers to the webhook calls for our own kinds: what cannot work is refused with its place."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from admission.authoring import check_limits, check_policy
from admission.checks import Check, Means
from admission.decide import Answer
from admission.entries import check_entry
from admission.orders import check_orders
from reconciler.requests.draft import AdmissionRequest

CHECKS: Mapping[str, Check] = {
    "ClusterPolicy": check_policy,
    "Policy": check_policy,
    "GlobalContextEntry": check_entry,
}
"""By kind; the webhook configuration asks about these (`services.registration`)."""


@dataclass(frozen=True, slots=True)
class PolicyWebhook:
    """Answers for the objects that people write.

    Attributes:
        means: What the checks may ask for.
    """

    means: Means

    async def review(self, request: AdmissionRequest) -> Answer:
        """Return whether an object can be stored, and what its author should know.

        One that is being deleted may change as it likes: nobody shall have to repair a rule to
        get rid of it. So may one whose spec stays the same: labels, finalizers and the status of
        what was stored before are never in the way. Annotations that limit the rollout of a
        policy are looked at when they change.
        """
        obj, old = request.object, request.old_object
        if obj is None or (obj.get("metadata") or {}).get("deletionTimestamp"):
            return Answer()
        if old is not None and old.get("spec") == obj.get("spec"):
            return check_limits(obj, old)
        means = replace(self.means, dry_run=request.dry_run)
        check = CHECKS[request.kind.name]
        answer = await check(obj, means)
        if old is None or not answer.allowed or check is not check_policy:
            return answer
        return await check_orders(obj, old, means) or answer
