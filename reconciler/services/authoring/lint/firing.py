"""Findings on when a rule fires and on the kinds that it matches, for all languages."""

from collections.abc import Iterator

from reconciler.dialects.finding import Finding, Level, Scope
from reconciler.engine.match import KindScope
from reconciler.engine.program import IGNORE, CompiledPolicy, Program
from reconciler.services.catchup.rules import why_lost


def kind_findings(program: Program, scope: Scope) -> Iterator[Finding]:
    """Yield findings on the kinds that a rule matches."""
    for kind in program.match.kinds():
        yield from _of_kind(program, kind, scope)


def lost_findings(policy: CompiledPolicy, program: Program) -> Iterator[Finding]:
    """Yield why catch-up cannot find triggers that a rule loses with failurePolicy Ignore."""
    reason = why_lost(policy, program) if policy.failure_policy == IGNORE else ""
    if reason:
        yield Finding(
            level=Level.NOTE,
            code="no-catch-up",
            location=program.origin.location,
            text="with failurePolicy Ignore, a trigger of this rule that could not be recorded is"
            f" lost, because it cannot be found afterwards: {reason}",
            cure="set failurePolicy: Fail where no trigger may be lost",
        )


def _of_kind(program: Program, kind: KindScope, scope: Scope) -> Iterator[Finding]:
    place, selector = program.origin.selection, kind.selector
    if selector.is_every_kind and not selector.subresource.strip("*"):
        yield Finding(
            level=Level.WARNING,
            code="every-kind",
            location=place,
            text="the rule matches every kind, so every write in the cluster waits for the"
            " webhook",
            cure="name the kinds that can trigger it",
        )
        return
    version = "*" if selector.group == "*" == selector.version else selector.version
    api_version = f"{selector.group}/{version}" if selector.group and version != "*" else version
    if program.origin.namespace and scope(api_version, selector.kind) is False:
        yield Finding(
            level=Level.ERROR,
            code="cluster-kind-in-policy",
            location=place,
            text=f"{selector.kind} is cluster-scoped; the {program.origin.policy.kind} applies"
            f" only to objects in its namespace {program.origin.namespace}, so this kind never"
            " matches",
            cure="remove the kind, or write the rule as a policy for the whole cluster",
        )
