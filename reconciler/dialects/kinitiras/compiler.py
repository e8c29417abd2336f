"""The compiler from a policy of kinitiras to programs."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from reconciler.api.kinds import CLUSTER_VALIDATE_POLICIES, OVERRIDE_POLICIES
from reconciler.api.meta import Object, policy_ref
from reconciler.dialects.base import PLACE as EXISTING
from reconciler.dialects.base import Unchanged, failure_policy_of, wants_existing
from reconciler.dialects.kinitiras.cue import CueProgram
from reconciler.dialects.kinitiras.labelled import Labelled, read_label
from reconciler.dialects.kinitiras.parts import Names, Refusal
from reconciler.dialects.kinitiras.rule import OverrideRule, Spec, ValidateRule, read_spec
from reconciler.dialects.kinitiras.scope import Scope
from reconciler.dialects.kinitiras.values import Source
from reconciler.engine.itself import on_existing
from reconciler.engine.program import FAIL, CompiledPolicy, Origin, Phase, Program, Projection
from reconciler.errors import InvalidPolicy

_SECONDS: Final = 3
_PATCHED: Final = ("CREATE", "UPDATE")
"""Requests of other operations carry no object to change."""
_OBJECT, _OLD = ("request", "object"), ("request", "oldObject")
_PROJECTION: Final = Projection(
    object=frozenset({()}),
    old_object=frozenset({()}),
    request=frozenset({"operation", "namespace"}),
)
_WITHOUT_OLD: Final = replace(_PROJECTION, old_object=frozenset())
_FIRST, _SECOND = 0, 1
"""The tiers. Cluster policies are matched on the object of the request, namespaced policies on
the object that the cluster policies left. Within a tier, policies apply in the order of names."""


def compile_policy(policy: Object, dialect: str) -> CompiledPolicy:
    """Return the compiled policy.

    Args:
        policy: The policy.
        dialect: The name of this dialect.

    Raises:
        InvalidPolicy: The policy is invalid; it holds all errors with their locations.
    """
    ref, meta = policy_ref(policy), policy["metadata"]
    validates = ref.kind == CLUSTER_VALIDATE_POLICIES.kind
    spec = read_spec(policy.get("spec"), validates=validates, home=ref.namespace)
    label = read_label(policy)
    uid, generation = str(meta.get("uid", "")), int(meta.get("generation") or 0)
    field = "validateRules" if validates else "overrideRules"
    programs: list[Program] = []
    for index, rule in enumerate(spec.rules):
        origin = Origin(
            dialect=dialect,
            policy=ref,
            uid=uid,
            generation=generation,
            rule=f"{field}[{index}]",
            location=f"spec.{field}[{index}]",
            selectors="spec.resourceSelectors",
        )
        operations = _operations(rule)
        scope = Scope(namespace=ref.namespace, selectors=spec.selectors, operations=operations)
        if operations:
            programs.append(_program(rule, origin, scope, label))
    wanted = wants_existing(policy)
    existing = _on_existing(policy, spec, programs) if wanted else ()
    return CompiledPolicy(
        ref=ref,
        uid=uid,
        generation=generation,
        programs=tuple(programs),
        on_existing=existing,
        failure_policy=failure_policy_of(policy, default=FAIL),
        timeout=_SECONDS,
        warnings=(*_warnings(spec.rules), *_past(programs if wanted else (), existing)),
        object_labels=(label,) if label else (),
        cue=_programs(spec.rules),
    )


def _programs(rules: Sequence[OverrideRule | ValidateRule]) -> tuple[tuple[str, str], ...]:
    return tuple(
        (source.location, source.source)
        for rule in rules
        for source in _sources(rule)
        if isinstance(source, CueProgram)
    )


def _sources(rule: OverrideRule | ValidateRule) -> tuple[Source, ...]:
    return rule.overriders.sources if isinstance(rule, OverrideRule) else rule.condition.sources


def _on_existing(policy: Object, spec: Spec, programs: Sequence[Program]) -> tuple[Program, ...]:
    """Return the programs for existing objects, of all rules that do not read the old object."""
    if policy["kind"] == CLUSTER_VALIDATE_POLICIES.kind:
        raise InvalidPolicy(
            EXISTING, "validate rules do not apply to existing objects; remove the annotation"
        )
    if not spec.selectors:
        raise InvalidPolicy(
            EXISTING, "it requires resourceSelectors, which select the existing objects"
        )
    return tuple(
        on_existing(replace(item, projection=_WITHOUT_OLD))
        for item in programs
        if _OLD not in item.reads
    )


def _past(programs: Sequence[Program], existing: Sequence[Program]) -> Iterator[str]:
    """Yield warnings about the rules of `programs` that do not run on existing objects."""
    known = {item.rule for item in existing}
    for item in programs:
        if item.rule not in known:
            yield (
                f"{item.origin.location} does not apply to existing objects:"
                " it reads the old object"
            )


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


def _program(
    rule: OverrideRule | ValidateRule,
    origin: Origin,
    scope: Scope,
    label: tuple[str, str] | None,
) -> Program:
    refusal = rule.condition if isinstance(rule, ValidateRule) else None
    overriders = rule.overriders if isinstance(rule, OverrideRule) else None
    sources = _sources(rule)
    return Program(
        origin=origin,
        phases=frozenset({Phase.VERDICT if refusal else Phase.ADMISSION}),
        match=scope,
        binding=Names(sources),
        condition=Labelled(label=label, rest=refusal) if label else refusal,
        targets=None,
        mutation=overriders or Unchanged(),
        projection=_PROJECTION,
        reads=frozenset({_OBJECT}).union(*(source.reads for source in sources)),
        on_policy_change=False,
        skip_background=False,
        appends=overriders is not None and overriders.appends,
        filtered=False,
        tier=_SECOND if origin.policy.kind == OVERRIDE_POLICIES.kind else _FIRST,
        verdict=Refusal(policy=origin.policy.key, refusal=refusal) if refusal else None,
    )
