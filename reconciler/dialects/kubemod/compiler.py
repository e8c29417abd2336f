"""The compiler from a ModRule to programs."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from reconciler.api.meta import Object, policy_ref
from reconciler.dialects.base import (
    PLACE,
    Unchanged,
    annotations_of,
    failure_policy_of,
    wants_existing,
)
from reconciler.dialects.finding import Finding
from reconciler.dialects.kubemod.binding import on_binding
from reconciler.dialects.kubemod.kinds import inside_a_namespace, is_namespaced, kinds_of
from reconciler.dialects.kubemod.lint import rule_findings
from reconciler.dialects.kubemod.names import KINDS_ANNOTATION, SYSTEM_NAMESPACE
from reconciler.dialects.kubemod.parts import Items, Names, Rejection
from reconciler.dialects.kubemod.rule import Rule, read_rule
from reconciler.dialects.kubemod.scope import Scope
from reconciler.engine.itself import on_existing
from reconciler.engine.match import KindSelector
from reconciler.engine.match.kinds import KindTable
from reconciler.engine.program import IGNORE, CompiledPolicy, Origin, Phase, Program, Projection
from reconciler.errors import InvalidPolicy

_OBJECT: Final = ("request", "object")
_NAMESPACE: Final = ("request", "namespace")


def compile_rule(policy: Object, dialect: str) -> CompiledPolicy:
    """Return the compiled policy of a ModRule.

    Raises:
        InvalidPolicy: The rule is invalid; it holds all errors with their locations.
    """
    ref, meta = policy_ref(policy), policy["metadata"]
    rule = read_rule(policy.get("spec"))
    uid, generation = str(meta.get("uid", "")), int(meta.get("generation") or 0)
    origin = Origin(
        dialect=dialect,
        policy=ref,
        uid=uid,
        generation=generation,
        rule="reject" if rule.patch is None else "patch",
        location="spec",
        everywhere=ref.namespace == SYSTEM_NAMESPACE,
    )
    program, *others = _programs(rule, origin, annotations_of(policy))
    existing = wants_existing(policy)
    if existing and (reason := _why_not_on_existing(rule)):
        raise InvalidPolicy(PLACE, reason)
    return CompiledPolicy(
        ref=ref,
        uid=uid,
        generation=generation,
        programs=(program, *others),
        on_existing=(on_existing(program),) if existing else (),
        kinds=tuple(sorted(_named(scope.selector) for scope in program.match.kinds())),
        failure_policy=failure_policy_of(policy, default=IGNORE),
    )


def findings(policy: Object, compiled: CompiledPolicy) -> Iterator[Finding]:
    """Yield the findings about the text of a ModRule."""
    del compiled
    in_system = policy_ref(policy).namespace == SYSTEM_NAMESPACE
    yield from rule_findings(policy, read_rule(policy["spec"]), in_system=in_system)


def _programs(rule: Rule, origin: Origin, annotations: Mapping[str, Any]) -> Iterator[Program]:
    selectors = kinds_of(rule.items, str(annotations.get(KINDS_ANNOTATION) or ""))
    in_system = origin.everywhere
    if in_system and rule.pattern is None:
        # It applies to cluster-scoped objects only, so the webhook needs no other kinds.
        selectors = tuple(item for item in selectors if not is_namespaced(item))
    elif not in_system:
        selectors = inside_a_namespace(selectors)
    names = rule.references
    scope = Scope(
        namespace="" if in_system else origin.policy.namespace or "default",
        pattern=rule.pattern if in_system else None,
        operations=rule.operations,
        selectors=selectors,
        table=KindTable(selectors),
    )
    program = Program(
        origin=origin,
        phases=frozenset({Phase.ADMISSION if rule.patch else Phase.VERDICT}),
        match=scope,
        binding=Names(references=names, home=origin.namespace),
        condition=Items(items=rule.items, references=names),
        targets=None,
        mutation=rule.patch or Unchanged(),
        projection=Projection(
            object=frozenset({()}), request=frozenset({"namespace", "operation"})
        ),
        reads=frozenset({_OBJECT, _NAMESPACE}),
        on_policy_change=False,
        skip_background=False,
        appends=rule.patch is not None and rule.patch.appends,
        filtered=False,
        tier=rule.tier,
        verdict=None
        if rule.patch
        else Rejection(rule=origin.policy.key, text=rule.message, references=names),
    )
    yield program
    if rule.names_node and scope.may_be("Pod"):
        yield on_binding(program, scope)


def _named(kind: KindSelector) -> str:
    """Return the display form of a kind, as ``Deployment.apps``."""
    return kind.kind if kind.group in ("", "*") else f"{kind.kind}.{kind.group}"


def _why_not_on_existing(rule: Rule) -> str:
    if rule.patch is None:
        return "a rule of type Reject does not apply to existing objects; remove the annotation"
    if not set(rule.operations) & {"CREATE", "UPDATE"}:
        return "a rule for DELETE does not apply to existing objects; remove the annotation"
    return ""
