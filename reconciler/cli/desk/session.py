"""Evaluation of policies on triggers, in order, with the chain that admission uses."""

from collections.abc import AsyncIterator, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from reconciler.api.meta import Object, PolicyRef
from reconciler.cli.desk.file_objects import FileObjects, Key, key_of
from reconciler.cli.desk.operations import POLICY_UPDATE, Operation, operation_for
from reconciler.cli.desk.request import Request, environment_now, with_values
from reconciler.cli.desk.values import DeskValues, Values
from reconciler.dialects.registry import DIALECTS
from reconciler.engine.chain import Chain, Group, Step, StepResult, grouped
from reconciler.engine.exceptions import PolicyException, skipped
from reconciler.engine.match import UserInfo
from reconciler.engine.outcome import RuleStatus, TargetChange
from reconciler.engine.patch import SHIPPED, KeyTable
from reconciler.engine.program import CompiledPolicy, Program
from reconciler.engine.run import RuleRun
from reconciler.errors import ClusterError, RetrofitError
from reconciler.services.processing.loading import Loads
from reconciler.services.processing.selection import SelectedTarget

if TYPE_CHECKING:
    from reconciler.cli.desk.live_objects import LiveObjects

NO_TARGET = "no object matches the targets of the rule"
NO_TARGETS_GIVEN = (
    "skipped, because none of its targets is given: name them with --target-resource FILE"
)
NOT_ON_CHANGE = "mutateExistingOnPolicyUpdate is not true for this rule"
_OPERATION = "request.operation"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleResult:
    """The result of a rule for one object.

    Attributes:
        trigger: The trigger as the rule saw it.
        target: Whether the object is a target; otherwise it is the trigger itself.
        unchanged: Whether the object already is as the rule requires.
        lacking: Whether the rule is skipped for missing input; this is reported as a warning.
        before: The object before; the trigger where no target was found.
        after: The object afterwards, equal to ``before`` unless the status is PASS.
    """

    policy: str
    rule: str
    status: RuleStatus
    message: str
    trigger: Mapping[str, Any]
    operation: Operation
    target: bool
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    unchanged: bool = False
    lacking: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerRun:
    """All results for one trigger, and its final state.

    Attributes:
        results: Results of the rules that match the trigger.
        others: Results of the rules that do not match.
        by_policy: The trigger after each policy, by the policy's key.
        loads: The data that rules loaded, by load.
    """

    trigger: Object
    results: tuple[RuleResult, ...]
    others: tuple[RuleResult, ...]
    after: Mapping[str, Any]
    by_policy: Mapping[str, Mapping[str, Any]]
    loads: Mapping[Hashable, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Evaluates policies on the objects of a source.

    Attributes:
        user: The sender of the requests, with the fields that expressions see; None if not given.
        operation: The operation of the requests; None for the one of `operation_for`.
        chained: Whether later rules see the changes of earlier rules to targets, as in a cluster.
            Otherwise each rule sees the targets as in their files.
        targets_given: Whether targets were given; if so, a missing target is an error, not a skip.
        changed: The changed objects so far.
        begun: The triggers so far; another object of the same name is evaluated as it was read.
        environment: Time and random numbers for expressions; the time is fixed for a session.
    """

    policies: Sequence[CompiledPolicy]
    file_objects: "FileObjects | LiveObjects"
    values: DeskValues
    user: tuple[UserInfo, Mapping[str, Any]] | None = None
    operation: str | None = None
    exceptions: Sequence[PolicyException] = ()
    chained: bool = True
    targets_given: bool = True
    changed: dict[Key, Mapping[str, Any]] = field(default_factory=dict)
    begun: set[Key] = field(default_factory=set)
    environment: Mapping[str, Any] = field(default_factory=environment_now)

    async def run(self, trigger: Object, operation: str = "") -> TriggerRun:
        """Return the results of the policies for a trigger and for their targets.

        Args:
            trigger: The object as read; it is not modified. Rules see it as earlier runs changed
                it as a target.
            operation: The operation for this run; empty for the default.
        """
        trigger = self._current(trigger)
        groups = self._groups(trigger)
        chain = Chain(groups=groups, obj=trigger, entering=self._entering)
        results: list[RuleResult] = []
        others: list[RuleResult] = []
        by_policy: dict[str, Mapping[str, Any]] = {}
        loads: dict[Hashable, Any] = {}
        for step in chain.steps():
            work = self._work(step, operation)
            run, ended = await self._at_trigger(work)
            chain.settle(ended)
            by_policy[ended.policy.key] = chain.obj
            if not ended.matched:
                others.append(work.at_trigger(ended))
            elif run is not None and ended.fired and not step.program.changes_trigger:
                results += [result async for result in self._at_targets(work, run)]
            else:
                results.append(work.at_trigger(ended))
                self._keep(results[-1])
            loads |= work.loads.found
        return TriggerRun(
            trigger=trigger,
            results=tuple(results),
            others=tuple(others),
            after=chain.obj,
            by_policy=by_policy,
            loads=loads,
        )

    def _current(self, trigger: Object) -> Object:
        key = key_of(trigger)
        if not self.chained or key in self.begun:
            return trigger
        self.begun.add(key)
        kept = self.changed.get(key)
        return trigger if kept is None else dict(kept)

    def _groups(self, trigger: Object) -> tuple[Group, ...]:
        # In the order in which policies are given, as Kyverno's command applies them; languages
        # with tiers follow in the order of their webhooks.
        programs = (
            program
            for policy in self.policies
            for program in policy.programs
            if program.match.namespace in ("", _namespace(trigger))
        )
        return grouped(programs, [dialect.name for dialect in DIALECTS])

    def _entering(self, policy: PolicyRef, obj: Mapping[str, Any]) -> Mapping[str, Any]:
        return self.values.with_fields(policy.name, obj)

    def _work(self, step: Step, operation: str) -> "_Work":
        program = step.program
        values = self.values.of_trigger(program.origin.policy.name, program.rule, step.obj)
        chosen = operation_for(
            program,
            flag=operation or self.operation,
            value=values.get(_OPERATION),
            sent=self.user is not None,
        )
        return _Work(step=step, operation=chosen, values=values, loads=Loads(self.file_objects))

    async def _at_trigger(self, work: "_Work") -> tuple[RuleRun | None, StepResult]:
        step, program = work.step, work.step.program
        if work.operation.name == POLICY_UPDATE and not program.on_policy_change:
            return None, step.skip(NOT_ON_CHANGE, matched=False)
        run: RuleRun | None = None
        try:
            labels = await self._labels(program, _namespace(step.obj))
            run = self._run(work, step.obj, labels)
            keys = await self._keys(program, step.obj) if program.changes_trigger else SHIPPED
            ended = await work.loads.evaluate(
                partial(step.evaluate, partial(self._again, run, work), keys)
            )
            return run, step.checked(ended)
        except RetrofitError as error:
            return run, step.failed(error)

    async def _at_targets(self, work: "_Work", run: RuleRun) -> AsyncIterator[RuleResult]:
        selection = await self.file_objects.finder.select(run, work.loads)
        for wrong in selection.errors:
            yield work.fired(RuleStatus.ERROR, str(wrong))
        missing = [item.message for item in selection.failures]
        met = False
        for found in selection.found:
            try:
                obj = await self._read(found)
            except ClusterError as error:
                missing.append(str(error))
                continue
            met = True
            if not found.key.kind.subresource and not found.query.accepts(obj):
                yield work.at(obj, _skip(obj, "the object does not match the target's selector"))
                continue
            result = work.at(obj, await self._change(run, found, work.loads, obj))
            self._keep(result)
            yield result
        if not (met or selection.errors or self.targets_given):
            yield replace(work.fired(RuleStatus.SKIP, NO_TARGETS_GIVEN), lacking=True)
            return
        for message in missing:
            yield work.fired(RuleStatus.ERROR, message)
        if not (met or missing or selection.errors):
            yield work.fired(RuleStatus.SKIP, NO_TARGET)

    async def _change(
        self, run: RuleRun, found: SelectedTarget, loads: Loads, obj: Object
    ) -> TargetChange:
        program = run.program
        values = self.values.of_target(program.origin.policy.name, obj)
        if values:
            run = replace(run, context=with_values(run.context, values))
        try:
            labels = await self._labels(program, _namespace(obj)) if run.exceptions else {}
            excepted = await loads.evaluate(lambda: run.excepted_at(found.key.kind, obj, labels))
            if excepted:
                return _skip(obj, skipped(excepted))
            keys = await self._keys(program, obj)
            return await loads.evaluate(lambda: run.change(found.query.index, obj, keys=keys))
        except RetrofitError as error:
            return TargetChange(status=RuleStatus.ERROR, message=str(error), after=obj)

    async def _keys(self, program: Program, obj: Mapping[str, Any]) -> KeyTable:
        if not program.mutation.merge_keys:
            return SHIPPED
        return await self.file_objects.merge_keys(str(obj.get("apiVersion", "")))

    async def _read(self, found: SelectedTarget) -> Object:
        key = found.key
        kept = self.changed.get((key.kind.api_version, key.kind.kind, key.namespace, key.name))
        if kept is not None:
            return dict(kept)
        return await self.file_objects.target(found)

    def _keep(self, result: RuleResult) -> None:
        if self.chained and result.status is RuleStatus.PASS:
            self.changed[key_of(result.after)] = result.after

    def _run(self, work: "_Work", obj: Mapping[str, Any], labels: Mapping[str, str]) -> RuleRun:
        program = work.step.program
        values = {path: value for path, value in work.values.items() if path != _OPERATION}
        request = Request(operation=work.operation.name, obj=obj, user=self.user)
        subject = request.subject(labels, self.values.request_kind(obj))
        context = request.context(self.environment, values)
        concerning = [item for item in self.exceptions if item.concerns(program)]
        return RuleRun.of(program, subject, work.loads.of(context), concerning)

    def _again(self, run: RuleRun, work: "_Work", obj: Mapping[str, Any]) -> RuleRun:
        """Return the run of a rule on an object, rebuilt if the object has changed."""
        labels = run.subject.namespace_labels
        return run if obj is run.subject.obj else self._run(work, obj, labels or {})

    async def _labels(self, program: Program, namespace: str) -> Mapping[str, str]:
        asked = program.match.needs.namespace_labels or self.exceptions
        if not namespace or not asked:
            return {}
        given = self.values.namespace_labels.get(namespace)
        if given is None:
            given = await self.file_objects.labels(namespace)
        # The API server sets this label on every namespace.
        return {"kubernetes.io/metadata.name": namespace, **given}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """A step of the chain, with the given values for it."""

    step: Step
    operation: Operation
    values: Values
    loads: Loads

    def at_trigger(self, ended: StepResult) -> RuleResult:
        return RuleResult(
            policy=ended.policy.key,
            rule=ended.rule,
            status=ended.status,
            message=ended.message,
            trigger=self.step.obj,
            operation=self.operation,
            target=False,
            before=self.step.obj,
            after=ended.after,
            unchanged=ended.unchanged,
        )

    def fired(self, status: RuleStatus, message: str) -> RuleResult:
        ended = self.step.skip(message)
        return replace(self.at_trigger(ended), status=status)

    def at(self, obj: Mapping[str, Any], changed: TargetChange) -> RuleResult:
        return replace(
            self.fired(changed.status, changed.message),
            target=True,
            before=obj,
            after=changed.after,
            unchanged=changed.unchanged,
        )


def _namespace(obj: Mapping[str, Any]) -> str:
    return str(obj["metadata"].get("namespace") or "")


def _skip(obj: Object, message: str) -> TargetChange:
    return TargetChange(status=RuleStatus.SKIP, message=message, after=obj)
