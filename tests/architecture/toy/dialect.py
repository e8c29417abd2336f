"""A minimal policy language, whose policies label every object of a kind."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from reconciler.api.meta import Kind, Object, policy_ref
from reconciler.api.rights import Need, TargetNeed
from reconciler.dialects.base import Original
from reconciler.dialects.finding import Finding, Guard, Level, Scope
from reconciler.engine.context import Context
from reconciler.engine.given import Given
from reconciler.engine.match import (
    Decision,
    KindScope,
    Listing,
    MatchNeeds,
    Subject,
    Verdict,
    parse_kind,
)
from reconciler.engine.outcome import Convergence
from reconciler.engine.patch import KeyTable
from reconciler.engine.program import CompiledPolicy, Origin, Phase, Program, Projection
from reconciler.engine.targets import TargetQuery, name_pattern
from reconciler.errors import EvaluationError, InvalidPolicy

LABEL_RULES = Kind(
    group="toy.example", version="v1", kind="LabelRule", plural="labelrules", namespaced=False
)
NAMESPACE = ("request", "namespace")
NAME = ("request", "name")


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelRule:
    """All parts of a policy's only rule, which matches objects of a kind and changes them."""

    kind: str
    labels: Mapping[str, str]
    needs: MatchNeeds = field(default_factory=MatchNeeds)
    namespace: str = ""
    namespaces: None = None
    names: None = None
    loads: bool = False
    merge_keys: bool = False
    convergence: Convergence = Convergence.YES

    def evaluate(self, subject: Subject) -> Verdict:
        if subject.kind == self.kind:
            return Verdict(decision=Decision.MATCH)
        return Verdict(decision=Decision.NO_MATCH, reasons=(f"it is no {self.kind}",))

    def kinds(self) -> tuple[KindScope, ...]:
        return (KindScope(selector=parse_kind(self.kind), operations=()),)

    def listings(self, *, requests: bool = False) -> tuple[Listing, ...]:
        del requests
        kinds = (parse_kind(self.kind),)
        return (Listing(kinds=kinds, namespaces=None, names=None),)

    def bind(self, context: Context) -> Context:
        return context

    def read_rights(self) -> tuple[Need, ...]:
        return ()

    def queries(self, context: Context) -> tuple[list[TargetQuery], list[EvaluationError]]:
        request = context.data["request"]
        query = TargetQuery(
            index=0,
            api_version="v1",
            kind=self.kind,
            namespace=name_pattern(request["namespace"], exact=True),
            name=name_pattern(request["name"], exact=True),
            uid="",
            selector=None,
        )
        return [query], []

    def named_by_content(self, index: int) -> bool:
        del index
        return False

    def target_rights(self) -> tuple[TargetNeed, ...]:
        return (
            TargetNeed(
                location="spec",
                api_version="v1",
                kind=self.kind,
                namespaces=("",),
                anywhere=False,
                in_one=True,
                named=True,
                name="",
                looked_at=False,
            ),
        )

    def apply(
        self, index: int | None, context: Context, obj: Mapping[str, Any], keys: KeyTable
    ) -> dict[str, Any]:
        del index, context, keys
        meta = obj["metadata"]
        labels = {**(meta.get("labels") or {}), **self.labels}
        return {**obj, "metadata": {**meta, "labels": labels}}


@dataclass(frozen=True, slots=True)
class Toy:
    """The dialect, as the registry requires it."""

    name: str = "toy"
    kinds: tuple[Kind, ...] = (LABEL_RULES,)
    refusing: tuple[Kind, ...] = ()
    optional: bool = True
    original: Original | None = None
    annotations: tuple[str, ...] = ()

    def compile(
        self, policy: Object, *, given: Mapping[str, Given] | None = None
    ) -> CompiledPolicy:
        del given
        spec, meta, ref = policy["spec"], policy["metadata"], policy_ref(policy)
        if not isinstance(spec.get("kind"), str):
            raise InvalidPolicy("spec.kind", "name a kind, such as ConfigMap")
        rule = LabelRule(kind=spec["kind"], labels=spec.get("labels") or {})
        uid, generation = str(meta.get("uid", "")), int(meta.get("generation", 0))
        origin = Origin(
            dialect=self.name,
            policy=ref,
            uid=uid,
            generation=generation,
            rule="label",
            location="spec",
        )
        program = Program(
            origin=origin,
            phases=frozenset({Phase.TRIGGERED}),
            match=rule,
            binding=rule,
            condition=None,
            targets=rule,
            mutation=rule,
            projection=Projection(request=frozenset({"namespace", "name"})),
            reads=frozenset({NAMESPACE, NAME}),
            on_policy_change=True,
            skip_background=True,
        )
        return CompiledPolicy(ref=ref, uid=uid, generation=generation, programs=(program,))

    def examine(self, policy: Object) -> tuple[CompiledPolicy | None, tuple[InvalidPolicy, ...]]:
        try:
            return self.compile(policy), ()
        except InvalidPolicy as error:
            return None, (error,)

    def lint(
        self,
        policy: Object,
        compiled: CompiledPolicy,
        *,
        scope: Scope,
        guard: Guard,
        wrong: Sequence[InvalidPolicy] = (),
    ) -> Iterator[Finding]:
        del compiled, scope, guard, wrong
        if not policy["spec"].get("labels"):
            text = "the rule sets no label"
            yield Finding(level=Level.WARNING, code="no-labels", location="spec", text=text)


TOY = Toy()
