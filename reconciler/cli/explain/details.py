"""The parts of a rule that are explained one by one, where its dialect has such parts."""

from dataclasses import dataclass

from reconciler.dialects.kubemod.parts import Items
from reconciler.dialects.kyverno.entries import Entry
from reconciler.dialects.kyverno.mutation import Edit
from reconciler.dialects.kyverno.parts import KyvernoRule
from reconciler.dialects.kyverno.preconditions import Conditions
from reconciler.dialects.kyverno.template import Template
from reconciler.engine.program import Program


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetDetails:
    """A target of a rule: its location in the policy, and its parts."""

    location: str
    templates: tuple[Template, ...] = ()
    entries: tuple[Entry, ...] = ()
    preconditions: Conditions | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleDetails:
    """The parts of a rule.

    Attributes:
        filters: Whether its match consists of filters as written under ``match``.
        target_entries: Those of the entries that are evaluated for each target.
    """

    filters: bool = False
    entries: tuple[Entry, ...] = ()
    target_entries: tuple[Entry, ...] = ()
    preconditions: Conditions | None = None
    items: Items | None = None
    targets: tuple[TargetDetails, ...] = ()
    edits: tuple[Edit, ...] = ()


def details_of(program: Program) -> RuleDetails:
    """Return the parts of a rule; for a dialect without such parts, its items and targets."""
    parts = program.mutation
    if isinstance(parts, KyvernoRule):
        return RuleDetails(
            filters=True,
            entries=parts.entries,
            target_entries=parts.target_entries,
            preconditions=parts.preconditions,
            targets=tuple(
                TargetDetails(
                    location=target.location,
                    templates=target.templates,
                    entries=target.entries,
                    preconditions=target.preconditions,
                )
                for target in parts.targets
            ),
            edits=parts.edits,
        )
    needs = () if program.targets is None else program.targets.target_rights()
    return RuleDetails(
        items=program.condition if isinstance(program.condition, Items) else None,
        targets=tuple(TargetDetails(location=need.location) for need in needs),
    )
