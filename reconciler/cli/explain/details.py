"""The parts of a rule that are explained one by one, where its dialect has such parts."""

from dataclasses import dataclass
from typing import TypeAlias

from reconciler.dialects.kyverno.entries import Entry
from reconciler.dialects.kyverno.mutation import Edit
from reconciler.dialects.kyverno.parts import KyvernoRule
from reconciler.dialects.kyverno.preconditions import Conditions
from reconciler.dialects.kyverno.targets import Target
from reconciler.dialects.kyverno.template import Template
from reconciler.engine.program import Program


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainTarget:
    """A target of which only the location in the policy is known."""

    location: str
    templates: tuple[Template, ...] = ()
    entries: tuple[Entry, ...] = ()
    preconditions: Conditions | None = None


TargetDetails: TypeAlias = Target | PlainTarget


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainRule:
    """A rule of a dialect that has no such parts as a `KyvernoRule`."""

    targets: tuple[PlainTarget, ...]
    entries: tuple[Entry, ...] = ()
    target_entries: tuple[Entry, ...] = ()
    preconditions: Conditions | None = None
    edits: tuple[Edit, ...] = ()


def details_of(program: Program) -> KyvernoRule | PlainRule:
    """Return the parts of a rule."""
    if isinstance(program.mutation, KyvernoRule):
        return program.mutation
    needs = () if program.targets is None else program.targets.target_rights()
    return PlainRule(targets=tuple(PlainTarget(location=need.location) for need in needs))
