"""Which rules can be caught up: the object as it is now says all that they need."""

from reconciler.engine.program import CompiledPolicy, Program
from reconciler.requests.rebuild import why_not_rebuildable


def why_lost(policy: CompiledPolicy, program: Program) -> str:
    """Return why a trigger of a rule that was not recorded cannot be found, else empty."""
    if reason := why_not_rebuildable(program):
        return reason
    if policy.match_conditions:
        return "only the API server evaluates the matchConditions of its webhook"
    return ""
