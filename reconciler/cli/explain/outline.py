"""An outline of the rules of a policy, without a trigger."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from reconciler.cli.explain.details import details_of
from reconciler.cli.explain.outline_writer import NO, OPEN, OutlineWriter, shown
from reconciler.dialects.kyverno.parts import KyvernoRule
from reconciler.engine.match import KindScope
from reconciler.engine.outcome import Convergence
from reconciler.engine.program import IGNORE, CompiledPolicy, Program
from reconciler.services.catalog.caveats import why_silent
from reconciler.services.catalog.settings import Filters
from reconciler.services.catchup.rules import why_lost

_CONVERGENCE = {
    Convergence.YES: "applied to its own result, it changes nothing",
    Convergence.PROBED: "whether it changes its own result again is seen at each object",
    Convergence.NO: "it changes its own result again, each time it runs",
}
_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
_SELECTING = ("apiVersion", "kind", "namespace", "name", "uid", "selector")


def outline(
    policy: Mapping[str, Any],
    compiled: CompiledPolicy,
    writer: OutlineWriter,
    filters: Filters | None = None,
) -> None:
    """Write an outline of the rules of a policy.

    Args:
        policy: The policy as written.
        filters: The resource filters of the cluster; None if they are not known.
    """
    tell_policy(compiled, writer)
    for program in compiled.programs:
        tell_rule(program, writer.inner)
        for text in () if filters is None else why_silent(program, filters):
            writer.inner.inner.answer(NO, "filtered", text)
        existing = any(program.rule == item.rule for item in compiled.on_existing)
        _rule(program, policy, writer.inner.inner, existing=existing)
        _catch_up(compiled, program, writer.inner.inner)
    writer.line("hint", "Give an object with --trigger to see what happens to it.")


def tell_policy(compiled: CompiledPolicy, writer: OutlineWriter) -> None:
    """Write the name, the account and the warnings of a policy."""
    name = f"{compiled.ref.kind} {compiled.key}"
    writer.line("policy", name, policy=compiled.key, policyKind=compiled.ref.kind)
    if compiled.account is not None:
        text = f"works as ServiceAccount {compiled.account}, with its rights alone"
        writer.inner.line("account", text, account=compiled.account.user)
    for warning in compiled.warnings:
        writer.inner.answer(OPEN, "warning", warning)


def tell_rule(program: Program, writer: OutlineWriter) -> None:
    """Write the name and the location of a rule."""
    place = program.origin.location
    writer.line("rule", f"rule {program.rule} ({place})", rule=program.rule, place=place)


def written_at(policy: Mapping[str, Any], location: str) -> Mapping[str, Any]:
    """Return the part of a policy at a location, as written."""
    part: Any = policy
    for name, index in _STEP.findall(location):
        part = part[int(index)] if index else part[name]
    found: Mapping[str, Any] = part
    return found


def _rule(
    program: Program, policy: Mapping[str, Any], writer: OutlineWriter, *, existing: bool
) -> None:
    raw = written_at(policy, program.origin.location)
    kinds = list(_kinds(program.match.kinds()))
    writer.line("match", f"may be fired by {', '.join(kinds) or 'no kind'}", kinds=kinds)
    if program.on_policy_change or existing:
        writer.line("match", "also runs on what exists when the policy changes")
    details = details_of(program)
    for entry in details.entries:
        writer.line("entry", f"has the context entry {entry.name}", name=entry.name)
    if isinstance(details, KyvernoRule) and raw.get("preconditions"):
        writer.line("precondition", f"preconditions {shown(raw['preconditions'])}")
    for target in details.targets:
        written = written_at(policy, target.location)
        means = {name: written[name] for name in _SELECTING if name in written}
        writer.line("target", f"target {shown(means)}", means=means)
    if program.verdict is not None:
        writer.line("target", "refuses what it fires for")
    elif program.changes_trigger:
        writer.line("target", "changes its trigger itself")
    reads = sorted({".".join(path) for path in program.reads if path})
    if reads:
        writer.line("reads", f"reads {', '.join(reads)}", paths=reads)
    if program.verdict is None:
        known = program.mutation.convergence
        writer.line("convergence", _CONVERGENCE[known], converges=known.value)


def _catch_up(policy: CompiledPolicy, program: Program, writer: OutlineWriter) -> None:
    """Write what happens to a trigger that could not be recorded."""
    if policy.failure_policy != IGNORE:
        return
    if program.changes_trigger:
        writer.line(
            "catch-up",
            "an object that is written while the webhook does not answer is not changed",
        )
        return
    reason = why_lost(policy, program)
    text = f"is lost, because {reason}" if reason else "is found later and caught up"
    writer.line("catch-up", f"a trigger that could not be recorded {text}", obstacle=reason)


def _kinds(scopes: Iterable[KindScope]) -> Iterable[str]:
    for scope in scopes:
        selector = scope.selector
        parts = [selector.group, selector.version, selector.kind]
        name = "/".join(part for part in parts if part != "*") or "*"
        name += f"/{selector.subresource}" if selector.subresource else ""
        yield name + (f" ({', '.join(scope.operations)})" if scope.operations else "")
