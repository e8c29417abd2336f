"""Which rules can be caught up: the object as it is now says all that they need."""

from reconciler.engine.program import CompiledPolicy, Program
from reconciler.requests.rebuild import obstacle
from reconciler.services.existing import listable

IGNORE = "Ignore"


def why_lost(policy: CompiledPolicy, program: Program) -> str:
    """Return why a trigger of a rule that was not recorded cannot be found, else empty."""
    if program.own:
        return "it has no mutate.targets"
    if reason := obstacle(program):
        return reason
    if not all(listable(item.selector) for item in program.matcher.kinds()):
        return "the kinds of its match cannot be listed"
    if policy.match_conditions:
        return "only the API server evaluates the matchConditions of its webhook"
    return ""
