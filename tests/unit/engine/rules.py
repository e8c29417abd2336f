"""Programs without a policy language, whose parts are plain functions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from reconciler.api.meta import Object, PolicyRef
from reconciler.api.rights import Need, TargetNeed
from reconciler.engine.context import Context, request_context
from reconciler.engine.exceptions import ExceptedRules, PolicyException
from reconciler.engine.match import Decision, KindScope, Listing, MatchNeeds, Subject, Verdict
from reconciler.engine.outcome import ConditionResult, Convergence, Unmet
from reconciler.engine.patch import KeyTable
from reconciler.engine.ports import Refusal
from reconciler.engine.program import Origin, Phase, Program, Projection
from reconciler.engine.run import RuleRun
from reconciler.engine.targets import TargetQuery
from reconciler.errors import EvaluationError

Change = Callable[[Context, Object], Object | Unmet]


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """Matches objects with all of these labels."""

    labels: Mapping[str, str] = field(default_factory=dict)
    needs: MatchNeeds = field(default_factory=MatchNeeds)
    namespace: str = ""
    namespaces: None = None
    names: None = None
    decision: Decision = Decision.MATCH

    def evaluate(self, subject: Subject) -> Verdict:
        for name, value in self.labels.items():
            if subject.labels.get(name) != value:
                return Verdict(decision=Decision.NO_MATCH, reasons=(f"no label {name}={value}",))
        return Verdict(decision=self.decision, reasons=("open",))

    def kinds(self) -> tuple[KindScope, ...]:
        return ()

    def listings(self, *, requests: bool = False) -> tuple[Listing, ...]:
        del requests
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Holds:
    """A condition that is a function of the data."""

    test: Callable[[Context], bool]
    roots: frozenset[str] = frozenset()
    reads: frozenset[tuple[str, ...]] = frozenset()

    def evaluate(self, context: Context) -> ConditionResult:
        return ConditionResult(passed=self.test(context))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The binding, targets and mutation of a program in one object."""

    change: Change
    names: Mapping[str, Callable[[Context], Any]] = field(default_factory=dict)
    loads: bool = False
    merge_keys: bool = False
    convergence: Convergence = Convergence.YES

    def bind(self, context: Context) -> Context:
        bound = context
        for name, value in self.names.items():
            bound = bound.defer(name, partial(value, context))
        return bound

    def read_rights(self) -> Sequence[Need]:
        return ()

    def queries(self, context: Context) -> tuple[list[TargetQuery], list[EvaluationError]]:
        del context
        return [], []

    def named_by_content(self, index: int) -> bool:
        del index
        return False

    def target_rights(self) -> Sequence[TargetNeed]:
        return ()

    def apply(
        self, index: int | None, context: Context, obj: Mapping[str, Any], keys: KeyTable
    ) -> Object | Unmet:
        del index, keys
        return self.change(context, dict(obj))


def unchanged(_: Context, obj: Object) -> Object:
    return obj


def label(**labels: str) -> Change:
    """Return a change that sets labels."""

    def change(_: Context, obj: Object) -> Object:
        meta = obj["metadata"]
        return {**obj, "metadata": {**meta, "labels": {**(meta.get("labels") or {}), **labels}}}

    return change


def make_rule(
    rule: str,
    change: Change = unchanged,
    *,
    policy: str = "p",
    match: Mapping[str, str] | None = None,
    decision: Decision = Decision.MATCH,
    condition: Callable[[Context], bool] | None = None,
    names: Mapping[str, Callable[[Context], Any]] | None = None,
    before: tuple[Program, ...] = (),
    targets: bool = False,
    tier: int | None = None,
    verdict: Refusal | None = None,
) -> Program:
    """Return a rule that changes its trigger or, with targets, other objects."""
    ref = PolicyRef(api_version="toy.example/v1", kind="Toy", name=policy)
    parts = Rule(change=change, names=names or {})
    return Program(
        origin=Origin(
            dialect="toy", policy=ref, uid=policy, generation=1, rule=rule, location="spec"
        ),
        phases=frozenset({Phase.TRIGGERED if targets else Phase.ADMISSION}),
        match=Labelled(labels=match or {}, decision=decision),
        binding=parts,
        condition=None if condition is None else Holds(test=condition),
        targets=parts if targets else None,
        mutation=parts,
        projection=Projection(),
        reads=frozenset(),
        on_policy_change=False,
        skip_background=False,
        tier=tier,
        verdict=verdict,
        before=before,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Says:
    """A refusal whose message names the team that the object belongs to."""

    heading: str = ""

    def message(self, context: Context) -> str:
        labels = context.data["request"]["object"]["metadata"]["labels"]
        return f"it belongs to {labels['team']}"


def make_exception(policy: str, rule: str, **labels: str) -> PolicyException:
    """Return an exception of a rule for triggers with these labels."""
    return PolicyException(
        key="ns/except",
        group="toy.example",
        rules=(ExceptedRules(policy=policy, accepts=rule.__eq__),),
        matcher=Labelled(labels=labels),
        conditions=None,
        projection=Projection(),
    )


def run_of(
    program: Program, obj: Mapping[str, Any], *exceptions: PolicyException, loads: Any = None
) -> RuleRun:
    """Return the run of a rule on an object that is being created."""
    meta = obj.get("metadata") or {}
    subject = Subject(
        obj=obj, group="", version="v1", kind="ConfigMap", name=meta["name"], operation="CREATE"
    )
    context = request_context(
        operation="CREATE",
        obj=obj,
        old_object=None,
        name=meta["name"],
        namespace="",
        kind=("", "v1", "ConfigMap"),
        user_info=None,
    )
    concerning = tuple(item for item in exceptions if item.concerns(program))
    return RuleRun.of(program, subject, context.with_loads(loads or {}), concerning)
