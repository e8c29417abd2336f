"""What the author of a policy should know before it is applied; pure."""

from collections.abc import Iterable, Iterator
from typing import Any

from reconciler.api.meta import Object
from reconciler.dialects import compile_entry, compile_policy
from reconciler.engine.program import CompiledPolicy
from reconciler.errors import InvalidPolicy
from reconciler.services.lint.exceptions import lint_exception
from reconciler.services.lint.fields import rule_findings, spec_findings
from reconciler.services.lint.finding import Finding, Level, Scope
from reconciler.services.lint.firing import firing_findings, lost_findings, unused_entries
from reconciler.services.lint.limits import limit_findings
from reconciler.services.lint.patches import patch_findings
from reconciler.services.lint.refusals import match_refusals, policy_refusals, rule_refusals
from reconciler.services.lint.targets import target_findings

__all__ = [
    "Finding",
    "Level",
    "Scope",
    "find_errors",
    "find_surprises",
    "limit_findings",
    "lint_entry",
    "lint_exception",
    "lint_policy",
]

_ALONE = "spec.rules[0]"


def lint_policy(policy: Object, *, scope: Scope) -> tuple[Finding, ...]:
    """Return everything to say about a policy object, in the order of its rules.

    Args:
        policy: As decoded from its file.
        scope: What is known about kinds.
    """
    try:
        compiled = compile_policy(policy)
    except InvalidPolicy as error:
        return find_errors(policy, error)
    return find_surprises(policy, compiled, scope=scope)


def lint_entry(entry: Object) -> tuple[Finding, ...]:
    """Return everything to say about a GlobalContextEntry."""
    try:
        compiled = compile_entry(entry)
    except InvalidPolicy as error:
        return (_invalid(error),)
    return tuple(_not_acted_on(compiled.warnings))


def find_errors(policy: Object, first: InvalidPolicy) -> tuple[Finding, ...]:
    """Return why a policy is refused: one place for each rule that cannot be compiled.

    Args:
        policy: The policy object.
        first: What compiling it as a whole raised.
    """
    found = [first]
    spec = policy.get("spec")
    rules = spec.get("rules") if isinstance(spec, dict) else None
    if first.location.startswith("spec.rules[") and isinstance(rules, list):
        for index, rule in enumerate(rules):
            try:
                compile_policy({**policy, "spec": {**policy["spec"], "rules": [rule]}})
            except InvalidPolicy as error:
                location = error.location.replace(_ALONE, f"spec.rules[{index}]", 1)
                found.append(InvalidPolicy(location, error.reason))
    unique = {(error.location, error.reason): error for error in found}
    return tuple(_invalid(error) for error in unique.values())


def find_surprises(
    policy: Object, compiled: CompiledPolicy, *, scope: Scope
) -> tuple[Finding, ...]:
    """Return what to say about a policy that compiles: why it is refused, what is hardly meant.

    Args:
        policy: The policy object.
        compiled: The same, compiled.
        scope: What is known about kinds.
    """
    spec = policy["spec"]
    programs = {program.origin.location: program for program in compiled.programs}
    background = spec.get("background") is not False
    found = [*policy_refusals(policy), *limit_findings(policy), *spec_findings(spec)]
    found += _not_acted_on(compiled.warnings)
    for index, rule in enumerate(spec["rules"]):
        location = f"spec.rules[{index}]"
        found += rule_refusals(rule, location, background=background and not programs)
        program = programs.get(location)
        if program is None:
            continue
        found += match_refusals(rule, location)
        found += rule_findings(rule, location)
        found += firing_findings(program, scope, background=background)
        found += lost_findings(compiled, program)
        found += unused_entries(program)
        found += target_findings(program, scope)
        found += patch_findings(program, rule)
    return tuple(sorted(found, key=_position))


def _invalid(error: InvalidPolicy) -> Finding:
    return Finding(level=Level.ERROR, code="invalid", location=error.location, text=error.reason)


def _not_acted_on(warnings: Iterable[str]) -> Iterator[Finding]:
    for warning in warnings:
        location, _, text = warning.partition(": ")
        yield Finding(level=Level.WARNING, code="not-acted-on", location=location, text=text)


def _position(finding: Finding) -> Any:
    head = finding.location.partition("rules[")[2].partition("]")[0]
    return int(head) if head.isdigit() else -1
