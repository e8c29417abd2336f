"""Findings for the author of a policy, before it is applied; without I/O."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from reconciler.api.meta import Object
from reconciler.dialects.finding import Finding, Level, Scope, invalid, refusal, warning
from reconciler.dialects.registry import (
    CompiledEntry,
    ResourceSource,
    compile_entry,
    dialect_of,
    examine_policy,
    lint_exception,
)
from reconciler.engine.loads import ApiLoad
from reconciler.engine.program import CompiledPolicy, Phase
from reconciler.errors import InvalidPolicy
from reconciler.services.authoring.lint.hooks import hook_findings, lint_hook
from reconciler.services.authoring.lint.policy import (
    account_findings,
    kind_findings,
    limit_findings,
    lockout_findings,
    lost_findings,
    protected_objects,
    protected_targets,
    unread_findings,
)
from reconciler.services.catalog.protection import Protection

__all__ = [
    "Finding",
    "Level",
    "Scope",
    "entry_refusals",
    "find_errors",
    "find_surprises",
    "hook_findings",
    "invalid",
    "limit_findings",
    "lint_entry",
    "lint_exception",
    "lint_hook",
    "lint_policy",
]


def lint_policy(policy: Object, *, scope: Scope) -> tuple[Finding, ...]:
    """Return all findings on a policy object, in the order of its rules."""
    compiled, errors = examine_policy(policy)
    found = list(map(invalid, errors))
    if compiled is not None:
        found += find_surprises(policy, compiled, scope=scope, wrong=errors)
    return tuple(sorted(found, key=_position))


def lint_entry(entry: Object) -> tuple[Finding, ...]:
    """Return all findings on a GlobalContextEntry."""
    try:
        compiled = compile_entry(entry)
    except InvalidPolicy as error:
        return find_errors(error)
    return (*entry_refusals(compiled, Protection()), *_not_acted_on(compiled.warnings))


def entry_refusals(entry: CompiledEntry, protection: Protection) -> Iterator[Finding]:
    """Yield why an entry that compiles is refused: policies must not read its source."""
    source = entry.source
    if isinstance(source, ResourceSource):
        location = "spec.kubernetesResource"
        reason = protection.of_read(source.group, source.resource, source.namespace)
    elif isinstance(source.load, ApiLoad):
        location = "spec.apiCall"
        reason = protection.of_call(source.load.method, source.load.path)
    else:
        return
    if reason:
        yield refusal("protected-call", location, reason)


def find_errors(error: InvalidPolicy) -> tuple[Finding, ...]:
    """Return why an object is refused, with a finding for every wrong place."""
    return tuple(map(invalid, (error, *error.others)))


def find_surprises(
    policy: Object,
    compiled: CompiledPolicy,
    *,
    scope: Scope,
    wrong: Sequence[InvalidPolicy] = (),
    protection: Protection | None = None,
) -> tuple[Finding, ...]:
    """Return the findings on a policy that compiles: refusals, and likely mistakes.

    Args:
        wrong: The errors of rules that do not compile, which get no further findings.
        protection: Objects that no policy may address; None if the programs run in their usual
            namespace.
    """
    guard = protection or Protection()
    found = [*limit_findings(policy), *account_findings(policy, guard)]
    found += unread_findings(policy, compiled)
    found += _not_acted_on(compiled.warnings)
    found += lockout_findings(policy, compiled)
    found += dialect_of(policy).lint(policy, compiled, scope=scope, guard=guard, wrong=wrong)
    for program in compiled.programs:
        found += kind_findings(program, scope)
    for program in compiled.in_phase(Phase.TRIGGERED):
        found += lost_findings(compiled, program)
    for program in compiled.in_background:
        found += protected_targets(program, guard)
    for program in (*compiled.in_phase(Phase.ADMISSION), *compiled.in_phase(Phase.VERDICT)):
        found += protected_objects(program, guard)
    return tuple(sorted(found, key=_position))


def _not_acted_on(warnings: Iterable[str]) -> Iterator[Finding]:
    for said in warnings:
        location, _, text = said.partition(": ")
        yield warning("not-acted-on", location, text)


def _position(finding: Finding) -> Any:
    head = finding.location.partition("rules[")[2].partition("]")[0]
    return int(head) if head.isdigit() else -1
