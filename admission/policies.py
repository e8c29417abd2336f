"""Answers to the webhook calls for policies: what cannot be compiled is refused with its place."""

from admission.decide import Answer
from admission.entries import review_entry
from reconciler.api.globalcontext import KIND
from reconciler.dialects import compile_policy
from reconciler.errors import InvalidPolicy
from reconciler.requests.draft import AdmissionRequest

_INVALID = 422


def review_policy(request: AdmissionRequest) -> Answer:
    """Return whether a policy can be stored, and what its author should know.

    A policy that is being deleted may change as it likes: nobody shall have to repair a rule to
    get rid of it. So may one whose spec stays the same, which older policies rely on.
    """
    if request.kind.name == KIND:
        return review_entry(request)
    policy = request.object
    if policy is None or (policy.get("metadata") or {}).get("deletionTimestamp"):
        return Answer()
    old = request.old_object
    if old is not None and old.get("spec") == policy.get("spec"):
        return Answer()
    try:
        compiled = compile_policy(policy)
    except InvalidPolicy as error:
        return Answer(allowed=False, code=_INVALID, message=f"{request.ref}: {error}")
    return Answer(warnings=compiled.warnings)
