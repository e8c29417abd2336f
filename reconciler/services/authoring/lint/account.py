"""Findings on the annotation that names a policy's account: its form and its limits."""

from collections.abc import Iterator

from reconciler.api.meta import Object, own_namespaces
from reconciler.dialects.finding import Finding, Level, invalid
from reconciler.engine.program import CompiledPolicy, Phase, Program
from reconciler.errors import InvalidPolicy
from reconciler.requests.account import PLACE, named_account, parse_account
from reconciler.services.catalog.protection import Protection


def account_findings(policy: Object, protection: Protection) -> Iterator[Finding]:
    """Yield why a policy cannot use the account that it names."""
    try:
        parse_account(policy, reserved=own_namespaces(protection.namespace))
    except InvalidPolicy as error:
        yield invalid(error)


def unread_findings(policy: Object, compiled: CompiledPolicy) -> Iterator[Finding]:
    """Yield the rules that would have to read as the account before an object is stored."""
    rules = [item.rule for item in compiled.in_phase(Phase.ADMISSION) if _reads_itself(item)]
    if rules and named_account(policy) is not None:
        yield Finding(
            level=Level.WARNING,
            code="entry-at-admission",
            location=PLACE,
            text="nothing is read as the policy's account before an object is stored: every"
            f" request for which {', '.join(rules)} reads a context entry will fail",
            cure="move rules without mutate.targets that read something to another policy",
        )


def _reads_itself(program: Program) -> bool:
    """Return whether a rule reads more than GlobalContextEntries, which are for all rules."""
    binding = program.binding
    is_shared = program.global_entries != frozenset() and not any(binding.read_rights())
    return binding.loads and not is_shared
