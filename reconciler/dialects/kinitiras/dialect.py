"""This language, as the registry knows it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from reconciler.api.meta import Kind, Object, policy_ref
from reconciler.dialects.finding import Finding, Guard
from reconciler.dialects.finding import Scope as KindNames
from reconciler.dialects.kinitiras.parts import Names, Refusal, Unchanged
from reconciler.dialects.kinitiras.rule import OverrideRule, ValidateRule, read_spec
from reconciler.dialects.kinitiras.scope import Scope
from reconciler.engine.given import Given
from reconciler.engine.program import CompiledPolicy, Origin, Phase, Program, Projection
from reconciler.errors import InvalidPolicy

GROUP: Final = "policy.kcloudlabs.io"
_OVERRIDES: Final = Kind(
    group=GROUP,
    version="v1alpha1",
    kind="OverridePolicy",
    plural="overridepolicies",
    namespaced=True,
)
_CLUSTER_OVERRIDES: Final = replace(
    _OVERRIDES,
    kind="ClusterOverridePolicy",
    plural="clusteroverridepolicies",
    namespaced=False,
)
_CLUSTER_VALIDATIONS: Final = replace(
    _CLUSTER_OVERRIDES, kind="ClusterValidatePolicy", plural="clustervalidatepolicies"
)
_SECONDS: Final = 3
_PATCHED: Final = ("CREATE", "UPDATE")
"""A request of another operation carries no object that could be changed."""


@dataclass(frozen=True, slots=True)
class Kinitiras:
    """Policies of kinitiras; see `reconciler.dialects.base.Dialect`."""

    name: str = "kinitiras"
    kinds: tuple[Kind, ...] = (_CLUSTER_OVERRIDES, _OVERRIDES, _CLUSTER_VALIDATIONS)
    optional: bool = True
    annotations: tuple[str, ...] = ()

    def compile(
        self, policy: Object, *, given: Mapping[str, Given] | None = None
    ) -> CompiledPolicy:
        """Return the programs of a policy; nothing can be given in place of their parts."""
        del given
        ref, meta = policy_ref(policy), policy["metadata"]
        validates = ref.kind == _CLUSTER_VALIDATIONS.kind
        spec = read_spec(policy.get("spec"), validates=validates)
        uid, generation = str(meta.get("uid", "")), int(meta.get("generation") or 0)
        field = "validateRules" if validates else "overrideRules"
        programs: list[Program] = []
        for index, rule in enumerate(spec.rules):
            location = f"spec.{field}[{index}]"
            origin = Origin(
                dialect=self.name,
                policy=ref,
                uid=uid,
                generation=generation,
                rule=f"{field}[{index}]",
                location=location,
            )
            operations = _operations(rule)
            scope = Scope(namespace=ref.namespace, selectors=spec.selectors, operations=operations)
            if operations:
                programs.append(_program(rule, origin, scope))
        return CompiledPolicy(
            ref=ref,
            uid=uid,
            generation=generation,
            programs=tuple(programs),
            timeout=_SECONDS,
            warnings=_warnings(spec.rules),
        )

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
        scope: KindNames,
        guard: Guard,
        wrong: Sequence[InvalidPolicy] = (),
    ) -> Iterator[Finding]:
        """Yield nothing: what compiles holds no surprise of its own."""
        del policy, compiled, scope, guard, wrong
        return iter(())


def _operations(rule: OverrideRule | ValidateRule) -> tuple[str, ...]:
    if isinstance(rule, ValidateRule):
        return rule.operations
    return tuple(name for name in rule.operations if name in _PATCHED)


def _warnings(rules: Sequence[OverrideRule | ValidateRule]) -> tuple[str, ...]:
    return tuple(
        f"spec.overrideRules[{index}] is for operations that change no object"
        for index, rule in enumerate(rules)
        if not _operations(rule)
    )


def _program(rule: OverrideRule | ValidateRule, origin: Origin, scope: Scope) -> Program:
    refusal = rule.condition if isinstance(rule, ValidateRule) else None
    reads = frozenset({("request", "object"), ("request", "oldObject")})
    return Program(
        origin=origin,
        phases=frozenset({Phase.ADMISSION}),
        match=scope,
        binding=Names(),
        condition=refusal,
        targets=None,
        mutation=Unchanged() if isinstance(rule, ValidateRule) else rule.overriders,
        projection=Projection(
            object=frozenset({()}), old_object=frozenset({()}), request=frozenset({"operation"})
        ),
        reads=reads,
        on_policy_change=False,
        skip_background=False,
        verdict=Refusal(policy=origin.policy.key, text=refusal.text) if refusal else None,
    )


KINITIRAS: Final = Kinitiras()
