"""What the rules of a policy ask for, without a trigger."""

from collections.abc import Iterable, Mapping
from typing import Any

from reconciler.cli.explain.page import OPEN, Page, shown
from reconciler.engine.match import KindScope
from reconciler.engine.program import CompiledPolicy, Convergence, Program
from reconciler.services.lint.reads import of_program

_CONVERGENCE = {
    Convergence.YES: "applied to its own result, it changes nothing",
    Convergence.PROBED: "whether it changes its own result again is seen at each object",
    Convergence.NO: "it changes its own result again, each time it runs",
}
_SELECTING = ("apiVersion", "kind", "namespace", "name", "uid", "selector")


def outline(policy: Mapping[str, Any], compiled: CompiledPolicy, page: Page) -> None:
    """Write what the rules of a policy ask for."""
    page.head(f"{compiled.kind} {compiled.key}")
    for warning in compiled.warnings:
        page.inner.answer(OPEN, warning)
    for program in compiled.programs:
        _rule(program, raw_rule(policy, program), page.inner)
    page.line("Give an object with --trigger to see what happens to it.")


def raw_rule(policy: Mapping[str, Any], program: Program) -> Mapping[str, Any]:
    """Return a rule as its author wrote it."""
    index = int(program.origin.location.rpartition("[")[2].rstrip("]"))
    rule: Mapping[str, Any] = policy["spec"]["rules"][index]
    return rule


def _rule(program: Program, raw: Mapping[str, Any], page: Page) -> None:
    page.head(f"rule {program.rule} ({program.origin.location})")
    inner = page.inner
    inner.line(f"may be fired by {', '.join(_kinds(program.matcher.kinds()))}")
    if program.on_policy_change:
        inner.line("also runs on what exists when the policy changes")
    for entry in program.entries:
        inner.line(f"has the context entry {entry.name}")
    if raw.get("preconditions"):
        inner.line(f"preconditions {shown(raw['preconditions'])}")
    for target in raw["mutate"]["targets"]:
        inner.line(
            f"target {shown({name: target[name] for name in _SELECTING if name in target})}"
        )
    reads = sorted({".".join(path) for item in of_program(program) for path in item.reads})
    if reads:
        inner.line(f"reads {', '.join(reads)}")
    inner.line(_CONVERGENCE[program.convergence])


def _kinds(scopes: Iterable[KindScope]) -> Iterable[str]:
    for scope in scopes:
        selector = scope.selector
        parts = [selector.group, selector.version, selector.kind]
        name = "/".join(part for part in parts if part != "*") or "*"
        name += f"/{selector.subresource}" if selector.subresource else ""
        yield name + (f" ({', '.join(scope.operations)})" if scope.operations else "")
