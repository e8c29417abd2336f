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
from reconciler.dialects.kinitiras.rule import Rule, read_spec
from reconciler.dialects.kinitiras.scope import Scope
from reconciler.engine.itself import on_existing
from reconciler.engine.program import FAIL, CompiledPolicy, Origin, Phase, Program, Projection
from reconciler.errors import InvalidPolicy

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

    Raises:
        InvalidPolicy: The policy is invalid; it holds all errors with their locations.
    """
    ref, meta = policy_ref(policy), policy["metadata"]
    validates = ref.kind == CLUSTER_VALIDATE_POLICIES.kind
    selectors, rules = read_spec(policy.get("spec"), validates=validates, home=ref.namespace)
    label = read_label(policy)
    uid, generation = str(meta.get("uid", "")), int(meta.get("generation") or 0)
    field = "validateRules" if validates else "overrideRules"
    programs: list[Program] = []
    for index, rule in enumerate(rules):
        origin = Origin(
            dialect=dialect,
            policy=ref,
            uid=uid,
            generation=generation,
            rule=f"{field}[{index}]",
            location=f"spec.{field}[{index}]",
            selectors="spec.resourceSelectors",
        )
        scope = Scope(namespace=ref.namespace, selectors=selectors, operations=rule.operations)
        if rule.operations:
            programs.append(_program(rule, origin, scope, label))
    wanted = wants_existing(policy)
    existing = _on_existing(policy, programs) if wanted else ()
    return CompiledPolicy(
        ref=ref,
        uid=uid,
        generation=generation,
        programs=tuple(programs),
        on_existing=existing,
        failure_policy=failure_policy_of(policy, default=FAIL),
        warnings=(*_warnings(rules), *_past(programs if wanted else (), existing)),
        object_labels=(label,) if label else (),
        cue=tuple(
            (source.location, source.source)
            for rule in rules
            for source in rule.sources
            if isinstance(source, CueProgram)
        ),
    )


def _on_existing(policy: Object, programs: Sequence[Program]) -> tuple[Program, ...]:
    """Return the programs for existing objects, of all rules that do not read the old object."""
    if policy["kind"] == CLUSTER_VALIDATE_POLICIES.kind:
        raise InvalidPolicy(
            EXISTING, "validate rules do not apply to existing objects; remove the annotation"
        )
    if not policy["spec"].get("resourceSelectors"):
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


def _warnings(rules: Sequence[Rule]) -> Iterator[str]:
    for index, rule in enumerate(rules):
        if not rule.operations:
            yield f"spec.overrideRules[{index}] is for operations that change no object"


def _program(rule: Rule, origin: Origin, scope: Scope, label: tuple[str, str] | None) -> Program:
    refusal, overriders = rule.condition, rule.overriders
    return Program(
        origin=origin,
        phases=frozenset({Phase.VERDICT if refusal else Phase.ADMISSION}),
        match=scope,
        binding=Names(rule.sources),
        condition=Labelled(label=label, rest=refusal) if label else refusal,
        targets=None,
        mutation=overriders or Unchanged(),
        projection=_PROJECTION,
        reads=frozenset({_OBJECT}).union(*(source.reads for source in rule.sources)),
        on_policy_change=False,
        skip_background=False,
        appends=overriders is not None and overriders.appends,
        filtered=False,
        tier=_SECOND if origin.policy.kind == OVERRIDE_POLICIES.kind else _FIRST,
        verdict=Refusal(policy=origin.policy.key, refusal=refusal) if refusal else None,
    )
