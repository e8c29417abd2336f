"""This language, as the registry knows it.

What its policies mean is imported when there is one: most commands and clusters see none.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from reconciler.api.kinds import (
    CLUSTER_OVERRIDE_POLICIES,
    CLUSTER_VALIDATE_POLICIES,
    OVERRIDE_POLICIES,
)
from reconciler.api.meta import ANNOTATION_EXISTING, Kind, Object
from reconciler.dialects.base import FAILURE_POLICY_ANNOTATION, Original
from reconciler.dialects.finding import Finding, Guard, Scope
from reconciler.dialects.kinitiras.labelled import ANNOTATION as OBJECTS_ANNOTATION
from reconciler.engine.given import Given
from reconciler.engine.program import CompiledPolicy
from reconciler.errors import InvalidPolicy

_ORIGINAL: Final = Original(
    name="kinitiras", kind="MutatingWebhookConfiguration", configuration="kinitiras-webhook"
)


@dataclass(frozen=True, slots=True)
class Kinitiras:
    """Policies of kinitiras; see `reconciler.dialects.base.Dialect`."""

    name: str = "kinitiras"
    kinds: tuple[Kind, ...] = (
        CLUSTER_OVERRIDE_POLICIES,
        OVERRIDE_POLICIES,
        CLUSTER_VALIDATE_POLICIES,
    )
    optional: bool = True
    original: Original | None = _ORIGINAL
    annotations: tuple[str, ...] = (
        ANNOTATION_EXISTING,
        FAILURE_POLICY_ANNOTATION,
        OBJECTS_ANNOTATION,
    )

    def compile(
        self, policy: Object, *, given: Mapping[str, Given] | None = None
    ) -> CompiledPolicy:
        """Return the programs of a policy; nothing can be given in place of their parts."""
        from reconciler.dialects.kinitiras.compiler import compile_policy  # noqa: PLC0415

        del given
        return compile_policy(policy, self.name)

    def examine(self, policy: Object) -> tuple[CompiledPolicy | None, tuple[InvalidPolicy, ...]]:
        """Return what compiles of a policy, and what is wrong with it."""
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
        """Yield what only the text of the policy shows."""
        from reconciler.dialects.kinitiras.lint import find_surprises  # noqa: PLC0415

        del scope, guard, wrong
        return find_surprises(policy, compiled)


KINITIRAS: Final = Kinitiras()
