"""The check of whether a rule can run on existing objects without an admission request."""

from reconciler.engine.context import reads_user
from reconciler.engine.match import has_lists
from reconciler.engine.program import Program

_MEANT = "set mutateExistingOnPolicyUpdate: true if the rule is meant to run without a request"


def why_not(program: Program) -> str:
    """Return why a rule cannot run without a request and what to do, empty if it can.

    A rule with mutateExistingOnPolicyUpdate may read data that only a request has: by setting the
    field, its author states that the rule is meant to run without.
    """
    listings = program.match.listings()
    if not listings:
        return (
            "every filter of its match lists operations, which only requests have; add a filter"
            " without operations under match.any"
        )
    if not has_lists(listings):
        return (
            "the kinds of its match cannot be listed (every kind, or a subresource); name the"
            " kinds that it is for"
        )
    if program.on_policy_change:
        return ""
    if program.match.needs.user:
        return f"its match or exclude depends on who sent the request; {_MEANT}"
    if any(path[:2] == ("request", "oldObject") for path in program.reads):
        return f"it reads request.oldObject, which only a request has; {_MEANT}"
    if any(reads_user(path) for path in program.reads):
        return f"it reads who sent the request, and a run has no sender; {_MEANT}"
    return ""
