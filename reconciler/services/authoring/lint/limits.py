"""Findings on the annotations that limit the rollout of a policy."""

from collections.abc import Iterator

from reconciler.api.meta import PREFIX, Object
from reconciler.dialects.finding import Finding, Level, invalid
from reconciler.dialects.registry import dialect_of
from reconciler.errors import InvalidPolicy
from reconciler.requests.limits import CANARY, KNOWN, PROMOTE, parse_limits, place_of, unread


def limit_findings(policy: Object) -> Iterator[Finding]:
    """Yield findings on kube-retrofit's annotations of a policy."""
    of_language = dialect_of(policy).annotations
    for name in unread(policy):
        if name in of_language:
            continue
        yield Finding(
            level=Level.WARNING,
            code="unknown-annotation",
            location=place_of(name),
            text="nothing reads this annotation",
            cure=f"the known annotations under {PREFIX} are {KNOWN}",
        )
    try:
        limits = parse_limits(policy)
    except InvalidPolicy as error:
        yield invalid(error)
        return
    if limits.promote and not limits.canary:
        yield Finding(
            level=Level.NOTE,
            code="promote-without-canary",
            location=place_of(PROMOTE),
            text="there are no canaries to promote",
            cure=f"add the annotation {CANARY}, or remove this one",
        )
