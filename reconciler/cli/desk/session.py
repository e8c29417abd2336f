"""Rules evaluated on triggers, one policy after the other, as the controller evaluates them."""

import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from reconciler.api.meta import Object, split_api_version
from reconciler.cli.desk.operations import (
    DELETE,
    POLICY_UPDATE,
    UPDATE,
    Operation,
    operation_for,
)
from reconciler.cli.desk.stock import Key, Source, key_of
from reconciler.cli.desk.values import DeskValues, Values, place_values
from reconciler.clock import SystemClock
from reconciler.engine.context import Context, request_context
from reconciler.engine.environment import surround
from reconciler.engine.evaluate import change, decide
from reconciler.engine.exceptions import PolicyException, excepting, excepting_target, skipped
from reconciler.engine.match import Subject, UserInfo
from reconciler.engine.outcome import RuleStatus, TargetChange
from reconciler.engine.patch import SHIPPED, KeyTable
from reconciler.engine.program import CompiledPolicy, Program
from reconciler.errors import ClusterError, RetrofitError
from reconciler.services.processing.loading import Loads
from reconciler.services.processing.selection import SelectedTarget

NO_TARGET = "no object fits the targets of the rule"
NOT_ON_CHANGE = "mutateExistingOnPolicyUpdate is not true for this rule"
_OPERATION = "request.operation"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleResult:
    """What a rule did at one object.

    Attributes:
        trigger: As the rule saw it.
        target: Whether the object is a target; else it is the trigger itself.
        operation: Of the request.
        matched: Match and exclude say that the rule is for the trigger.
        fired: The rule was meant for the trigger and not excepted.
        unchanged: The object is as the rule wants it.
        before: The object; the trigger where no target was found.
        after: The object as it shall be, equal to ``before`` unless the status is PASS.
    """

    policy: str
    rule: str
    status: RuleStatus
    message: str
    trigger: Object
    operation: Operation
    target: bool
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    matched: bool = True
    fired: bool = False
    unchanged: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerRun:
    """All results at one trigger, and what became of it.

    Attributes:
        results: Of the rules that are for the trigger.
        others: Of the rules that are not.
        by_policy: The trigger as each policy left it, by the policy's key.
    """

    trigger: Object
    results: tuple[RuleResult, ...]
    others: tuple[RuleResult, ...]
    after: Object
    by_policy: Mapping[str, Object]


def _surroundings() -> Mapping[str, Any]:
    return surround(now=SystemClock().now(), below=secrets.randbelow)


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Policies, and what they are evaluated on.

    Attributes:
        user: Who sends the requests, with the fields that expressions see; None: nobody says.
        operation: Of the requests; None: as `operation_for` says.
        chained: A target that a rule changed is what later rules see, as in a cluster. Without,
            each rule sees the targets as they are in their files.
        changed: What became of targets so far.
        surroundings: Time and chance for expressions; the time stands still in a session.
    """

    policies: Sequence[CompiledPolicy]
    stock: Source
    values: DeskValues
    user: tuple[UserInfo, Mapping[str, Any]] | None = None
    operation: str | None = None
    exceptions: Sequence[PolicyException] = ()
    chained: bool = True
    changed: dict[Key, Mapping[str, Any]] = field(default_factory=dict)
    surroundings: Mapping[str, Any] = field(default_factory=_surroundings)

    async def run(self, trigger: Object, operation: str = "") -> TriggerRun:
        """Return what the policies make of a trigger and of their targets.

        Args:
            trigger: The object; not changed.
            operation: Of the request where somebody says so of this run; else empty.
        """
        current: Object = trigger
        results: list[RuleResult] = []
        others: list[RuleResult] = []
        by_policy: dict[str, Object] = {}
        for policy in self.policies:
            applied: set[str] = set()
            for program in policy.programs:
                if any(item.rule in applied for item in program.before):
                    continue
                async for result in self._evaluate(program, current, operation):
                    if not result.matched:
                        others.append(result)
                        continue
                    results.append(result)
                    if program.changes_trigger and result.status is RuleStatus.PASS:
                        current = dict(result.after)
                        self._keep(current, result)
                    if (
                        result.status is RuleStatus.PASS
                        if program.changes_trigger
                        else result.fired
                    ):
                        applied.add(program.rule)
            by_policy[policy.key] = current
        return TriggerRun(
            trigger=trigger,
            results=tuple(results),
            others=tuple(others),
            after=current,
            by_policy=by_policy,
        )

    async def _evaluate(
        self, program: Program, obj: Object, operation: str
    ) -> AsyncIterator[RuleResult]:
        if program.match.namespace and program.match.namespace != _namespace(obj):
            return
        loads = Loads(self.stock)
        values = self.values.of_trigger(program.origin.policy.name, program.rule, obj)
        chosen = operation_for(
            program,
            flag=operation or self.operation,
            value=values.get(_OPERATION),
            sent=self.user is not None,
        )
        frame = _Frame(program=program, trigger=obj, operation=chosen)
        if chosen.name == POLICY_UPDATE and not program.on_policy_change:
            yield frame.unmatched(NOT_ON_CHANGE)
            return
        try:
            subject, context = await self._request(program, obj, chosen.name, values)
            context = program.binding.bind(loads.of(context))
            decision = await loads.evaluate(lambda: decide(program, subject, context))
            if not decision.matched:
                yield frame.unmatched(decision.message)
                return
            if not decision.fires:
                yield frame.own(RuleStatus.SKIP, decision.message)
                return
            excepted = await loads.evaluate(lambda: self._excepted(program, subject, context))
            if excepted:
                yield frame.own(RuleStatus.SKIP, skipped(excepted))
                return
            frame = replace(frame, fired=True)
            if program.changes_trigger:
                keys = await self._keys(program, obj)
                changed = await loads.evaluate(
                    lambda: change(program, None, context, obj, keys=keys)
                )
                yield frame.changed(changed)
                return
        except RetrofitError as error:
            yield frame.own(RuleStatus.ERROR, str(error))
            return
        async for result in self._targets(frame, context, loads):
            yield result

    async def _targets(
        self, frame: "_Frame", context: Context, loads: Loads
    ) -> AsyncIterator[RuleResult]:
        program = frame.program
        selection = await self.stock.finder.select(program, context, loads)
        errors = map(str, selection.errors)
        for message in (*errors, *(item.message for item in selection.failures)):
            yield frame.own(RuleStatus.ERROR, message)
        if not (selection.found or selection.errors or selection.failures):
            yield frame.own(RuleStatus.SKIP, NO_TARGET)
        for found in selection.found:
            try:
                obj = await self._read(found)
            except ClusterError as error:
                yield frame.own(RuleStatus.ERROR, str(error))
                continue
            if not found.key.kind.subresource and not found.query.accepts(obj):
                yield frame.at(obj, _skip(obj, "the object does not fit the target's selector"))
                continue
            changed = await self._change(frame.program, found, context, loads, obj)
            result = frame.at(obj, changed)
            self._keep(changed.after, result)
            yield result

    async def _change(
        self, program: Program, found: SelectedTarget, context: Context, loads: Loads, obj: Object
    ) -> TargetChange:
        values = self.values.of_target(program.origin.policy.name, obj)
        bound = with_values(context, values) if values else context
        try:
            exceptions = self._concerning(program)
            labels = await self._labels(program, _namespace(obj)) if exceptions else {}
            excepted = await loads.evaluate(
                lambda: excepting_target(exceptions, found.key.kind, obj, labels, bound)
            )
            if excepted:
                return _skip(obj, skipped(excepted))
            keys = await self._keys(program, obj)
            return await loads.evaluate(
                lambda: change(program, found.query.index, bound, obj, keys=keys)
            )
        except RetrofitError as error:
            return TargetChange(status=RuleStatus.ERROR, message=str(error), after=obj)

    async def _keys(self, program: Program, obj: Object) -> KeyTable:
        if not program.mutation.merge_keys:
            return SHIPPED
        return await self.stock.merge_keys(str(obj.get("apiVersion", "")))

    def _excepted(self, program: Program, subject: Subject, context: Context) -> tuple[str, ...]:
        return excepting(self._concerning(program), subject, context)

    def _concerning(self, program: Program) -> list[PolicyException]:
        return [item for item in self.exceptions if item.concerns(program)]

    async def _read(self, found: SelectedTarget) -> Object:
        key = found.key
        kept = self.changed.get((key.kind.api_version, key.kind.kind, key.namespace, key.name))
        if kept is not None:
            return dict(kept)
        return await self.stock.target(found)

    def _keep(self, after: Mapping[str, Any], result: RuleResult) -> None:
        if self.chained and result.status is RuleStatus.PASS:
            self.changed[key_of(after)] = after

    async def _request(
        self, program: Program, obj: Object, operation: str, values: Values
    ) -> tuple[Subject, Context]:
        values = {path: value for path, value in values.items() if path != _OPERATION}
        group, version = split_api_version(obj["apiVersion"])
        meta = obj["metadata"]
        name, namespace = str(meta.get("name") or ""), str(meta.get("namespace") or "")
        user, info = self.user or (None, None)
        subject = Subject(
            group=group,
            version=version,
            kind=obj["kind"],
            name=name,
            namespace=namespace,
            obj=obj,
            operation=operation,
            user=user,
            namespace_labels=await self._labels(program, namespace),
        )
        context = request_context(
            operation=operation,
            obj=obj,
            old_object=obj if operation in (UPDATE, DELETE) else None,
            name=name,
            namespace=namespace,
            kind=(group, version, obj["kind"]),
            user_info=info,
            roles=(user.roles or ()) if user else (),
            cluster_roles=(user.cluster_roles or ()) if user else (),
        )
        context = context.bind(**self.surroundings)
        return subject, with_values(context, values) if values else context

    async def _labels(self, program: Program, namespace: str) -> Mapping[str, str]:
        asked = program.match.needs.namespace_labels or self.exceptions
        if not namespace or not asked:
            return {}
        given = self.values.namespace_labels.get(namespace)
        if given is None:
            given = await self.stock.labels(namespace)
        # Every namespace of a cluster has it.
        return {"kubernetes.io/metadata.name": namespace, **given}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    """A rule at a trigger."""

    program: Program
    trigger: Object
    operation: Operation
    fired: bool = False

    def own(
        self, status: RuleStatus, message: str, after: Mapping[str, Any] | None = None
    ) -> RuleResult:
        return RuleResult(
            policy=self.program.origin.policy.key,
            rule=self.program.rule,
            status=status,
            message=message,
            trigger=self.trigger,
            operation=self.operation,
            target=False,
            before=self.trigger,
            after=self.trigger if after is None else after,
            fired=self.fired,
        )

    def unmatched(self, reason: str) -> RuleResult:
        return replace(self.own(RuleStatus.SKIP, reason), matched=False)

    def changed(self, changed: TargetChange) -> RuleResult:
        result = self.own(changed.status, changed.message, changed.after)
        return replace(result, unchanged=changed.unchanged)

    def at(self, obj: Mapping[str, Any], changed: TargetChange) -> RuleResult:
        return replace(self.changed(changed), target=True, before=obj)


def _namespace(obj: Object) -> str:
    return str(obj["metadata"].get("namespace") or "")


def _skip(obj: Object, message: str) -> TargetChange:
    return TargetChange(status=RuleStatus.SKIP, message=message, after=obj)


def with_values(context: Context, values: Values) -> Context:
    """Return a context with each value at its path."""
    data = place_values(dict(context.data), values)
    return context.bind(
        **{name: data[name] for name in data if data[name] is not context.data.get(name)}
    )
