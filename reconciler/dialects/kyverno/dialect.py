"""The Kyverno language as an implementation of `Dialect`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from reconciler.api.kinds import kinds_of
from reconciler.api.meta import ANNOTATION_EXISTING, Kind, Object
from reconciler.dialects.base import PLACE as EXISTING
from reconciler.dialects.base import Original
from reconciler.dialects.finding import Finding, Guard, Scope
from reconciler.dialects.kyverno.autogen import ANNOTATION as AUTOGEN
from reconciler.dialects.kyverno.lint.defaults import default_findings
from reconciler.dialects.kyverno.lint.fields import existing_findings, rule_findings, spec_findings
from reconciler.dialects.kyverno.lint.firing import firing_findings, unused_entries
from reconciler.dialects.kyverno.lint.names import unclosed_variables, unknown_names, wrong_calls
from reconciler.dialects.kyverno.lint.patches import patch_findings
from reconciler.dialects.kyverno.lint.protected import protected_findings
from reconciler.dialects.kyverno.lint.refusals import (
    match_refusals,
    policy_refusals,
    rule_refusals,
)
from reconciler.dialects.kyverno.lint.targets import target_findings
from reconciler.dialects.kyverno.policy import compile_policy, examine_policy
from reconciler.engine.given import Given
from reconciler.engine.program import CompiledPolicy, Phase
from reconciler.errors import InvalidPolicy
from reconciler.installation import BESIDE, REPLACING, Installation


@dataclass(frozen=True, slots=True)
class Kyverno:
    """ClusterPolicy and Policy of Kyverno; see `reconciler.dialects.base.Dialect`.

    Attributes:
        installation: Determines the API group of the policies; the language is the same.
    """

    installation: Installation = REPLACING
    name: str = "kyverno"
    refusing: tuple[Kind, ...] = ()
    optional: bool = False
    original: Original | None = None
    annotations: tuple[str, ...] = (AUTOGEN, ANNOTATION_EXISTING)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Return the kinds of policies."""
        known = kinds_of(self.installation)
        return known.cluster_policies, known.policies

    def compile(
        self, policy: Object, *, given: Mapping[str, Given] | None = None
    ) -> CompiledPolicy:
        """Return the programs of a policy's rules."""
        return compile_policy(policy, given=given)

    def examine(self, policy: Object) -> tuple[CompiledPolicy | None, tuple[InvalidPolicy, ...]]:
        """Return the policy with the rules that compile, and the errors in the rest."""
        return examine_policy(policy)

    def lint(
        self,
        policy: Object,
        compiled: CompiledPolicy,
        *,
        scope: Scope,
        guard: Guard,
        wrong: Sequence[InvalidPolicy] = (),
    ) -> Iterator[Finding]:
        """Yield the findings that the text of the policy shows."""
        spec = policy["spec"]
        background = spec.get("background") is not False
        of_trigger = not compiled.in_phase(Phase.TRIGGERED)
        # Generated programs come after the program of their rule, and have the same location.
        programs = {item.origin.location: item for item in reversed(compiled.programs)}
        yield from policy_refusals(policy)
        yield from spec_findings(spec)
        if not any(error.is_within(EXISTING) for error in wrong):
            yield from existing_findings(policy, compiled)
        on_existing = {item.origin.location: item for item in reversed(compiled.on_existing)}
        for index, rule in enumerate(spec["rules"]):
            location = f"spec.rules[{index}]"
            if any(error.is_within(location) for error in wrong):
                continue
            yield from rule_refusals(rule, location, background=background and of_trigger)
            program = programs.get(location)
            if program is None:
                continue
            yield from match_refusals(rule, location)
            yield from rule_findings(rule, location)
            running = on_existing.get(location, program)
            yield from firing_findings(running, background=background)
            yield from unused_entries(program)
            yield from wrong_calls(program)
            yield from unknown_names(program)
            yield from unclosed_variables(rule, location)
            yield from protected_findings(program, rule, guard)
            yield from target_findings(program, scope)
            yield from patch_findings(program, rule)
            yield from default_findings(program)


KYVERNO: Final = Kyverno()
KYVERNO_BESIDE: Final = Kyverno(BESIDE)
"""The same language in kube-retrofit's own API group, for use beside a running Kyverno."""
