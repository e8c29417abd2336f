"""This language, as the registry knows it.

What its rules mean is imported when there is one: most commands and clusters see none.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from reconciler.api.kinds import MOD_RULES
from reconciler.api.meta import ANNOTATION_EXISTING, Kind, Object
from reconciler.dialects.base import FAILURE_POLICY_ANNOTATION, Original
from reconciler.dialects.finding import Finding, Guard, Scope
from reconciler.dialects.kubemod.names import KINDS_ANNOTATION
from reconciler.engine.given import Given
from reconciler.engine.program import CompiledPolicy
from reconciler.errors import InvalidPolicy

_ORIGINAL: Final = Original(
    name="KubeMod",
    kind="MutatingWebhookConfiguration",
    configuration="kubemod-mutating-webhook-configuration",
)


@dataclass(frozen=True, slots=True)
class KubeMod:
    """ModRules of KubeMod; see `reconciler.dialects.base.Dialect`."""

    name: str = "kubemod"
    kinds: tuple[Kind, ...] = (MOD_RULES,)
    optional: bool = True
    annotations: tuple[str, ...] = (
        KINDS_ANNOTATION,
        FAILURE_POLICY_ANNOTATION,
        ANNOTATION_EXISTING,
    )
    original: Original | None = _ORIGINAL

    def compile(
        self, policy: Object, *, given: Mapping[str, Given] | None = None
    ) -> CompiledPolicy:
        """Return the program of a rule; nothing can be given in place of its parts."""
        from reconciler.dialects.kubemod.compiler import compile_rule  # noqa: PLC0415

        del given
        return compile_rule(policy, self.name)

    def examine(self, policy: Object) -> tuple[CompiledPolicy | None, tuple[InvalidPolicy, ...]]:
        """Return what compiles of a rule, and what is wrong with it."""
        try:
            return self.compile(policy), ()
        except InvalidPolicy as error:
            return None, (error, *error.others)

    def lint(
        self,
        policy: Object,
        compiled: CompiledPolicy,
        *,
        scope: Scope,
        guard: Guard,
        wrong: Sequence[InvalidPolicy] = (),
    ) -> Iterator[Finding]:
        """Yield what only the text of the rule shows."""
        from reconciler.dialects.kubemod.compiler import findings  # noqa: PLC0415

        del compiled, scope, guard, wrong
        return findings(policy)


KUBEMOD: Final = KubeMod()
