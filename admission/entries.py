"""Answers to the webhook calls for GlobalContextEntries: one that cannot be kept is refused."""

from admission.decide import Answer
from reconciler.dialects import compile_entry
from reconciler.errors import InvalidPolicy
from reconciler.requests.draft import AdmissionRequest

_INVALID = 422


def review_entry(request: AdmissionRequest) -> Answer:
    """Return whether an entry can be stored, and what its author should know.

    One that is being deleted, or whose spec stays the same, passes as it is.
    """
    entry, old = request.object, request.old_object
    if entry is None or (entry.get("metadata") or {}).get("deletionTimestamp"):
        return Answer()
    if old is not None and old.get("spec") == entry.get("spec"):
        return Answer()
    try:
        compiled = compile_entry(entry)
    except InvalidPolicy as error:
        return Answer(allowed=False, code=_INVALID, message=f"{request.ref}: {error}")
    return Answer(warnings=compiled.warnings)
