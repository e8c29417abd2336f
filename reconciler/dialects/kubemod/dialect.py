"""This language, as the registry knows it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from reconciler.api.kinds import MOD_RULES
from reconciler.api.meta import ANNOTATION_EXISTING, Kind, Object, policy_ref
from reconciler.dialects.base import PLACE, Original, Unchanged, wants_existing
from reconciler.dialects.finding import Finding, Guard, Scope
from reconciler.dialects.kubemod.kinds import KINDS_ANNOTATION, is_namespaced, kinds_of
from reconciler.dialects.kubemod.lint import rule_findings
from reconciler.dialects.kubemod.parts import Items, Names, Rejection
from reconciler.dialects.kubemod.rule import Rule, read_rule
from reconciler.dialects.kubemod.scope import Scope as RuleScope
from reconciler.engine.given import Given
from reconciler.engine.itself import on_existing
from reconciler.engine.match import KindSelector
from reconciler.engine.match.kinds import KindTable
from reconciler.engine.program import (
    FAIL,
    IGNORE,
    CompiledPolicy,
    Origin,
    Phase,
    Program,
    Projection,
)
from reconciler.errors import InvalidPolicy

SYSTEM_NAMESPACE: Final = "kubemod-system"
"""Rules in it are for the whole cluster."""
FAILURE_POLICY_ANNOTATION: Final = "kube-retrofit.dev/failure-policy"
"""``Fail`` refuses what a rule cannot be asked about; without it such a request is admitted."""

_ORIGINAL: Final = Original(
    name="KubeMod",
    kind="MutatingWebhookConfiguration",
    configuration="kubemod-mutating-webhook-configuration",
)
_OBJECT: Final = ("request", "object")
_NAMESPACE: Final = ("request", "namespace")


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
        del given
        ref, meta = policy_ref(policy), policy["metadata"]
        rule = read_rule(policy.get("spec"))
        uid, generation = str(meta.get("uid", "")), int(meta.get("generation") or 0)
        origin = Origin(
            dialect=self.name,
            policy=ref,
            uid=uid,
            generation=generation,
            rule="reject" if rule.patch is None else "patch",
            location="spec",
            everywhere=ref.namespace == SYSTEM_NAMESPACE,
        )
        annotations = meta.get("annotations") or {}
        program = _program(rule, origin, annotations)
        existing = wants_existing(policy)
        if existing and (reason := _why_not_on_existing(rule)):
            raise InvalidPolicy(PLACE, reason)
        return CompiledPolicy(
            ref=ref,
            uid=uid,
            generation=generation,
            programs=(program,),
            on_existing=(on_existing(program),) if existing else (),
            kinds=tuple(sorted(_named(scope.selector) for scope in program.match.kinds())),
            failure_policy=_failure_policy(annotations),
        )

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
        del scope, guard, wrong
        in_system = compiled.ref.namespace == SYSTEM_NAMESPACE
        yield from rule_findings(policy, read_rule(policy["spec"]), in_system=in_system)


def _program(rule: Rule, origin: Origin, annotations: Mapping[str, Any]) -> Program:
    selectors = kinds_of(rule.items, str(annotations.get(KINDS_ANNOTATION) or ""))
    in_system = origin.everywhere
    if in_system and rule.pattern is None:
        # It is for what is cluster-scoped: nobody has to be asked about the others.
        selectors = tuple(item for item in selectors if not is_namespaced(item))
    names = rule.references
    return Program(
        origin=origin,
        phases=frozenset({Phase.ADMISSION if rule.patch else Phase.VERDICT}),
        match=RuleScope(
            home="" if in_system else origin.policy.namespace or "default",
            pattern=rule.pattern if in_system else None,
            operations=rule.operations,
            selectors=selectors,
            table=KindTable(selectors),
        ),
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


def _named(kind: KindSelector) -> str:
    """Return how people write a kind, as ``Deployment.apps``."""
    return kind.kind if kind.group in ("", "*") else f"{kind.kind}.{kind.group}"


def _why_not_on_existing(rule: Rule) -> str:
    if rule.patch is None:
        return "a rule of type Reject does nothing to what exists; remove the annotation"
    if not set(rule.operations) & {"CREATE", "UPDATE"}:
        return "a rule for DELETE only changes nothing that exists; remove the annotation"
    return ""


def _failure_policy(annotations: Mapping[str, Any]) -> str:
    given = annotations.get(FAILURE_POLICY_ANNOTATION, IGNORE)
    if given not in (FAIL, IGNORE):
        place = f"metadata.annotations[{FAILURE_POLICY_ANNOTATION}]"
        raise InvalidPolicy(place, f"{FAIL} or {IGNORE} is expected")
    return str(given)


KUBEMOD: Final = KubeMod()
