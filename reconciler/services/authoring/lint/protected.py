"""What no policy may address: findings about targets, whatever language names them."""

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
