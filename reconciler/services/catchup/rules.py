"""Rules that can be caught up: the object as it is now contains all that they need."""

from reconciler.engine.program import CompiledPolicy, Program
from reconciler.requests.rebuild import why_not_rebuildable


def why_lost(policy: CompiledPolicy, program: Program) -> str:
    """Return why the unrecorded triggers of a rule cannot be found, else empty."""
    if reason := why_not_rebuildable(program):
        return reason
    if policy.match_conditions:
        return "only the API server evaluates the matchConditions of its webhook"
    return ""
