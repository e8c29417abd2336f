"""Findings on protected targets and objects, for all languages."""

from collections.abc import Iterator

from reconciler.dialects.finding import Finding, Level
from reconciler.engine.program import Program
from reconciler.services.catalog.protection import Protection


def protected_targets(program: Program, protection: Protection) -> Iterator[Finding]:
    """Yield the targets of a rule that no policy may address."""
    for target in () if program.targets is None else program.targets.target_rights():
        for namespace in target.namespaces:
            if reason := protection.of_api_version(target.api_version, namespace):
                yield Finding(
                    level=Level.ERROR,
                    code="protected-target",
                    location=target.location,
                    text=reason,
                    cure="the controller refuses it too, whatever rights are granted",
                )
                break


def protected_objects(program: Program, protection: Protection) -> Iterator[Finding]:
    """Yield why a rule changes none of its matching objects before they are stored."""
    home = program.origin.namespace
    namespaces = (home,) if home else program.match.namespaces or ()
    reasons = [protection.of_admission(namespace) for namespace in namespaces]
    if reasons and all(reasons):
        yield Finding(
            level=Level.WARNING,
            code="protected-object",
            location=program.origin.selection,
            text=f"the rule changes nothing: {reasons[0]}",
            cure="match other namespaces, or remove the rule",
        )
